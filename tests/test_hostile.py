"""Nothing in a run folder or a model runs, controls the terminal or is read as markup; see hostile.py for fuzzing."""

import ast
import io
import json
import random
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import hostile
import hostile_fields
import pytest
from browser import opened, running, until
from pages import RESULTS

import ropescope as rs
from ropescope import console
from ropescope.charts import Figure, literal, picture, plane_chart, write_chart
from ropescope.html import ASSETS, Ids, document, for_script, render
from ropescope.report import sections
from ropescope.report.page import write_page
from ropescope.report.playground import page as playground_page
from ropescope.studies import studies, study_named
from ropescope.studies.result import Tables
from ropescope.studies.study import Table

IMAGE = '"><img src=x onerror=hit()>'
SCRIPT = "</script><script>hit()</script>"
ROW = {"head": SCRIPT, "group": "mine", "positional": 0.9, "symbolic": 0.2, "entropy": 0.4}
ROW |= {"positional_low": 0.8, "positional_high": 1.0, "symbolic_low": 0.1, "symbolic_high": 0.3}


def copied(name, to, **changes):
    """A recorded run under another name."""
    shutil.copytree(RESULTS / name, to)
    return to


# Pages


def test_templates_escape_by_default():
    for template in (ASSETS / "templates").iterdir():
        assert "safe" not in re.findall(r"\|\s*(\w+)", template.read_text()), template
    text = render("tables.html", parts=[SCRIPT, Table([IMAGE], [[IMAGE]], IMAGE)])
    assert "<img" not in text
    assert "<script" not in text


def test_json_in_a_script_element_cannot_end_it():
    data = {"a": f"{SCRIPT}<!--\u2028\u2029&"}
    assert not re.search("[<>&\u2028\u2029]", for_script(data))
    assert json.loads(for_script(data)) == data


