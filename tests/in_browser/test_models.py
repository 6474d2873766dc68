"""The page of one model and the atlas in a browser: the table is sorted, filtered and downloaded, two models are compared."""

import csv

import pytest
from browser import opened, until
from pages import PROFILE, RESULTS

from ropescope.report.page import write_page

pytestmark = [pytest.mark.slow, pytest.mark.browser]
SMALL = ("profile-stories15M", "profile-minimind2-small", "profile-gemma3-270m")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of three small models."""
    path = write_page([RESULTS / name for name in SMALL], tmp_path_factory.mktemp("models") / "page.html")
    with opened(path, viewport={"width": 1280, "height": 900}, accept_downloads=True) as (seen, complaints):
        yield seen
        assert complaints == []


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A page of one model."""
    path = write_page([RESULTS / PROFILE], tmp_path_factory.mktemp("model") / "page.html")
    with opened(path, viewport={"width": 1280, "height": 900}, accept_downloads=True) as (seen, complaints):
        yield seen
        assert complaints == []


def texts(page, selector):
    return page.locator(selector).all_inner_texts()


def test_the_title_is_the_model(model):
    assert model.title().startswith("smollm2-135m")
    assert model.locator("h1").inner_text() == "smollm2-135m"


def test_the_table_of_heads_is_sorted_filtered_and_downloaded(model):
    model.locator(".ht").scroll_into_view_if_needed()
    until(model, "document.querySelectorAll('.ht tbody tr').length === 270")
    titles = texts(model, ".ht thead button")
    symbolic = titles.index("symbolic")
    model.locator(".ht thead button").nth(symbolic).click()
    column = [float(text) for text in texts(model, f".ht tbody tr > :nth-child({symbolic + 1})")]
    assert column == sorted(column, reverse=True)
    assert model.locator(".ht thead th").nth(symbolic).get_attribute("aria-sort") == "descending"
    model.locator(".ht thead button").nth(symbolic).click()
    column = [float(text) for text in texts(model, f".ht tbody tr > :nth-child({symbolic + 1})")]
    assert column == sorted(column)
    model.fill(".ht input", "L3")
    assert {text.split()[0] for text in texts(model, ".ht tbody th")} == {"L3"}
    model.select_option(".ht select", "positional")
    shown = model.locator(".ht tbody tr").count()
    assert 0 < shown < 9
    assert model.locator(".ht output").inner_text() == f"{shown} of 270 heads"
    with model.expect_download() as download:
        model.click(".ht [data-csv]")
    rows = list(csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines()))
    assert len(rows) == shown
    assert {row["kind"] for row in rows} == {"positional"}
    model.fill(".ht input", "")
    model.select_option(".ht select", "")


def test_a_head_of_the_table_or_of_an_example_is_chosen_everywhere(model):
    model.locator(".ht").scroll_into_view_if_needed()
    until(model, "document.querySelectorAll('.ht tbody tr').length === 270")
    model.get_by_role("button", name="L7 H3", exact=True).click()
    until(model, "document.querySelector('.picker output').textContent.startsWith('positional')")
    until(model, "document.querySelector('.ht tr[data-chosen] button').textContent === 'L7 H3'")
    first = model.locator(".ym-list details").first.locator("[data-choose]")
    name = first.get_attribute("data-choose")
    first.click()
    until(model, f"document.querySelector('.ht tr[data-chosen] button').textContent === {name!r}")


def test_the_atlas_is_sorted_and_compares_two(page):
    assert page.locator(".at-card").count() == 3
    page.select_option(".at select", "size")
    assert [float(card.get_attribute("data-size")) for card in page.locator(".at-card").all()] == sorted(
        float(card.get_attribute("data-size")) for card in page.locator(".at-card").all()
    )
    page.select_option(".at select", "symbolic")
    shares = [float(card.get_attribute("data-symbolic")) for card in page.locator(".at-card").all()]
    assert shares == sorted(shares, reverse=True)
    assert page.locator(".at-both").is_hidden()
    until(page, "document.querySelector('.at').dataset.ready === 'yes'")
    for number in (0, 1):
        page.locator(".at-choose").nth(number).click()
    assert page.locator(".at-both .at-plane").count() == 2
    assert texts(page, ".at-both thead th")[1:3] == texts(page, ".at-card h4")[:2]
    rows = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in page.locator(".at-both tbody tr").all()
    }
    first, second, by = (int(text.rstrip(" points%").replace("\N{MINUS SIGN}", "-")) for text in rows["mainly symbolic"])
    assert abs(second - first - by) <= 1  # each is rounded
    page.locator(".at-choose").nth(2).click()  # a third takes the place of the first
    assert page.locator(".at-card[data-chosen]").count() == 2
    page.locator(".at-choose").nth(2).click()
    assert page.locator(".at-both").is_hidden()
    page.locator(".at-card[data-chosen] .at-choose").click()  # the page is shared
    assert page.locator(".at-card[data-chosen]").count() == 0


def test_nothing_is_wider_than_a_phone(tmp_path):
    path = write_page([RESULTS / name for name in SMALL], tmp_path / "page.html")
    with opened(path, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True) as (seen, complaints):
        assert seen.evaluate("document.documentElement.scrollWidth") <= 390
        assert complaints == []
