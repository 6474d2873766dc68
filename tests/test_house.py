"""The house itself: which room imports which, how long files and functions may be, what every study must bring."""

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from ropescope.studies import FOLDERS, studies
from ropescope.studies.runner import make_settings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ropescope"
SOURCES = sorted(
    path for folder in ("ropescope", "tests", "tools", "docs", "examples") for path in (ROOT / folder).rglob("*.py")
)
INTERFACE = {"ropescope.studies", *(f"ropescope.studies.{name}" for name in ("study", "claims", "result", "runner"))}
KNOWS_OTHERS = {"reproduce": set(FOLDERS), "bench": {"profile", "canonical", "training"}, "check_rope": {"conformance"}}
"""Studies that are about other studies, and which."""
HISTORIES = {f"ropescope.studies.histories.{path.stem}" for path in (PACKAGE / "studies" / "histories").glob("*.py")}
HELPERS = {f"ropescope.studies.{name}" for name in ("head_scores", "playground", "task_models")} | HISTORIES
"""What several studies share."""


def test_rooms_import_downwards():
    """The contracts in pyproject.toml hold."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    found = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-3000:]


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("ropescope", cache_dir=None)


def owner(module: str) -> str | None:
    """The study that a module belongs to."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["ropescope", "studies"] and len(parts) > 2 and parts[2] in FOLDERS else None


def test_the_report_knows_the_interface_and_never_a_study(graph):
    for module in graph.modules:
        if module.startswith("ropescope.report"):
            for imported in graph.find_modules_directly_imported_by(module):
                assert owner(imported) is None, f"{module} imports {imported}"


def test_studies_do_not_import_each_other(graph):
    for module in graph.modules:
        own = owner(module)
        for imported in graph.find_modules_directly_imported_by(module) if own else ():
            other = owner(imported)
            allowed = other is None or other == own or other in KNOWS_OTHERS.get(own, ())
            assert allowed, f"{module} imports {imported}"


def test_the_interface_of_studies_knows_no_study(graph):
    for module in INTERFACE | HELPERS:
        for imported in graph.find_modules_directly_imported_by(module) if module in graph.modules else ():
            assert owner(imported) is None, f"{module} imports {imported}"


def test_files_and_functions_are_short():
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= (400 if path.name == "cli.py" else 450), path
        for node in ast.walk(ast.parse(text)) if path.is_relative_to(PACKAGE) else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name} at line {node.lineno}"


def test_only_the_command_line_names_flags():
    for path in PACKAGE.rglob("*.py"):
        if path.name in ("cli.py", "__main__.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise):
                strings = [
                    part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
                flags = [text for text in strings if " --" in f" {text}" and not text.strip().startswith("-----")]
                assert not flags, f"{path.relative_to(ROOT)}:{node.lineno} names a flag: {flags[0]}"


def test_help_does_not_wait_for_torch():
    heavy = ("torch", "altair", "xarray", "transformers")
    code = f"import sys, ropescope.cli; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", studies())
def test_every_study_brings_what_its_interface_promises(name):
    """What `later` refers to exists, a study that runs has settings with help, and its dataset is labelled."""
    study = studies()[name]
    for call in (study.headline, study.figures, study.tables, study.run, study.dataset, study.heads, study.out):
        if call is not None and call.__name__.startswith("ropescope.studies."):
            module, _, function = call.__name__.rpartition(":")
            __import__(module)
            assert callable(getattr(sys.modules[module], function)), call.__name__
    if study.settings is not None:
        assert study.run is not None
        assert study.dataset is not None
        assert study.help.endswith(".")
        assert study.examples
        for entry in study.settings.__dataclass_fields__.values():
            assert entry.metadata["help"][0].isupper() or entry.metadata["help"].split()[0].islower()
        with pytest.raises(ValueError, match="has no setting"):
            make_settings(study, {"nonsense": 1})


@pytest.mark.slow
def test_text_is_utf_8_whatever_the_system_prefers():
    """Windows reads and writes another encoding, and other ends of lines, where none is named. Tests run in UTF-8."""
    for path in SOURCES:
        for node in () if path.is_relative_to(ROOT / "tests") else ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
                continue
            name, named = ast.unparse(node.func).rpartition(".")[2], {word.arg for word in node.keywords}
            strings = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            is_text = isinstance(node.func, ast.Attribute) and name in ("read_text", "write_text")
            is_text |= isinstance(node.func, ast.Attribute) and name == "open" and not node.args
            is_text |= name == "open" and bool(strings) and not any("b" in mode or ":" in mode for mode in strings)
            is_text |= "text" in named and ast.unparse(node.func).startswith("subprocess.")
            where = f"{path}, line {node.lineno}: {ast.unparse(node)}"
            assert not is_text or "encoding" in named, where
            assert name != "write_text" or "newline" in named, where


def test_nothing_walks_stack_frames():
    for path in PACKAGE.rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Attribute)}
        walked = names & {"f_back", "_getframe", "currentframe", "tb_frame", "extract_stack", "walk_stack"}
        assert not walked, f"{path.relative_to(ROOT)}: {walked}"