@pytest.mark.slow
def test_no_other_module_writes_html():
    """All of it comes from templates: no other string holds a tag."""
    tag = re.compile(r"</?(a|b|p|h\d|div|span|td|th|tr|table|script|style|section|img|li|ul|details|html|body|option)\b[^>]*>")
    for path in Path(rs.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                assert not tag.search(node.value), f"{path}: {node.value!r}"


@pytest.mark.slow
def test_every_page_has_a_policy_without_eval_and_network(tmp_path):
    pages = [
        write_page([RESULTS / "bench-watch"], tmp_path / "page.html").read_text(),
        playground_page({"a": {"subjects": []}}),
    ]
    write_chart(plane_chart([ROW]), tmp_path, "chart")
    pages.append((tmp_path / "chart.html").read_text())
    for page in pages:
        policy = re.search('<meta http-equiv="Content-Security-Policy" content="(.*?)">', page)[1].replace("&#39;", "'")
        assert page.index("Content-Security-Policy") < page.index("<title>")
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "unsafe-eval" not in policy
        assert policy.count("unsafe-inline") == 1  # of styles
        assert "://" not in policy


@pytest.mark.browser
def test_the_policy_stops_what_a_template_would_let_through(tmp_path):
    """The second line of defence: even unescaped, it does not run."""
    page = document("chart.html", "document.title = 'ours';", title="x", style="", data="", engine="")
    (tmp_path / "page.html").write_text(page.replace("<noscript>", "<script>document.title = 'theirs'</script><noscript>"))
    with opened(tmp_path / "page.html") as (tab, complaints):
        assert tab.title() == "ours"
        assert any("Content Security Policy" in each for each in complaints)


def test_ids_are_unique_whatever_names_are():
    ids = Ids("engine")
    names = ["engine", "engine", "a b", "a-b", "a\"b'", "", "<>", "clip1", "gradient_0", "vg-tooltip-element", "x" * 300]
    found = [ids.new(name) for name in names]
    assert len({*found, "engine"}) == len(names) + 1
    assert all(re.fullmatch(r"[\w.-]+", each) for each in found)
    assert not {"clip1", "gradient_0", "vg-tooltip-element"} & {*found}
    assert Ids().new("profile-smollm2-135m") == "profile-smollm2-135m"  # links stay readable


@pytest.mark.browser
@pytest.mark.slow
def test_runs_may_have_any_name_and_the_same_name(tmp_path):
    names = ["engine", "scoreboard", "main", "theme", "a'b\"c", "vg-tooltip-element", "same", "more/same", "same-cost"]
    for name in names:
        copied("bench-profile", tmp_path / "runs" / name)
    page = write_page([tmp_path / "runs"], tmp_path / "page.html")
    ids = re.findall(r'\bid="(.*?)"', page.read_text())
    assert len(ids) == len(set(ids))
    with opened(page) as (tab, complaints):
        tab.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        for section in tab.locator(".run").all():
            section.evaluate("part => part.scrollIntoView()")
            section.locator(".plot.drawn svg").first.wait_for()
        assert tab.locator(".run").count() == len(names)
        for link in tab.locator("nav a, #runs a").all():
            assert tab.locator("section").evaluate_all(
                "(all, id) => all.some((one) => one.id === id)", link.get_attribute("href")[1:]
            )
        assert complaints == []


def test_a_name_of_a_figure_with_an_image_in_it(tmp_path, monkeypatch):
    """A task's name in a summary is part of the names of figures, which went unescaped into `id`, `href` and `data-chart`."""
    study = replace(study_named("bench"), figures=lambda _: {IMAGE: Figure(plane_chart([ROW]), IMAGE, IMAGE)})
    monkeypatch.setattr(sections, "study_of", lambda _: study)
    text = write_page([RESULTS / "bench-watch"], tmp_path / "page.html").read_text()
    assert "<img" not in text
    assert re.search(r'<figure class="full" id="bench-watch-+img-src-x-onerror-hit" data-chart="0" tabindex', text)


# Charts and notebooks


@pytest.mark.slow
def test_a_config_with_the_end_of_a_script_in_a_chart(tmp_path):
    """Altair writes rows into a script element as they are; our charts escape them wherever they are shown."""
    figure = Figure(plane_chart([ROW]), "reading")
    write_chart(figure.chart, tmp_path, "chart")
    figure.chart.save(tmp_path / "saved.html")
    figure.chart.save(file := io.StringIO(), format="html")
    shown = [(tmp_path / name).read_text() for name in ("chart.html", "saved.html")]
    shown += [file.getvalue(), figure.chart.to_html(), figure.chart._repr_mimebundle_()["text/html"]]
    assert all("<script>hit()" not in text for text in shown)
    assert figure.chart.to_dict()["datasets"]  # and the chart is the same


@pytest.mark.browser
def test_a_saved_chart_is_drawn_under_its_policy(tmp_path):
    write_chart(plane_chart([ROW], "mine"), tmp_path, "chart")
    with opened(tmp_path / "chart.html") as (tab, complaints):
        until(tab, "!!document.getElementById('chart').view")
        assert tab.locator("#chart canvas, #chart svg").count() >= 1
        assert complaints == []


@pytest.mark.parametrize("name", ["\x1b[2J", "a\x00b", "\uffff", "\u2028\u2029", "\\\\u001b", "\N{GRINNING FACE}\x07"])
@pytest.mark.slow
def test_control_characters_in_a_name_do_not_stop_a_picture(name):
    """XML has no such characters. The library that draws pictures aborted the process, after all had been computed."""
    assert picture(plane_chart([ROW | {"head": name, "group": name}], name)).startswith(b"\x89PNG")


def test_a_notebook_shows_no_script(tmp_path):
    folder = copied("bench-profile", tmp_path / "run")
    result = rs.open_run(folder)
    text = result._repr_html_()
    assert "<script" not in text
    assert '<img alt="' in text
    assert str(result.table()._repr_html_()).count("<table>") >= 1


def test_text_in_expressions_of_charts_is_data():
    """Every expression made from a file goes through one function."""
    for text in hostile_fields.TEXTS:
        assert json.loads(literal({text: [text]})) == {text: [text]}
    asked = ("labelExpr", "transform_filter", "transform_calculate", "expr")
    for path in (Path(rs.__file__).parent / "studies").rglob("*figures*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in asked:
                parts = [*node.args, *(each.value for each in node.keywords)]
            elif isinstance(node, ast.keyword) and node.arg in asked:
                parts = [node.value]
            else:
                continue
            for part in (each for one in parts for each in ast.walk(one) if isinstance(each, ast.FormattedValue)):
                assert part.conversion == -1, f"{path}:{part.lineno} writes a repr into an expression"
                assert not (isinstance(part.value, ast.Call) and ast.unparse(part.value).startswith("json.")), path


# The terminal


class Terminal(io.StringIO):
    def isatty(self):
        return True


NAMES = ["a[/b]", "[red]x[/red]", "\x1b[2J\x1b]0;title\x07", "[link=http://x]y", "back\\", "\u202etxt", "{task}", ":smile:"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text_in_progress_bars_tables_and_lines(name, monkeypatch, capsys):
    """A label was swallowed as markup, and `a[/b]` ended the command with code 70."""
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    assert list(console.progress(range(3), 3, name)) == [0, 1, 2]
    with console.training_bar(3) as show:
        show(1, 0.5, {"accuracy": [0.5]})
    console.tell(name)
    console.warned(UserWarning(name), UserWarning, "file", 1)
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert seen.count(console.printable(name)) >= 3
    assert "\x1b]0;" not in screen.getvalue()
    assert "\x1b[2J" not in screen.getvalue()
    console.print_table([name], [[name]], name)
    console.say(name)
    print(Tables([Table([name], [[name]], name), name]))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert out.count(console.printable(name)) == 3 + 1 + 4


@pytest.mark.slow
def test_everything_is_printed_by_one_module():
    for path in Path(rs.__file__).parent.rglob("*.py"):
        if path.name == "console.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            # A table is safe text itself; JSON in ASCII is for another process.
            safe = called == "print" and ast.unparse(node).startswith(("print(result.table())", "print(json.dumps("))
            assert called not in ("print", "typer.echo", "click.echo", "sys.stderr.write", "sys.stdout.write") or safe, path


def test_file_names_with_escapes_do_not_reach_the_terminal(tmp_path, monkeypatch, capsys):
    from ropescope import cli  # noqa: PLC0415

    folder = copied("bench-watch", tmp_path / "run\x1b[2J")
    monkeypatch.setattr(sys, "argv", ["ropescope", "report", str(folder), "--out", str(tmp_path / "page\x1b]0;x\x07.html")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr()
    assert end.value.code == 0
    assert "page\\x1b]0;x\\x07.html" in said.out
    assert "\x1b" not in said.out + said.err


# Fuzzing


class Mark:
    """Stands for hostile text."""

    how = "replaced"

    def of(self, _):
        return "~"


@pytest.fixture(scope="module")
def all_kinds(tmp_path_factory):
    return hostile_fields.kinds(tmp_path_factory.mktemp("kinds"))


def test_fields_are_found_by_walking():
    content = {"a": [{"b": "x"}, {"b": "y", "c": 1}], "d": {}}
    assert list(dict.fromkeys(hostile_fields.fields_of(content))) == ["{}", ".a[]{}", ".a[].b"]
    text = hostile_fields.Text(random.Random(0), "extended")
    found = hostile_fields.filled(content, {".a[].b": text, ".a[]{}": text})
    assert next(value for row in found["a"] for value in row.values() if isinstance(value, str)).startswith("x")
    assert not {"b", "c"} & {key for row in found["a"] for key in row}
    more = hostile_fields.filled(content, {"{}": hostile_fields.Text(random.Random(0), "added")})
    assert len(more) == 3
    assert {"a", "d"} < set(more)


def test_no_string_of_a_recorded_run_is_left_out():
    """All strings of all JSON files, found in their text and not by walking, are fields that can be filled."""
    for path in (RESULTS / name for names in hostile_fields.recorded_runs().values() for name in names):
        for file in (found for found in path.rglob("*.json") if found.stat().st_size < 300_000):
            content = json.loads(file.read_text(encoding="utf-8"))
            chosen = dict.fromkeys(hostile_fields.fields_of(content), Mark())
            text = json.dumps(hostile_fields.filled(content, chosen))
            assert {found.rstrip("0123456789") for found in re.findall(r'"((?:[^"\\]|\\.)*)"', text)} <= {"~"}, file


@pytest.mark.slow
def test_the_plan_of_the_fuzzer_has_every_field_of_every_run_type(all_kinds):
    planned = {}
    for kind in all_kinds:
        planned.setdefault(kind.command, []).extend(kind.fields)
    assert set(planned) >= set(studies())
    for command, names in planned.items():
        assert len(names) == len(set(names)), command
    for command, folders in hostile_fields.recorded_runs().items():
        for folder in folders:
            assert set(hostile_fields.fields_in(folder)) <= set(planned[command]), folder
    session = hostile.Session()
    for kind in all_kinds:
        session.meet(kind)
    queued = {(kind.command, name) for kind in all_kinds for batch in session.queues[kind.name] for name, _ in batch}
    assert queued == {(command, name) for command, names in planned.items() for name in names}


@pytest.mark.browser
@pytest.mark.slow
def test_hostile_runs_of_every_type_run_nothing(tmp_path, all_kinds):
    """A page of every type with hostile text in all fields that recorded sessions showed, and in all that they did not try."""
    recorded = json.loads((RESULTS / "hostile-later" / "fields.json").read_text())
    first = {kind.command: kind for kind in reversed(all_kinds)}.values()
    fresh = [kind for kind in all_kinds if not set(kind.fields) <= set(recorded.get(kind.command, {}))]
    chosen = list({kind.name: kind for kind in (*first, *fresh)}.values())
    with running() as browser:
        *_, session = hostile.play(len(chosen), tmp_path, 0, browser, chosen, recorded)
    assert [one.ran for one in session.shown] == [[]] * len(session.shown)
    assert sum(one.opened for one in session.shown) >= len(chosen)
    assert all(set(kind.fields) <= set(session.tried[kind.command]) for kind in chosen)
