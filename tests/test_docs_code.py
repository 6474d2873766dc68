"""All code in the documentation runs, the command line accepts its commands, and its links lead somewhere.

A block of Python is complete, or its first line says that it continues the block before. Blocks with `>>>` hold their output,
which is compared. Everything runs in a temporary folder, in which `results` and `weights` are links to those of the project.
"""

import ast
import doctest
import importlib.util
import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import real
import typer

import ropescope
from ropescope import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = PAGES[0]
FILES = "https://github.com/ropescope/ropescope/blob/main/"
"""Where the README's links find files of the repository, so that they work on a package index too."""
PICTURES = "https://raw.githubusercontent.com/ropescope/ropescope/main/"
CONTINUED = "# continued"
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A block of code: in which page, in which line, in what language."""

    page: Path
    line: int
    language: str
    code: str

    @property
    def continues(self) -> bool:
        return self.code.removeprefix(">>> ").startswith(CONTINUED)


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    return [Block(path, text.count("\n", 0, m.start()) + 2, m[1], m[2]) for m in found]


BLOCKS = [block for path in PAGES for block in blocks_of(path)]


def marks(code: str, *others: pytest.MarkDecorator) -> list[pytest.MarkDecorator]:
    """Marks of a test that runs this code."""
    return [*others, *([pytest.mark.weights] if "weights/" in code else [])]


def chains() -> list:
    """Blocks of Python, each with those that continue it; those of the README are run in their order below."""
    found: list[list[Block]] = []
    for block in BLOCKS:
        if block.language in ("python", "pycon") and block.page != README:
            if block.continues:
                assert found[-1][-1].page == block.page, f"{block} continues nothing"
                found[-1].append(block)
            else:
                found.append([block])
    return [
        pytest.param(
            chain,
            id=f"{chain[0].page.name}:{chain[0].line}",
            marks=marks("".join(block.code for block in chain), pytest.mark.slow),
        )
        for chain in found
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder as a reader has it: the recorded results and some weights at hand."""
    (tmp_path / "results").symlink_to(ROOT / "results")
    (tmp_path / "weights").symlink_to(real.WEIGHTS.resolve())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def need_weights(code: str) -> None:
    for name in set(re.findall(r"weights/([\w.-]+\w)", code)):
        real.folder(name)


def run_examples(text: str, where: str, line: int, names: dict) -> dict:
    """Run the lines after `>>>`, compare their output, and return the names that they define."""
    shown: list[str] = []
    examples = doctest.DocTestParser().get_doctest(text, names, where, where, line - 1)
    assert examples.examples
    runner = doctest.DocTestRunner(optionflags=ALIKE)
    runner.run(examples, out=shown.append, clear_globs=False)
    assert not runner.failures, "".join(shown)
    return examples.globs


def run_block(block: Block, names: dict) -> dict:
    """Run a block of Python and return the names that it defines."""
    need_weights(block.code)
    if block.language == "pycon":
        return run_examples(block.code, block.page.name, block.line, names)
    # Empty lines in front, so that an error names the line of the page.
    exec(compile("\n" * (block.line - 1) + block.code, block.page.name, "exec"), names)
    return names


@pytest.mark.parametrize("chain", chains())
def test_python_in_the_docs_runs(chain, folder):
    names: dict = {"__name__": "docs"}
    for block in chain:
        names = run_block(block, names)


def test_languages_are_those_that_are_tested():
    """Code in another language would pass untested. JavaScript of the page is tested in a browser."""
    assert {block.language for block in BLOCKS} <= {"python", "pycon", "sh", "text", "js", "json"}


def test_json_in_the_docs_is_json():
    for block in BLOCKS:
        if block.language == "json":
            json.loads(block.code)


# Commands


def commands(text: str) -> list[str]:
    """Lines of a shell block without comments; continued lines are joined."""
    joined = text.replace("\\\n", " ")
    return [" ".join(bare.split()) for line in joined.splitlines() if (bare := re.sub(r"\s#.*", "", f" {line}")).strip()]


