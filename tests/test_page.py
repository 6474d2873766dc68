"""The page in a real browser, opened from a file with the network off."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import opened
from profiles import geometry_rows, make_profile, path_rows, trace_rows
from safetensors.numpy import load_file

from ropescope import runs
from ropescope.experiments.profile import packed
from ropescope.experiments.profile_statistics import statistics
from ropescope.report import page as module
from ropescope.report.page import scoreboard_html, write_page
from ropescope.studies.claims import Claim

RESULTS = Path(__file__).parents[1] / "results"
PROFILE, TRAINING = "profile-smollm2-135m", "number-0"
# Marks of a chart as they are drawn: their kind, their data and where they are.
MARKS = """(id) => {
  const found = [], view = document.getElementById(id).view;
  const visit = (item) => {
    if (item.items) item.items.forEach(visit);
    else if (item.datum && !item.datum.mark) found.push([item.mark.marktype, item.datum, item.x, item.y, item.stroke]);
  };
  visit(view.scenegraph().root);
  return JSON.parse(JSON.stringify(found.filter(([kind]) => kind !== "group")));
}"""
WIDER = "document.documentElement.scrollWidth > innerWidth"


@pytest.fixture(scope="module")
def summary():
    return json.loads((RESULTS / PROFILE / "summary.json").read_text())


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A page of a profile and a training run."""
    return write_page([RESULTS / PROFILE, RESULTS / TRAINING], tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture(scope="module")
def shown(both):
    """The same in a browser, with every chart drawn."""
    with opened(both, viewport={"width": 1280, "height": 900}, accept_downloads=True) as (page, complaints):
        draw_all(page)
        yield page, complaints


def draw_all(page):
    """Scroll through the page until every chart is drawn."""
    page.evaluate("for (const part of document.querySelectorAll('.run > details')) part.open = true")
    for figure in page.locator(".figures figure").all():
        figure.evaluate("part => part.scrollIntoView({ behavior: 'instant' })")
        figure.locator(".plot.drawn svg").wait_for()
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")


def pick(page, run, layer, head):
    page.select_option(f"#{run}--layer", str(layer))
    page.select_option(f"#{run}--head", str(head))
    page.wait_for_function(f"document.getElementById('{run}-head').view.signal('picked') === 'L{layer} H{head}'")


def downloaded(page, figure, kind):
    with page.expect_download() as found:
        page.click(f"#{figure} [data-get={kind}]")
    assert found.value.suggested_filename == f"{figure}.{kind}"
    return Path(found.value.path()).read_bytes()


def test_every_chart_is_drawn_without_network_or_complaint(shown, both):
    page, complaints = shown
    assert complaints == []
    assert page.locator(".figures figure").count() == 18
    assert page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    assert page.evaluate("performance.getEntriesByName('ropescope:first-chart')[0].startTime") < 20_000  # on a busy machine
    assert both.stat().st_size < 3.5e6
    for figure in page.locator(".figures figure").all():
        assert figure.locator("svg .mark-symbol path, svg .mark-rect path, svg .mark-line path").count() > 2
        assert figure.locator(".reading").inner_text().endswith(".")


def test_a_page_of_one_profile_is_small(tmp_path):
    page = write_page([RESULTS / PROFILE], tmp_path / "page.html")
    assert page.stat().st_size < 5e6
    assert "http://" not in page.read_text().split('id="engine"')[0]


def test_a_head_chosen_by_keyboard_is_shown_in_every_chart(shown, summary):
    page, _ = shown
    pick(page, PROFILE, 3, 2)
    scores = {score: summary["results"]["heads"][score]["mean"][3][2] for score in ("positional", "symbolic")}
    said = page.locator(f"#{PROFILE} .picker output").inner_text()
    assert f"positional {scores['positional']:.3f}, symbolic {scores['symbolic']:.3f}" in said
    ring = [
        datum for kind, datum, *_ in page.evaluate(MARKS, f"{PROFILE}-heads") if kind == "symbol" and datum["name"] == "L3 H2"
    ]
    assert len(ring) == 2  # the head, and the ring round it
    assert ring[0]["positional"] == pytest.approx(scores["positional"], abs=1e-4)
    frames = [datum["name"] for *_, datum, _, _, stroke in page.evaluate(MARKS, f"{PROFILE}-heat-maps") if stroke == "#FFF"]
    assert frames == ["L3 H2"] * 3
    dataset = runs.read_profile(RESULTS / PROFILE / "profile.nc").mean("input")
    points = [datum for kind, datum, *_ in page.evaluate(MARKS, f"{PROFILE}-head") if kind == "symbol" and "score" in datum]
    for score in ("positional", "symbolic"):
        drawn = {row["plane"]: row["value"] for row in points if row.get("score") == score and row.get("name") == "L3 H2"}
        np.testing.assert_allclose(list(drawn.values()), dataset[f"plane_{score}"][3, 2], atol=6e-4)
        assert list(drawn) == list(range(1, 33))
    bars = [datum for kind, datum, *_ in page.evaluate(MARKS, f"{PROFILE}-head") if kind == "rect"]
    norms = dataset["plane_norm"][3, 2].values
    np.testing.assert_allclose([row["share"] for row in bars], norms / norms.max(), atol=6e-4)
    assert page.locator(f"#{PROFILE}-head h3").inner_text().startswith("L3 H2")
    page.locator(f"#{PROFILE} [data-step='1']").press("Enter")
    page.wait_for_function(f"document.getElementById('{PROFILE}-head').view.signal('picked') === 'L3 H3'")


PLACE = """([id, name]) => {
  const figure = document.getElementById(id), svg = figure.querySelector("svg");
  svg.scrollIntoView({ block: "center", behavior: "instant" });
  let at = null;
  const visit = (item, x, y) => {
    if (item.items && !["symbol", "rect"].includes(item.marktype)) {
      const [dx, dy] = item.marktype ? [0, 0] : [item.x ?? 0, item.y ?? 0];
      item.items.forEach((one) => visit(one, x + dx, y + dy));
    } else if (item.items) {
      const one = item.items.find((one) => one.datum?.name === name);
      if (one) at ??= [x + one.x + (one.width ?? 0) / 2, y + one.y + (one.height ?? 0) / 2];
    }
  };
  visit(figure.view.scenegraph().root, 0, 0);
  const box = svg.getBoundingClientRect(), origin = figure.view.origin();
  const scale = box.width / svg.viewBox.baseVal.width;
  return [box.left + (origin[0] + at[0]) * scale, box.top + (origin[1] + at[1]) * scale];
}"""
"""Where in the window the mark of a head is."""


def steady_place(page, figure, name):
    """Charts redraw themselves after a choice and move what is below: where it is once that has come to rest."""
    seen = [page.evaluate(PLACE, [figure, name])]
    while len(seen) < 3 or seen[-1] != seen[-3]:
        assert len(seen) < 100, "the page never comes to rest"
        page.wait_for_timeout(150)
        seen.append(page.evaluate(PLACE, [figure, name]))
    return seen[-1]


def test_a_click_on_a_head_chooses_it(shown):
    page, _ = shown
    for figure in (f"{PROFILE}-heads", f"{PROFILE}-heat-maps"):
        pick(page, PROFILE, 0, 0)
        page.mouse.click(*steady_place(page, figure, "L6 H5"))
        page.wait_for_function(f"document.getElementById('{PROFILE}-head').view.signal('picked') === 'L6 H5'")
        assert page.input_value(f"#{PROFILE}--layer") == "6"


def test_other_parts_of_a_page_can_choose_a_head_too(shown):
    page, _ = shown
    page.evaluate(
        f"""() => {{
          document.addEventListener("ropescope:head", ({{ detail }}) => (window.heard = detail));
          document.dispatchEvent(new CustomEvent("ropescope:head", {{ detail: {{ run: "{TRAINING}", layer: 7, head: 0 }} }}));
        }}"""
    )
    page.wait_for_function(f"document.getElementById('{TRAINING}-head').view.signal('picked') === 'L7 H0'")
    pick(page, TRAINING, 5, 0)
    assert page.evaluate("window.heard") == {"run": TRAINING, "layer": 5, "head": 0}
    lines = [datum for kind, datum, *_ in page.evaluate(MARKS, f"{TRAINING}-head") if kind == "line"]
    history = load_file(RESULTS / TRAINING / "history.safetensors")
    drawn = [row["value"] for row in lines if row["measure"] == "symbolic" and row["name"] == "L5 H0"]
    np.testing.assert_allclose(drawn, history["symbolic"][:, 5, 0], atol=6e-5)


def test_queries_and_keys_are_shown_where_they_were_kept(shown):
    page, _ = shown
    pick(page, PROFILE, 8, 1)
    kinds = [(kind, datum.get("what")) for kind, datum, *_ in page.evaluate(MARKS, f"{PROFILE}-head-geometry")]
    assert kinds.count(("symbol", "key")) == 96
    pick(page, PROFILE, 8, 2)
    texts = [datum["said"] for kind, datum, *_ in page.evaluate(MARKS, f"{PROFILE}-head-geometry") if "said" in datum]
    assert len(texts) == 1
    assert texts[0].startswith("kept for L8 H1")


def heads_of_film(page):
    marks = page.evaluate(MARKS, f"{TRAINING}-film")
    return {datum["name"]: (datum["x"], datum["y"]) for kind, datum, *_ in marks if kind == "symbol" and "kind" in datum}


def test_the_film_shows_every_step(shown):
    page, complaints = shown
    history = load_file(RESULTS / TRAINING / "history.safetensors")
    slider, said = page.locator(f"#{TRAINING}--at"), page.locator(f"#{TRAINING} .film output")
    slider.focus()
    for key, at in (("Home", 0), ("ArrowRight", 1), ("End", len(history["step"]) - 1)):
        slider.press(key)
        page.wait_for_function(f"document.getElementById('{TRAINING}-film').view.signal('at') === {at}")
        assert said.inner_text() == f"step {history['step'][at]:,}"
        heads = heads_of_film(page)
        assert len(heads) == 12
        for layer in range(12):
            expected = [history[score][at, layer, 0] for score in ("positional", "symbolic")]
            assert heads[f"L{layer} H0"] == pytest.approx(expected, abs=6e-5)
        marks = page.evaluate(MARKS, f"{TRAINING}-accuracy")
        cursor = {datum["hops"]: datum["value"] for kind, datum, *_ in marks if kind == "symbol" and "hops" in datum}
        assert list(cursor.values()) == pytest.approx(list(history["accuracy"][at]), abs=6e-5)
    page.locator(f"#{TRAINING} .play").press("Enter")  # from the start again
    page.wait_for_function(f"document.getElementById('{TRAINING}-film').view.signal('at') > 2")
    page.locator(f"#{TRAINING} .play").press("Enter")
    page.wait_for_timeout(200)
    stopped = page.evaluate(f"document.getElementById('{TRAINING}-film').view.signal('at')")
    page.wait_for_timeout(200)
    assert page.evaluate(f"document.getElementById('{TRAINING}-film').view.signal('at')") == stopped
    assert complaints == []


def test_downloads(shown, summary):
    page, _ = shown
    picture = downloaded(page, f"{PROFILE}-heads", "svg").decode()
    assert picture.startswith("<svg")
    assert "270 heads between places and things" in picture
    assert "smollm2-135m" in picture
    bits = downloaded(page, f"{PROFILE}-heat-maps", "png")
    assert bits.startswith(b"\x89PNG")
    assert int.from_bytes(bits[16:20]) > 1000  # pixels across
    table = list(csv.DictReader(io.StringIO(downloaded(page, f"{PROFILE}-heads", "csv").decode())))
    assert len(table) == 270
    for score in ("positional", "symbolic"):
        expected = np.array(summary["results"]["heads"][score]["mean"]).ravel()
        np.testing.assert_allclose([float(row[score]) for row in table], expected, atol=6e-5)
    assert table[11]["name"] == "L1 H2"
    film = list(csv.DictReader(io.StringIO(downloaded(page, f"{TRAINING}-film", "csv").decode())))
    history = load_file(RESULTS / TRAINING / "history.safetensors")
    assert len(film) == 12 * len(history["step"])
    np.testing.assert_allclose([float(row["positional"]) for row in film], history["positional"][..., 0].T.ravel(), atol=6e-5)


def test_keyboard_and_source(shown, summary):
    page, _ = shown
    source = page.locator(f"#{PROFILE}-depth .source")
    page.locator(f"#{PROFILE}-depth [data-get=csv]").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    source.locator("dl").wait_for()
    told = source.inner_text()
    assert summary["sha256"]["profile.nc"] in told
    assert f"torch {summary['versions']['torch']}" in told
    assert "Seed\n0" in told
    assert page.locator(f"#{PROFILE}-depth .plot").get_attribute("aria-label").startswith("Over depth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(both, scheme):
    with opened(both, viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True) as (page, complaints):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator(".plot").first.scroll_into_view_if_needed()
        page.locator(".plot.drawn").first.wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert not page.evaluate(WIDER)
        draw_all(page)
        assert not page.evaluate(WIDER)
        page.click("#theme")
        page.locator(".plot.drawn").first.wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") != scheme
        assert complaints == []


def test_a_film_without_motion(both):
    with opened(both, reduced_motion="reduce", viewport={"width": 1000, "height": 700}) as (page, _):
        page.locator(f"#{TRAINING}-film").scroll_into_view_if_needed()
        page.locator(f"#{TRAINING}-film .plot.drawn").wait_for()
        page.click(f"#{TRAINING} .play")
        seen = [page.evaluate(f"document.getElementById('{TRAINING}-film').view.signal('at')") for _ in range(20)]
        assert all(value == int(value) for value in seen)


KINDS = [
    "theory",
    "canonical",
    "mechanisms",
    "control-smollm2",
    "conformance",
    "bench-profile",
    "dynamics",
    "generalise-letter",
    "llm-gemma3-270m",
]


def test_runs_of_every_kind(tmp_path):
    page = write_page([RESULTS / name for name in (*KINDS, "profile-tinyllama-1.1b")], tmp_path / "page.html")
    with opened(page, viewport={"width": 1280, "height": 900}) as (browser, complaints):
        assert browser.locator(".run > details[open]").count() == 1
        browser.goto(f"{page.as_uri()}#canonical-places")
        browser.locator("#canonical-places .plot.drawn").wait_for()  # a link opens what it leads to
        assert browser.evaluate("document.activeElement.id") == "canonical-places"
        draw_all(browser)
        assert {part.get_attribute("id") for part in browser.locator(".run").all()} == {*KINDS, "profile-tinyllama-1.1b"}
        for name in KINDS:
            assert browser.locator(f"#{name} figure").count() > 0
        assert browser.locator("#canonical .claims tbody tr").count() == 10
        assert complaints == []


HOSTILE = (
    "<script>window.hacked = 1</script>\"'`&lt;\N{RIGHT-TO-LEFT OVERRIDE}\u05d0\N{GRINNING FACE}\u2028"
    "</script><img src=x onerror=hacked=1>"
)


def hostile_run(folder: Path, inputs=4, layers=4, heads=2):
    dataset = make_profile(inputs=inputs, layers=layers, heads=heads, planes=8)
    dataset.attrs |= {"model": HOSTILE, "prompts": HOSTILE + "x" * 10_000}
    folder.mkdir(parents=True)
    (folder / "profile.nc").write_bytes(packed(dataset))
    rows = [row | {"head": HOSTILE} for row in geometry_rows()[:121]]
    closer = {"traces": trace_rows(), "path": path_rows(), "geometry": rows + geometry_rows()[121:]}
    (folder / "closer.json").write_text(json.dumps(closer))
    config = {"model": {"source": HOSTILE, "weights": {HOSTILE: HOSTILE}}, "prompts": HOSTILE, "seed": 0}
    found = statistics(dataset) | {"claims": [{"claim": HOSTILE, "paper": HOSTILE, "ours": "x" * 10_000, "holds": True}]}
    found |= {"model": HOSTILE, "prompts": HOSTILE + "x" * 10_000}
    runs.write_summary(folder, "profile", config, found, ["profile.nc", "closer.json"])


def test_hostile_text_is_shown_and_never_run(tmp_path, monkeypatch):
    folder = tmp_path / "a\"><b onclick='x'>&\u05d0\N{GRINNING FACE}"
    hostile_run(folder)
    row = dict.fromkeys(("claim", "where", "statement", "paper_value", "ours", "note", "run", "chart"), HOSTILE)
    monkeypatch.setattr(module, "_scoreboard", lambda _: [Claim(**row, paper="A", verdict="partly")])
    page = write_page([folder], tmp_path / "page.html", title=HOSTILE)
    with opened(page, viewport={"width": 360, "height": 740}) as (browser, complaints):
        draw_all(browser)
        browser.locator(".source summary").first.click()
        browser.locator(".claims summary").click()
        for figure in browser.locator(".figures figure").all()[:3]:
            figure.locator("svg").hover()
        assert browser.evaluate("window.hacked") is None
        assert browser.locator("img, b, .run [onclick]").count() == 0
        assert browser.title().split() == HOSTILE.split()
        assert browser.locator(".run .headline").inner_text().startswith("<script>window.hacked = 1</script>\"'`&lt;")
        assert folder.name in browser.locator("h2 bdi").inner_text()
        assert "x" * 10_000 in browser.locator(".claims").inner_text()
        assert not browser.evaluate(WIDER)
        assert complaints == []


def test_the_scoreboard_can_be_filtered(tmp_path, monkeypatch):
    names = ("claim", "paper", "where", "statement", "paper_value", "ours", "verdict", "note", "run", "chart")
    told = [
        ("1.1", "A", "4.1", "Heads are one or the other", "r = -0.9", "r = -0.88", "reproduced", "", "bench-profile", "cost"),
        ("1.2", "A", "4.2", "Depth matters", "more", "less", "not", "one model only", "bench-profile", ""),
        ("2.1", "B", "3", "Purity", "4 heads", "", "not run", "", "", ""),
    ]
    rows = [Claim(**dict(zip(names, row, strict=True))) for row in told]
    monkeypatch.setattr(module, "_scoreboard", lambda _: rows)
    page = write_page([RESULTS / "bench-profile"], tmp_path / "page.html")
    with opened(page) as (browser, complaints):
        lines = browser.locator("#scoreboard tbody tr:visible")
        assert lines.count() == 3
        browser.select_option("#scoreboard--paper", "A")
        assert lines.count() == 2
        browser.select_option("#scoreboard--verdict", "not")
        assert lines.count() == 1
        assert "one model only" in lines.inner_text()
        browser.select_option("#scoreboard--verdict", "reproduced")
        lines.locator("a").click()
        browser.locator("#bench-profile-cost .plot.drawn").wait_for()
        assert browser.evaluate("location.hash") == "#bench-profile-cost"
        assert complaints == []
    assert "3 statements" in scoreboard_html(rows)


def broken(tmp_path, case):
    folder = tmp_path / "bench"
    shutil.copytree(RESULTS / "conformance" if case == "hash" else RESULTS / "bench", folder)
    path = folder / "summary.json"
    if case == "hash":
        (folder / "families.json").write_text("[]")
    elif case == "JSON":
        path.write_text(path.read_text()[:100])
    elif case == "NaN":
        path.write_text(path.read_text().replace("15", "NaN", 1))
    elif case == "other JSON":
        path.write_text("[1]")
    elif case == "lacking":
        path.write_text(path.read_text().replace('"what"', '"that"'))
    elif case == "no run":
        path.unlink()
    elif case == "same name":
        shutil.copytree(folder, tmp_path / "more" / "bench")
        return tmp_path
    return folder / "nowhere" if case == "nowhere" else folder


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("hash", "families.json is not the file its summary was written with"),
        ("JSON", "summary.json is damaged"),
        ("NaN", "summary.json is damaged .NaN is no number"),
        ("other JSON", "summary.json is damaged .it has no entries"),
        ("lacking", "lacks what a run of bench holds"),
        ("no run", "holds no run of ropescope"),
        ("nowhere", "nowhere is no folder"),
        ("same name", "two of the runs are called bench: rename one"),
    ],
)
def test_bad_folders_are_named_in_one_sentence(tmp_path, case, said):
    with pytest.raises(ValueError, match=said) as error:
        write_page([broken(tmp_path, case)], tmp_path / "page.html")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "page.html").exists()


def test_a_page_is_a_file(tmp_path):
    with pytest.raises(ValueError, match="is a folder: give the name of a file"):
        write_page([RESULTS / "bench"], tmp_path)


def test_runs_are_found_below_folders_and_unfinished_ones_too(tmp_path):
    for name in ("bench", "number-0"):
        shutil.copytree(RESULTS / name, tmp_path / "all" / "below" / name)
    (tmp_path / "all" / "below" / "number-0" / "summary.json").unlink()
    found = runs.find_runs([tmp_path / "all", tmp_path / "all" / "below" / "bench"])
    assert [(run.name, run.command) for run in found] == [("bench", "bench"), ("number-0", "train")]
    assert "not ended yet" in write_page([tmp_path / "all"], tmp_path / "page.html").read_text()


def test_the_command_needs_no_torch(tmp_path):
    code = (
        "import sys; from ropescope.cli import main\n"
        "try:\n    sys.argv = ['ropescope', *sys.argv[1:]]; main()\n"
        "finally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "report", RESULTS / "bench", RESULTS / TRAINING, "--out", tmp_path / "page.html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("False\n"), done.stderr
    assert f"{tmp_path / 'page.html'}: " in done.stdout
    assert " MB, made in " in done.stdout
