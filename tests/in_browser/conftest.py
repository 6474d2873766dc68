"""One browser for all tests of this folder, and the pages that many of them look at."""

import playing
import pytest
from browser import opened, running
from pages import PROFILE, RESULTS, TRAINING, draw_all

from ropescope.report.page import write_page


@pytest.fixture(scope="package", autouse=True)
def browser():
    with running():
        yield


@pytest.fixture(scope="package")
def both(tmp_path_factory):
    """A page of a profile and a training run."""
    return write_page([RESULTS / PROFILE, RESULTS / TRAINING], tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture(scope="package")
def shown(both):
    """The same in a browser, with every chart drawn."""
    with opened(both, viewport={"width": 1280, "height": 900}, accept_downloads=True) as (page, complaints):
        draw_all(page)
        yield page, complaints


@pytest.fixture(scope="package")
def smollm():
    return playing.smollm()


@pytest.fixture(scope="package")
def number():
    return playing.number()