SHELL = [(block, line) for block in BLOCKS if block.language == "sh" for line in commands(block.code)]


def parsed(arguments: list[str]) -> None:
    """Parse a command as the command line would, without running it."""
    program = typer.main.get_command(cli.app)
    context = program.make_context("ropescope", list(arguments))
    name, command, rest = program.resolve_command(context, arguments)
    command.make_context(name, rest, parent=context)


@pytest.mark.parametrize(("block", "line"), SHELL, ids=lambda x: x if isinstance(x, str) else x.page.name)
@pytest.mark.slow
def test_commands_in_the_docs_are_understood(block, line):
    program, *arguments = shlex.split(line)
    if program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
        assert set(arguments) <= set(targets), line
    elif program == "ropescope":
        parsed(arguments)
    elif program == "python":
        place = f"{arguments[1].replace('.', '/')}.py" if arguments[0] == "-m" else arguments[0]
        assert (ROOT / place).is_file(), line
    else:
        assert (program, arguments[0]) in {("pip", "install"), ("inspect", "eval")}, line


def test_commands_that_do_not_exist_are_found():
    for line in ("profil weights/smollm2-135m", "profile", "profile model --count many", "demo --colour red"):
        with pytest.raises(Exception, match=r"No such|Missing|valid integer"):
            parsed(shlex.split(line))


QUICK = [
    "ropescope control letter --keep slowest25% --inputs 100 --draws 1 --out out/letter-slow",
    "ropescope train number --preset quick --set steps=6 --set warm_up=1 --set samples=[400,40,40] --set probe=40 "
    "--out out/tiny",
    "ropescope dynamics out/tiny --out out/tiny-dynamics",
    "ropescope report results/profile-stories15M results/number-0 --out out/page.html",
    "ropescope conformance llama gemma3_text --out out/conformance",
]
"""Commands in the docs that take seconds with what comes with the package: they are really run, in order."""


def typed(line: str, monkeypatch, capsys) -> None:
    """Run a command line; it must end with exit code 0."""
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 0, (line, capsys.readouterr().err)


@pytest.mark.slow
def test_quick_commands_in_the_docs_run(folder, monkeypatch, capsys):
    assert set(QUICK) <= {line for _, line in SHELL}, "the docs have other commands"
    for line in QUICK:
        typed(line, monkeypatch, capsys)
    assert {path.name for path in (folder / "out").glob("*.html")} == {"page.html"}
    for summary in (folder / "out").rglob("summary.json"):
        assert json.loads(summary.read_text())["versions"]["ropescope"]


SHORTER = {
    "ropescope train": " --set steps=6 --set warm_up=1 --set samples=[400,40,40] --set probe=40",
    "ropescope windows": " --tokens 200 --questions 3 --queries 4 --draws 1 --shares 0.5 --cache-tokens 200",
}
"""What is added to commands of the README so that they take seconds."""
NOT_RUN = ("make ", "pip install", "ropescope profile HuggingFaceTB", "ropescope dynamics EleutherAI", "ropescope reproduce")
"""Beginnings of commands of the README that need a network or take long: they are only parsed."""


@pytest.mark.slow
@pytest.mark.weights
def test_the_readme_can_be_typed_in_order(folder, monkeypatch, capsys):
    """In one folder, from the first block to the last: every line finds what the lines before it have left."""
    skipped = set()
    for block in blocks_of(README):
        if block.language == "python":
            run_block(block, {"__name__": "readme"})
        for line in commands(block.code) if block.language == "sh" else ():
            if line.startswith(NOT_RUN):
                skipped.add(next(start for start in NOT_RUN if line.startswith(start)))
                continue
            need_weights(line)
            typed(line + "".join(more for start, more in SHORTER.items() if line.startswith(start)), monkeypatch, capsys)
    assert skipped == set(NOT_RUN)
    assert len(list((folder / "out").glob("*.html"))) == 2


def test_the_readme_is_short():
    assert len(README.read_bytes()) < 10_000


# Links


