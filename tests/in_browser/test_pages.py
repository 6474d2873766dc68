"""Pages of all kinds of runs in a real browser."""

from pathlib import Path

import pytest
from browser import opened
from pages import RESULTS, WIDER, draw_all
from playwright.sync_api import expect
from profiles import geometry_rows, make_profile, path_rows, trace_rows, write_profile

from ropescope.report import page as module
from ropescope.report import sections
from ropescope.report.page import write_page
from ropescope.report.scoreboard import scoreboard_html
from ropescope.studies.claims import Claim

pytestmark = pytest.mark.browser

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
        assert browser.locator(".run > .fold[open]").count() == 0
        browser.goto(f"{page.as_uri()}#canonical-places")
        browser.locator("#canonical-places .plot.drawn").wait_for()  # a link opens what it leads to
        expect(browser.locator("#canonical-places")).to_be_focused()
        draw_all(browser)
        assert {part.get_attribute("id") for part in browser.locator(".run").all()} == {*KINDS, "profile-tinyllama-1.1b"}
        for name in KINDS:
            assert browser.locator(f"#{name} figure").count() > 0
        assert browser.locator("#theory .claims tbody tr").count() > 0
        assert complaints == []


HOSTILE = (
    "<script>window.hacked = 1</script>\"'`&lt;\N{RIGHT-TO-LEFT OVERRIDE}\u05d0\N{GRINNING FACE}\u2028"
    "</script><img src=x onerror=hacked=1>"
)


def hostile_run(folder: Path, inputs=4, layers=4, heads=2):
    dataset = make_profile(inputs=inputs, layers=layers, heads=heads, planes=8)
    dataset.attrs |= {"model": HOSTILE, "prompts": HOSTILE + "x" * 10_000}
    rows = [row | {"head": HOSTILE} for row in geometry_rows()[:121]]
    details = {"traces": trace_rows(), "path": path_rows(), "geometry": rows + geometry_rows()[121:]}
    config = {
        "model": {"source": HOSTILE, "weights": {HOSTILE: HOSTILE}},
        "prompts": {"kind": "binding", "names": HOSTILE},
        "seed": 0,
    }
    write_profile(folder, dataset, details, config=config, results={"model": HOSTILE, "prompts": HOSTILE + "x" * 10_000})


def test_hostile_text_is_shown_and_never_run(tmp_path, monkeypatch):
    folder = tmp_path / "a\"><b onclick='x'>&\u05d0\N{GRINNING FACE}"
    hostile_run(folder)
    row = dict.fromkeys(("claim", "where", "statement", "paper_value", "note", "run", "chart", "section"), HOSTILE)
    claim = Claim(**row, ours=HOSTILE + "x" * 10_000, paper="A", verdict="partly")
    monkeypatch.setattr(sections, "judge", lambda *_: [claim])
    monkeypatch.setattr(module, "_scoreboard", lambda _: [claim])
    page = write_page([folder], tmp_path / "page.html", title=HOSTILE)
    with opened(page, viewport={"width": 360, "height": 740}) as (browser, complaints):
        draw_all(browser)
        browser.locator(".source summary").first.click()
        browser.locator(".claims summary").click()
        for figure in browser.locator(".run figure[data-chart]").all()[:3]:
            figure.locator("svg").evaluate("part => part.scrollIntoView({ block: 'center', behavior: 'instant' })")
            figure.locator("svg").hover(force=True)
        assert browser.evaluate("window.hacked") is None
        assert browser.locator("img, [onclick], [onerror]").count() == 0
        assert browser.title().split() == HOSTILE.split()
        assert browser.locator(".hero .standfirst").first.inner_text().startswith("<script>window.hacked = 1</script>\"'`&lt;")
        assert folder.name in browser.locator(".folder code").inner_text()
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
    rows = [Claim(**dict(zip(names, row, strict=True)), section="Real language models") for row in told]
    monkeypatch.setattr(module, "_scoreboard", lambda _: rows)
    page = write_page([RESULTS / "bench-profile"], tmp_path / "page.html")
    with opened(page) as (browser, complaints):
        lines = browser.locator("#scoreboard li:visible")
        assert lines.count() == 0  # rows open on demand
        browser.locator("#scoreboard .part > summary").click()
        expect(lines).to_have_count(3)
        browser.select_option("#scoreboard--paper", "A")
        expect(lines).to_have_count(2)
        browser.select_option("#scoreboard--verdict", "not")
        expect(lines).to_have_count(1)
        browser.locator("#scoreboard li:visible summary").click()
        assert "one model only" in lines.inner_text()
        browser.select_option("#scoreboard--verdict", "")
        browser.select_option("#scoreboard--paper", "")
        browser.fill("#scoreboard--search", "HEADS other")
        expect(lines).to_have_count(1)
        expect(browser.locator("#scoreboard output")).to_have_text("1 of 3 claims")
        browser.fill("#scoreboard--search", "no such claim")
        expect(browser.locator("#scoreboard .part:visible")).to_have_count(0)
        browser.fill("#scoreboard--search", "one or other")
        browser.locator("#scoreboard li:visible summary").click()
        lines.locator("a").click()
        browser.locator("#bench-profile-cost .plot.drawn").wait_for()
        assert browser.evaluate("location.hash") == "#bench-profile-cost"
        assert complaints == []
    html = scoreboard_html(rows, lambda *_: "")
    assert "3 claims" in html
    assert "flex-grow: 1" in html
