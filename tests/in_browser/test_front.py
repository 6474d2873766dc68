"""The front page in a real browser: what is seen first, what moves, what leads where, and who can use it."""

import random
from pathlib import Path

import pytest
import torch
from browser import opened, until
from pages import REST, RESULTS, WIDER, draw_all
from playing import middle_of
from playwright.sync_api import expect

from ropescope.logits import layer_factors
from ropescope.report.duet import clearest
from ropescope.report.page import write_page
from ropescope.runs import read_run
from ropescope.studies.playground import stored_heads

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
RUNS = ("profile-smollm2-135m", "profile-stories15M", "number-0", "letter-0", "canonical", "theory", "generalise-number",
        "generalise-letter", "bench-profile")  # fmt: skip
SIZES = {"laptop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}
DUET = "document.querySelector('.duet').duet"


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    return write_page([RESULTS / name for name in RUNS], tmp_path_factory.mktemp("front") / "page.html")


@pytest.fixture(scope="module")
def pair():
    """`M` of the two heads of the live picture, and the sentences, by Python."""
    subject = read_run(RESULTS / RUNS[0]).read("playground.json")["subjects"][0]
    heads = dict(enumerate(each for _, each in stored_heads(subject)))
    found = clearest(subject, {})
    return subject["blocks"], [
        layer_factors(heads[n]).matrix()[0][head] for n, head, _ in (found["positional"], found["symbolic"])
    ]


def on_sentences(pair, row):
    """The weight of each place for a sentence, when place k holds sentence row[k]."""
    blocks, matrices = pair
    order = [*range(blocks[0][0]), *(p for k in row for p in range(*blocks[k])), *range(blocks[-1][1], len(matrices[0]))]
    weights = [M[order, range(len(order))].softmax(0) for M in matrices]
    return [[float(each[start:stop].sum()) for start, stop in blocks] for each in weights]  # all are of equal length


@pytest.mark.parametrize("size", SIZES)
def test_the_first_screen_tells_what_it_is_about(front, size):
    with opened(front, viewport=SIZES[size], reduced_motion="reduce") as (page, complaints):
        until(page, DUET)
        for part in ("h1", ".duet .standfirst", ".duet .field", ".duet .told"):
            box = page.locator(part).bounding_box()
            assert box["y"] + box["height"] <= SIZES[size]["height"], part
            assert box["x"] + box["width"] <= SIZES[size]["width"], part
        assert not page.evaluate(WIDER)
        assert "place, or at a thing" in page.title()
        assert complaints == []


def check(page, pair, row):
    state = page.evaluate(f"{DUET}.state()")
    assert state["row"] == row
    expected = on_sentences(pair, row)
    torch.testing.assert_close(torch.tensor(state["now"]), torch.tensor(expected), atol=1e-9, rtol=0)
    for side, weights in zip(("left", "right"), expected, strict=True):
        assert page.locator(f".duet .bar.{side} output").all_inner_texts() == [
            f"{round(100 * x)}\N{NO-BREAK SPACE}%" for x in weights
        ]


def test_a_sentence_can_be_dragged_and_both_heads_show_their_attention(front, pair):
    with opened(front, viewport=SIZES["laptop"]) as (page, complaints):
        until(page, f"{DUET}.state().showing")  # the demonstration begins by itself
        page.locator(".duet .chip").nth(0).hover()
        page.mouse.down()  # and ends when somebody touches it
        page.mouse.up()
        page.get_by_role("button", name="Back to the start").click()
        assert not page.evaluate(f"{DUET}.state().showing")
        check(page, pair, [0, 1, 2, 3, 4, 5])
        chip = page.locator(".duet .chip[data-unit='3']")
        start, stop = middle_of(chip), middle_of(page.locator(".duet .chip[data-unit='0']"))
        page.mouse.move(*start)
        page.mouse.down()
        page.mouse.move(start[0], (start[1] + stop[1]) / 2, steps=4)
        page.mouse.move(*stop, steps=4)
        page.mouse.up()
        check(page, pair, [3, 0, 1, 2, 4, 5])
        told = page.locator(".duet .told").inner_text()
        assert "still looks at place 6" in told
        assert "has followed “Kelly likes yellow.”" in told
        chip.press("End")
        check(page, pair, [0, 1, 2, 4, 5, 3])
        chip.press("ArrowUp")
        check(page, pair, [0, 1, 2, 4, 3, 5])
        expect(chip).to_be_focused()
        assert "Place 5 of 6" in chip.get_attribute("aria-label")
        page.get_by_role("button", name="Back to the start").click()
        page.wait_for_timeout(350)
        chip.click()  # without a drag it goes to the top
        check(page, pair, [3, 0, 1, 2, 4, 5])
        assert complaints == []


def test_a_finger_drags_by_the_grip_and_nothing_moves_by_itself_where_motion_is_unwanted(front):
    with opened(front, viewport=SIZES["phone"], has_touch=True, reduced_motion="reduce") as (page, complaints):
        until(page, DUET)
        page.wait_for_timeout(2000)
        assert page.evaluate(f"{DUET}.state().row") == [0, 1, 2, 3, 4, 5]
        page.locator(".duet .chip[data-unit='5']").tap()
        assert page.evaluate(f"{DUET}.state().row") == [5, 0, 1, 2, 3, 4]
        assert page.evaluate("getComputedStyle(document.querySelector('.duet .grip')).touchAction") == "none"
        assert page.evaluate("getComputedStyle(document.querySelector('.duet .chip')).touchAction") == "auto"
        assert complaints == []


def test_findings_have_charts_and_lead_to_where_they_are_shown(front):
    with opened(front, viewport=SIZES["laptop"], reduced_motion="reduce") as (page, complaints):
        findings = page.locator(".finding")
        assert findings.count() == 7
        for one in findings.all():
            one.scroll_into_view_if_needed()
            one.locator(".plot.drawn svg").wait_for()
        for one in findings.all():
            link = one.locator("a")
            target = link.get_attribute("href")
            link.click()
            expect(page.locator(target)).to_be_visible()
            if target != "#scoreboard":
                page.locator(f"{target} .plot.drawn svg").wait_for()
        for link in page.locator(".top nav a").all():
            link.click()
            expect(page.locator(link.get_attribute("href"))).to_be_in_viewport()
        assert complaints == []


def test_words_are_explained_on_hover_and_focus(front):
    with opened(front, viewport=SIZES["laptop"], reduced_motion="reduce") as (page, complaints):
        word = page.locator(".finding .term").first
        word.hover()
        expect(page.get_by_role("tooltip")).to_contain_text("head")
        page.keyboard.press("Escape")
        expect(page.get_by_role("tooltip")).to_have_count(0)
        word.focus()
        expect(word).to_have_attribute("aria-describedby", "term")
        box = page.get_by_role("tooltip").bounding_box()
        assert 0 <= box["x"] <= 1280 - box["width"]
        word.blur()
        expect(page.get_by_role("tooltip")).to_have_count(0)
        assert complaints == []


def test_charts_take_the_width_there_is(front):
    with opened(front, viewport=SIZES["laptop"], reduced_motion="reduce") as (page, complaints):
        figure = page.locator("#q-frequencies > figure")
        figure.scroll_into_view_if_needed()
        figure.locator(".plot.drawn svg").wait_for()
        widths = "one => [one.querySelector('svg').getBoundingClientRect().width, one.querySelector('.plot').clientWidth]"
        svg, box = figure.evaluate(widths)
        assert svg == pytest.approx(box, abs=4)
        page.set_viewport_size({"width": 900, "height": 800})
        for _ in range(200):
            svg, now = figure.evaluate(widths)
            if now < box and abs(svg - now) < 4:
                break
            page.wait_for_timeout(25)
        assert (now < box, svg) == (True, pytest.approx(now, abs=4))
        assert complaints == []


FAULTS = """async () => {
  const found = await axe.run({ exclude: [".plot svg"] }, { resultTypes: ["violations"] });
  return found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map((node) => node.html.slice(0, 120))]);
}"""


def faults(path, **context):
    """What axe-core finds to be serious on a page of which everything is open."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci")
    with opened(path, reduced_motion="reduce", **context) as (page, complaints):
        page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        page.evaluate("Promise.all([...document.querySelectorAll('.playground')].map((one) => one.play()))")
        page.locator(".plot.drawn").first.wait_for()
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate(FAULTS)
        assert complaints == []
        return found


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_keeps_anyone_out(front, scheme):
    assert faults(front, viewport=SIZES["laptop" if scheme == "light" else "phone"], color_scheme=scheme) == []


@pytest.mark.slow
def test_nothing_serious_keeps_anyone_out_of_the_page_of_one_model(tmp_path):
    page = write_page([RESULTS / "profile-stories15M"], tmp_path / "page.html")
    assert faults(page, viewport=SIZES["laptop"]) == []


# Everything that can be pressed or dragged and is visible.
ALL = """() => {
  const all = "a[href^='#'], button, input, select, summary, canvas, .chip, .token, .plot svg";
  window.found = [...document.querySelectorAll(all)].filter((one) => one.checkVisibility() && !one.matches("[data-get]"));
  return found.length;
}"""
REACH = """(n) => {
  const one = window.found[n];
  if (!one.isConnected || !one.checkVisibility()) return null;
  one.scrollIntoView({ block: "center", behavior: "instant" });
  const box = one.getBoundingClientRect();
  return [box.x + box.width * 0.4, box.y + box.height / 2];
}"""


@pytest.mark.slow
def test_whatever_is_pressed_dragged_and_played_nothing_fails(front):
    """By a fixed seed: clicks, drags, keys and changes of size all over the page."""
    draw = random.Random(18)
    with opened(front, viewport=SIZES["laptop"]) as (page, complaints):
        draw_all(page)
        for turn in range(70):
            if turn % 18 == 0:
                page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
                page.set_viewport_size(SIZES[draw.choice(list(SIZES))])
                total = page.evaluate(ALL)
            at = page.evaluate(REACH, draw.randrange(total))
            if at is None:
                continue
            page.mouse.move(*at)
            act = draw.randrange(4)
            if act == 0:
                page.mouse.down()
                page.mouse.move(at[0] + draw.randrange(-200, 200), at[1] + draw.randrange(-150, 150), steps=3)
                page.mouse.up()
            else:
                page.mouse.click(*at)
                if act == 1:
                    page.keyboard.press(
                        draw.choice(["ArrowUp", "ArrowDown", "ArrowRight", "Home", "End", "Escape", "Tab", "a"])
                    )
        page.evaluate(REST)
        assert complaints == []


@pytest.mark.slow
def test_it_prints(front):
    with opened(front, viewport=SIZES["laptop"], reduced_motion="reduce") as (page, complaints):
        for figure in page.locator("figure.small, .question > figure").all():
            figure.scroll_into_view_if_needed()
            figure.locator(".plot.drawn svg").wait_for()
        page.emulate_media(media="print")
        for part in (".top", ".tools", ".filter"):
            assert not page.locator(part).first.is_visible()
        printed = page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        assert 4 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type/Page/") + printed.count(b"/Type /Page ") <= 40
        assert complaints == []
