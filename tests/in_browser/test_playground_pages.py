"""The playground in a real browser: with other parts of a page, on a phone, and with hostile text."""

import numpy as np
import pytest
import torch
from browser import opened, until
from playing import Played, choose, drag, middle, move, odd_heads, playing, press, state, token

import ropescope as rs
from ropescope.heads import Heads
from ropescope.report.playground import page
from ropescope.tasks.prompts import Prompt

pytestmark = pytest.mark.browser


HOSTILE = [
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "</script><script>window.hacked = 1</script>",
    "<!--<script>",
    "'; window.hacked = 1; //",
    "${window.hacked = 1}",
    "\u202eright to left\u202c",
    "שלום עולם",
    "🦜👩‍👩‍👧‍👦",
    "\u2028\u2029",
    "",
    "\n\t ",
    "x" * 10_000,
    "&lt;b&gt;",
    "the query",
]


@pytest.mark.weights
def test_heads_chosen_elsewhere_and_here(smollm, number, tmp_path):
    with playing(tmp_path, smollm, number, viewport={"width": 1200, "height": 1000}) as tab:
        tab.evaluate("window.told = []; document.addEventListener('ropescope:head', event => told.push(event.detail))")
        say = "detail => document.dispatchEvent(new CustomEvent('ropescope:head', { detail }))"
        tab.evaluate(say, {"run": "number", "layer": 7, "head": 0})
        assert (state(tab, 1)["layer"], state(tab, 0)["layer"]) == (7, smollm.data["subjects"][0]["examples"]["positional"][0])
        tab.evaluate(say, {"run": "smollm2", "layer": 3, "head": 8})
        assert (state(tab)["layer"], state(tab)["head"], state(tab, 1)["layer"]) == (3, 8, 7)
        assert len(tab.evaluate("told")) == 2  # what was heard is not told again
        for strange in ({"run": "smollm2", "layer": 99, "head": 0}, {"run": "smollm2", "layer": "<b>", "head": 1}, None):
            tab.evaluate(say, strange)
            assert (state(tab)["layer"], state(tab)["head"]) == (3, 8)
        choose(tab, 4, 2)
        assert tab.evaluate("told").pop() == {"run": "smollm2", "subject": "smollm2", "layer": 4, "head": 2}
        assert state(tab, 1)["layer"] == 7
        choose(tab, 2, 0, nth=1)
        number.check(state(tab, 1))
        smollm.check(state(tab))


def test_hostile_text_is_shown_and_never_executed(tmp_path):
    odd = odd_heads()
    bad = HOSTILE[0]
    subject = odd.data["subjects"][0] | {"tokens": HOSTILE, "name": bad, "about": {"model": HOSTILE[1], "prompts": HOSTILE[12]}}
    path = tmp_path / "hostile.html"
    path.write_text(page({HOSTILE[2]: {"subjects": [subject, subject]}}, title=bad), encoding="utf-8")
    with opened(path, viewport={"width": 800, "height": 900}) as (tab, complaints):
        move(tab, "any token")
        for place in range(len(HOSTILE)):
            token(tab, place).hover(force=True)
        drag(tab, 12, 3)
        assert state(tab)["order"][3] == 12
        odd.check(state(tab))
        press(tab, "Undo")
        shown = tab.locator(".place .text").all_text_contents()
        for place in (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14):
            assert shown[place] == HOSTILE[place]
        assert shown[10:12] == ["∅", "⏎⇥·"]
        box = token(tab, 12).bounding_box()
        assert box["width"] < 200
        assert box["height"] < 60
        assert tab.evaluate("document.documentElement.scrollWidth") <= 800
        tab.evaluate(
            "detail => document.dispatchEvent(new CustomEvent('ropescope:head', { detail }))",
            {"run": HOSTILE[2], "layer": HOSTILE[1], "head": HOSTILE[1]},
        )
        tab.get_by_label("Any order").fill(HOSTILE[1])
        press(tab, "Set")
        assert tab.evaluate("window.hacked") is None
        assert tab.locator("script").count() == 3  # the data, their arrays and the code
        assert tab.locator("img").count() == 0
        assert complaints == []


@pytest.mark.weights
def test_a_phone_and_a_finger(smollm, tmp_path):
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
    with playing(tmp_path, smollm, **phone) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        starts = [start for start, _ in smollm.prompt.blocks]
        token(tab, starts[1]).scroll_into_view_if_needed()
        finger = tab.context.new_cdp_session(tab)

        def touch(kind: str, *points: tuple[float, float]) -> None:
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in points]})

        (x, y), (to_x, to_y) = middle(tab, starts[1]), middle(tab, starts[3])
        touch("touchStart", (x, y))
        tab.locator(".ghost").wait_for(state="attached")  # held, not swiped
        for step in range(1, 6):
            touch("touchMove", (x + (to_x - x) * step / 5, y + (to_y - y) * step / 5))
        touch("touchEnd")
        until(tab, "!document.querySelector('.playground').playground.moving.drag")
        assert state(tab)["row"] == [0, 2, 3, 1, 4, 5]
        smollm.check(state(tab))
        token(tab, starts[0]).tap()
        token(tab, starts[5]).tap()
        assert state(tab)["row"] == [5, 2, 3, 1, 4, 0]
        tab.evaluate("document.querySelector('.playground').playground.moving.hold = 1e9")  # however slow, this is a swipe
        top = tab.evaluate("scrollY")
        touch("touchStart", middle(tab, starts[2]))
        for step in range(1, 8):
            touch("touchMove", (x, y - 30 * step))
        touch("touchEnd")
        until(tab, f"scrollY !== {top}")  # a swipe scrolls
        assert state(tab)["row"] == [5, 2, 3, 1, 4, 0]


