import os
import re
import sys
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
from beartype import BeartypeConf, beartype

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tools")]
os.environ["ROPESCOPE_TRACEBACK"] = "1"  # a mistake of ours is shown with its place
hypothesis.settings.register_profile("default", deadline=None, max_examples=60, print_blob=True)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20, print_blob=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=100, print_blob=True)
hypothesis.settings.load_profile("default")

shape_checker = beartype(conf=BeartypeConf(is_pep484_tower=True))


def pytest_addoption(parser):
    parser.addoption("--shape-checks", action="store_true", help="check shapes and types of every call")


def pytest_configure(config):
    if config.getoption("--shape-checks"):
        jaxtyping.install_import_hook("ropescope", "conftest.shape_checker")


def pytest_ignore_collect(collection_path, config):
    """Leave out files whose every test the marker expression leaves out, as importing them all takes many seconds."""
    if collection_path.suffix == ".py" and (left_out := re.findall(r"not (\w+)", config.option.markexpr)):
        marked = re.search(r"^pytestmark = .*", collection_path.read_text(encoding="utf-8"), re.M)
        if marked and any(f"pytest.mark.{name}" in marked[0] for name in left_out):
            return True
    return None


LONG = ("test_engine", "test_docs_code", "test_training", "test_hostile", "test_reproduce", "test_front", "test_steady")
"""Files that take longest, the longest first."""


def pytest_collection_modifyitems(items):
    """Start long files first: with one file to a worker, the last to begin would be waited for."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@pytest.fixture(scope="session")
def runs():
    """All recorded runs."""
    from doctored import RESULTS  # noqa: PLC0415

    from ropescope.runs import find_runs  # noqa: PLC0415

    return find_runs([RESULTS])


@pytest.fixture(scope="session")
def rows(runs):
    """Every claim, judged by the recorded runs."""
    from ropescope.studies.claims import judge  # noqa: PLC0415

    return judge(runs)
