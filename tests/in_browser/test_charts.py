"""Charts of the page in a real browser, opened from a file with the network off."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from browser import opened, until
from pages import MARKS, PROFILE, RESULTS, TRAINING, WIDER, draw_all, pick, shows_head, steady_place
from playwright.sync_api import expect
from safetensors.numpy import load_file

from ropescope import runs

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def summary():
    return json.loads((RESULTS / PROFILE / "summary.json").read_text())


def downloaded(page, figure, kind):
    with page.expect_download() as found:
        page.click(f"#{figure} [data-get={kind}]")
    assert found.value.suggested_filename == f"{figure}.{kind}"
    return Path(found.value.path()).read_bytes()


def test_every_chart_is_drawn_without_network_or_complaint(shown, both):
    page, complaints = shown
    assert complaints == []
    assert page.locator(".run figure[data-chart]").count() >= 18
    assert page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    assert len(page.evaluate("performance.getEntriesByName('ropescope:first-chart')")) == 1
    assert both.stat().st_size < 3.5e6
    for figure in page.locator(".run figure[data-chart]").all():
        assert figure.locator("svg .mark-symbol path, svg .mark-rect path, svg .mark-line path").count() > 2
        assert figure.locator(".reading").inner_text().endswith(".")


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
    assert page.locator(f"#{PROFILE}-head .name").inner_text().startswith("L3 H2")
    page.locator(f"#{PROFILE} [data-step='1']").press("Enter")
    shows_head(page, PROFILE, "L3 H3")


def test_a_click_on_a_head_chooses_it(shown):
    page, _ = shown
    for figure in (f"{PROFILE}-heads", f"{PROFILE}-heat-maps"):
        pick(page, PROFILE, 0, 0)
        page.mouse.click(*steady_place(page, figure, "L6 H5"))
        shows_head(page, PROFILE, "L6 H5")
        assert page.input_value(f"#{PROFILE}--layer") == "6"


def test_other_parts_of_a_page_can_choose_a_head_too(shown):
    page, _ = shown
    page.evaluate(
        f"""() => {{
          document.addEventListener("ropescope:head", ({{ detail }}) => (window.heard = detail));
          document.dispatchEvent(new CustomEvent("ropescope:head", {{ detail: {{ run: "{TRAINING}", layer: 7, head: 0 }} }}));
        }}"""
    )
    shows_head(page, TRAINING, "L7 H0")
    pick(page, TRAINING, 5, 0)
    assert page.evaluate("window.heard") == {"run": TRAINING, "layer": 5, "head": 0}
    lines = [datum for kind, datum, *_ in page.evaluate(MARKS, f"{TRAINING}-head") if kind == "line"]
    history = load_file(RESULTS / TRAINING / "history.safetensors")
    drawn = [row["value"] for row in lines if row["measure"] == "symbolic" and row["name"] == "L5 H0"]
    np.testing.assert_allclose(drawn, history["symbolic"][:, 5, 0], atol=6e-5)


def test_queries_and_keys_are_shown_where_they_were_recorded(shown):
    page, _ = shown
    marks = [datum for kind, datum, *_ in page.evaluate(MARKS, f"{PROFILE}-geometry") if kind == "symbol"]
    assert [datum.get("what") for datum in marks].count("key") == 3 * 96  # 96 keys of each head


# Where a film is after some more frames.
AFTER_FRAMES = """async ([id, frames]) => {
  for (let n = 0; n < frames; n++) await new Promise((done) => requestAnimationFrame(done));
  return document.getElementById(id).view.signal("at");
}"""


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
        until(page, f"document.getElementById('{TRAINING}-film').view.signal('at') === {at}")
        expect(said).to_have_text(f"step {history['step'][at]:,}")
        heads = heads_of_film(page)
        assert len(heads) == 12
        for layer in range(12):
            expected = [history[score][at, layer, 0] for score in ("positional", "symbolic")]
            assert heads[f"L{layer} H0"] == pytest.approx(expected, abs=6e-5)
        marks = page.evaluate(MARKS, f"{TRAINING}-accuracy")
        cursor = {datum["hops"]: datum["value"] for kind, datum, *_ in marks if kind == "symbol" and "hops" in datum}
        assert list(cursor.values()) == pytest.approx(list(history["accuracy"][at]), abs=6e-5)
    play = page.locator(f"#{TRAINING} .play")
    play.press("Enter")  # from the start again
    until(page, f"document.getElementById('{TRAINING}-film').view.signal('at') > 2")
    play.press("Enter")
    expect(play).to_have_attribute("aria-pressed", "false")
    stopped = page.evaluate(AFTER_FRAMES, [f"{TRAINING}-film", 2])
    assert page.evaluate(AFTER_FRAMES, [f"{TRAINING}-film", 20]) == stopped
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
    page.keyboard.press("Enter")  # the page is shared
    source.locator("dl").wait_for(state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(both, scheme):
    with opened(both, viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True) as (page, complaints):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator(".plot").first.evaluate("part => part.scrollIntoView({ behavior: 'instant' })")
        page.locator(".plot.drawn").first.wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert not page.evaluate(WIDER)
        draw_all(page)
        assert not page.evaluate(WIDER)
        page.click("#theme")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark" if scheme == "light" else "light")
        draw_all(page)
        assert complaints == []


def test_a_film_without_motion(both):
    with opened(both, reduced_motion="reduce", viewport={"width": 1000, "height": 700}) as (page, _):
        page.locator(f"#{TRAINING}-film").evaluate("part => part.scrollIntoView({ behavior: 'instant' })")
        page.locator(f"#{TRAINING}-film .plot.drawn").wait_for()
        page.click(f"#{TRAINING} .play")
        until(page, f"document.getElementById('{TRAINING}-film').view.signal('at') === 0")
        at = f"document.getElementById('{TRAINING}-film').view.signal('at')"
        until(page, f"{at} > 0")
        seen = [page.evaluate(at) for _ in range(20)]
        assert all(value == int(value) for value in seen)
        assert seen[0] >= int(page.get_attribute(f"#{TRAINING}--at", "max")) // 20