def anchors(path: Path) -> set[str]:
    """Those of a page's headings, made as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        number = found.get(slug, 0)
        found[slug] = number + 1
        names.add(f"{slug}-{number}" if number else slug)
    return names


def links(path: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    text = re.sub(r"`[^`\n]*`(?!\])", "", text)
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "LOG.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda path: path.name
)
def test_links_lead_somewhere(page):
    for link in links(page):
        inside = link.startswith((FILES, PICTURES))
        if link.startswith(("https://", "http://")) and not inside:
            continue
        assert inside or page != README, f"{link} works in the repository only"
        path, _, anchor = link.removeprefix(FILES).removeprefix(PICTURES).partition("#")
        target = ((ROOT if inside else page.parent) / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_page_is_in_the_list():
    """Each page of docs/ is in docs/README.md, and the README links to that."""
    assert f"{FILES}docs/README.md" in links(README)
    listed = set(links(ROOT / "docs" / "README.md"))
    for page in PAGES[1:]:
        assert page.name in listed or page.name == "README.md", f"docs/README.md does not have {page.name}"


# The reference


def script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


reference = script("reference")
PUBLIC = reference.public()
DOCS = {each.name: each.doc.split(">>> ")[0] for each in PUBLIC}


@pytest.mark.parametrize("page", reference.PAGES)
@pytest.mark.slow
def test_the_reference_is_up_to_date(page):
    assert reference.PAGES[page]() == (ROOT / "docs" / page).read_text(encoding="utf-8"), "make reference"


def test_every_public_name_is_in_the_reference():
    names = {each.name for each in PUBLIC}
    assert names == set(ropescope.__all__) - {"__version__"}
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert all(f"\n### {name}\n" in text for name in names)


@pytest.mark.parametrize("each", PUBLIC, ids=lambda each: each.name)
def test_docstrings_say_what_is_needed(each):
    """An example with its output, the errors raised, and every argument by name, here or in a docstring that it names."""
    assert ">>> " in each.doc
    assert any(
        line.strip() and not line.lstrip().startswith((">>>", "...")) for line in each.doc.split(">>> ", 1)[1].splitlines()
    )
    if isinstance(each.node, ast.FunctionDef) or any(isinstance(part, ast.Raise) for part in ast.walk(each.node)):
        assert re.search(r"[Rr]aises|errors", each.doc)
    given = reference.fields(each.node) if isinstance(each.node, ast.ClassDef) else reference.arguments(each.node)
    before = DOCS[each.name] + "".join(DOCS.get(name, "") for name in re.findall(r"`(\w+)`", DOCS[each.name]))
    for name in (argument.split(":")[0].strip("*") for argument in given):
        assert name in ("", "ValueError") or re.search(rf"\b{name}\b", before), f"{name} is not explained"


def other_examples() -> list:
    """Docstrings with examples that are not in the reference."""
    found = []
    for path in sorted((ROOT / "ropescope").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ">>> " in (ast.get_docstring(node) or ""):
                name = getattr(node, "name", "")
                if name not in DOCS:
                    where = f"{path.relative_to(ROOT)} {name}".strip()
                    text = ast.get_docstring(node) or ""
                    found.append(pytest.param(text, where, id=where, marks=marks(text)))
    return found


@pytest.mark.parametrize(("text", "where"), other_examples())
def test_other_docstrings_run_too(text, where, folder):
    need_weights(text)
    run_examples(text, where, 1, {"__name__": "docs"})


# Pictures


@pytest.mark.slow
def test_pictures_can_be_made_again(tmp_path):
    """They have the size of those in the docs, and their numbers are those that the guide prints."""
    pictures = script("pictures")
    for name, chart in pictures.PICTURES.items():
        chart().save(tmp_path / name, scale_factor=1.3)
        sizes = [(folder / name).read_bytes()[16:24] for folder in (tmp_path, ROOT / "docs")]  # width and height of a PNG
        assert sizes[0] == sizes[1]
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for name, M in pictures.heads().items():
        assert f"\n{name:11} " + " ".join(f"{score:.2f}" for score in ropescope.swap_scores(M)) in guide