def test_light_and_dark(number, tmp_path):
    paper = "getComputedStyle(document.querySelector('.playground')).backgroundColor"
    with playing(tmp_path, number, color_scheme="dark") as tab:
        state(tab)  # it has started
        dark = tab.evaluate(paper)
        tab.evaluate("document.documentElement.dataset.theme = 'light'")
        light = tab.evaluate(paper)
        assert dark != light
        tab.emulate_media(color_scheme="light")
        tab.evaluate("delete document.documentElement.dataset.theme")
        assert tab.evaluate(paper) == light
        tab.evaluate("document.documentElement.dataset.theme = 'dark'")
        assert tab.evaluate(paper) == dark


@pytest.mark.weights
def test_a_drag_is_smooth(smollm, tmp_path):
    """How long the page's thread works for each frame while it drags, in its own time, which a busy machine does not change."""
    with playing(tmp_path, smollm, viewport={"width": 1200, "height": 1000}) as tab:
        until(tab, "document.querySelector('.playground').playground?.maps.done")
        points = [middle(tab, start + 1) for start, _ in smollm.prompt.blocks]
        tab.mouse.move(*points[0])
        tab.mouse.down()
        tab.mouse.move(*points[1], steps=3)
        meter = tab.context.new_cdp_session(tab)
        meter.send("Performance.enable", {"timeDomain": "threadTicks"})

        def worked() -> float:
            metrics = meter.send("Performance.getMetrics")["metrics"]
            return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

        tab.evaluate(
            "window.frames_ = 0; window.going = true;"
            "(function next() { frames_ += 1; if (going) requestAnimationFrame(next); })()"
        )
        before = worked()
        for point in [*points[2:], *points[:0:-1], *points]:
            tab.mouse.move(*point, steps=3)
        seconds, frames = worked() - before, tab.evaluate("going = false, frames_")
        tab.mouse.up()
        print(f"{frames} frames, {1000 * seconds / frames:.1f} ms of work each")
        assert frames > 10
        assert seconds / frames < 0.05


def windowed() -> Played:
    """Two layers, the second with a window that all sentences are in, but not all tokens."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for layer, window in ((0, None), (1, 10)):
        queries, keys = (torch.randn(1, 2, many, 8, generator=generator, dtype=torch.float64) for many in (1, 15))
        made.append((layer, Heads(queries, keys, rs.Rope(8), scale=0.5, window=window)))
    return Played(made, Prompt(np.arange(15), ((8, 10), (10, 12), (12, 14)), tuple(f"t{n}" for n in range(15))), "windowed")


def test_orders_of_another_window_are_forgotten(tmp_path):
    with playing(tmp_path, windowed()) as tab:
        choose(tab, 0, 0)
        press(tab, "Reverse")
        move(tab, "any token")
        press(tab, "Reverse")
        press(tab, "Undo")
        press(tab, "Undo")
        assert (state(tab)["mode"], state(tab)["row"]) == ("blocks", [2, 1, 0])
        choose(tab, 1, 0)  # the same sentences can move, but fewer tokens
        assert state(tab)["row"] == [2, 1, 0]
        assert tab.get_by_role("button", name="Redo").is_disabled()
        windowed().check(state(tab))
        tab.keyboard.press("Control+y")
        windowed().check(state(tab))


def test_a_drag_ends_with_what_it_began_in(tmp_path):
    """The page changes under a drag, or the button is released where the page cannot see it."""
    with playing(tmp_path, windowed(), viewport={"width": 1000, "height": 1000}) as tab:
        choose(tab, 0, 0)
        move(tab, "any token")
        for change in ("travel(-1)", "takeMode('blocks')", "show(1, 0)", "takeSubject(0)"):
            tab.evaluate("document.querySelector('.playground').playground.takeSubject(0)")
            move(tab, "any token")
            choose(tab, 0, 1)
            (x, y), (to_x, to_y) = middle(tab, 1), middle(tab, 6)
            tab.mouse.move(x, y)
            tab.mouse.down()
            tab.mouse.move(to_x, to_y, steps=3)
            tab.locator(".ghost").wait_for(state="attached")
            tab.evaluate(f"document.querySelector('.playground').playground.{change}")
            assert tab.locator(".ghost").count() == 0
            tab.mouse.up()
            now = state(tab)
            assert now["row"] == sorted(now["row"])
            windowed().check(now)
        move(tab, "any token")
        token(tab, 3).dispatch_event("pointerdown", {"isPrimary": True, "button": 0, "pointerId": 1, "bubbles": True})
        tab.mouse.move(*middle(tab, 9), steps=3)  # no button is down
        assert tab.locator(".ghost").count() == 0
        assert state(tab)["row"] == sorted(state(tab)["row"])
