"""Whatever people do with a page, and however fast, it never fails and shows at last what was chosen."""

import random

import pytest
from browser import opened, until
from pages import PROFILE, REST, RESULTS, TRAINING, draw_all

from ropescope.report.page import write_page

pytestmark = pytest.mark.browser

# All that the pointer or the focus can be on, in the order of the page.
FIND = """() => {
  const all = "a, button, input, select, summary, canvas, [tabindex], .place, .place *, .plot svg";
  window.found = [...document.querySelectorAll(all)].filter((one) => one.checkVisibility());
  return found.map((one) => one.closest(".folded") ? "fold" : one.tagName);
}"""
# One of these in the middle of the window, with the focus where it can have it.
REACH = """(n) => {
  const one = window.found[n];
  one.scrollIntoView({ block: "center", behavior: "instant" });
  one.focus({ preventScroll: true });
  const box = one.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_everything_can_be_pointed_at_and_focused(shown, seed):
    page, complaints = shown
    draw_all(page)
    kinds = page.evaluate(FIND)
    assert kinds.count("fold") >= 2
    assert len(kinds) > 400
    draw = random.Random(seed)
    order = [n for n, kind in enumerate(kinds) if kind == "fold"] + draw.sample(range(len(kinds)), 150)
    draw.shuffle(order)
    for n in order:
        page.mouse.move(*page.evaluate(REACH, n))
    page.mouse.move(0, 0)
    assert complaints == []


# What someone in a hurry does to the page, by numbers that a seed gives, without waiting for anything.
HURRY = """(numbers) => {
  const sections = [...document.querySelectorAll(".run")], any = (list, n) => list[n % list.length];
  const acts = [
    () => document.getElementById("theme").click(),
    (n) => any([...document.querySelectorAll("details.more, .run > .fold")], n).toggleAttribute("open"),
    (n) => any([...document.querySelectorAll("figure[data-chart]")], n).scrollIntoView({ behavior: "instant" }),
    (n) => any([...document.querySelectorAll("[data-step]")], n).click(),
    (n) => any([...document.querySelectorAll(".play")], n).click(),
    (n) => {
      const slider = any([...document.querySelectorAll(".film input")], n);
      slider.value = n % (Number(slider.max) + 1);
      slider.dispatchEvent(new Event("input"));
    },
    (n) => {
      const detail = { run: any(sections, n).dataset.run, layer: n % 14, head: n % 10 };
      document.dispatchEvent(new CustomEvent("ropescope:head", { detail }));
    },
    (n) => {
      const playground = document.querySelector(".playground").playground;
      playground?.pick(n % 30, n % 9);
    },
    (n) => {
      const all = document.querySelectorAll(".playground .controls button, .playground .modes input, .duet button");
      any([...all], n).click();
    },
    (n) => (location.hash = any(["", "%", "%E0%A4%A", "#nowhere", ...sections.map((one) => one.id)], n)),
  ];
  for (const n of numbers) any(acts, n)(Math.floor(n / acts.length));
}"""
# Charts on the page whose head, film or colours are not what is chosen.
ASTRAY = """() => [...document.querySelectorAll("figure[data-chart]")].filter((figure) => {
  if (!figure.querySelector(".plot.drawn svg")) return false;
  const section = document.getElementById(figure.dataset.of) ?? figure.closest(".run, #findings");
  const { signals } = figure.view.getState();
  const value = (name) => section.querySelector(name)?.value;
  const head = `L${value("[data-pick=layer]")} H${value("[data-pick=head]")}`;
  const label = figure.querySelector(".role-axis-label text, .role-legend-label text");
  const ink = document.documentElement.dataset.theme === "dark" ? "#a3abb6" : "#59616d";
  return (
    (section.querySelector(".picker") && "picked" in signals && signals.picked !== head) ||
    (section.querySelector(".film") && "at" in signals && Math.round(signals.at) !== Number(value(".film input"))) ||
    (label && label.getAttribute("fill") !== ink)
  );
}).map((figure) => figure.id)"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_page_used_in_a_hurry_shows_what_was_chosen(both, seed):
    draw = random.Random(seed)
    with opened(both, viewport={"width": 1280, "height": 900}) as (page, complaints):
        for _ in range(12):
            page.evaluate(HURRY, [draw.randrange(10**6) for _ in range(draw.randrange(1, 12))])
        page.evaluate("document.querySelectorAll('.play[aria-pressed=true]').forEach((part) => part.click())")
        draw_all(page)
        page.evaluate(REST)
        assert page.evaluate(ASTRAY) == []
        heads = page.evaluate("document.querySelector('.playground').playground.state()")
        picked = [page.input_value(f"#{PROFILE}--{part}") for part in ("layer", "head")]
        assert [str(heads["layer"]), str(heads["head"])] == picked
        assert complaints == []


def test_a_head_chosen_while_the_page_is_opening_stays_chosen(both):
    """The playground may be there before the picker has options: the first choice must not be overwritten when they come."""
    with opened(both, viewport={"width": 1280, "height": 900}) as (page, complaints):
        page.add_init_script(
            """addEventListener("DOMContentLoaded", async () => {
              const root = document.querySelector(".playground");
              await root.play();
              root.playground.pick(2, 3);
            })"""
        )
        page.reload()
        draw_all(page)
        page.evaluate(REST)
        assert [page.input_value(f"#{PROFILE}--{part}") for part in ("layer", "head")] == ["2", "3"]
        assert page.evaluate("document.querySelector('.playground').playground.state().head") == 3
        assert page.evaluate(ASTRAY) == []
        assert complaints == []


def test_strange_events_are_ignored(tmp_path):
    page = write_page([RESULTS / PROFILE, RESULTS / TRAINING], tmp_path / "page.html")
    with opened(page) as (tab, complaints):
        until(tab, f"document.getElementById('{PROFILE}--layer').value !== ''")
        before = [tab.input_value(f"#{PROFILE}--{part}") for part in ("layer", "head")]
        for detail in (
            None,
            {},
            {"run": PROFILE},
            *({"run": PROFILE, "layer": 0, "head": head} for head in (-1, 0.5, 99, "x", None)),
        ):
            tab.evaluate("detail => document.dispatchEvent(new CustomEvent('ropescope:head', { detail }))", detail)
        tab.evaluate(REST)
        assert [tab.input_value(f"#{PROFILE}--{part}") for part in ("layer", "head")] == before
        assert complaints == []
