"""Takes the pictures of pages in the documentation, from recorded runs: `python docs/screenshots.py [NAME ...]`.

It needs Playwright and Chromium (`make browser`).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from ropescope.report.page import write_page  # noqa: E402

RESULTS = DOCS.parent / "results"
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
MOVED = "const { duet } = document.querySelector('.duet'); duet.stop(); duet.take([3, 0, 1, 2, 4, 5]);"


def _at(page: Page, target: str, up: int = 60) -> None:
    """Scroll until an element is below the bar at the top, and wait for the charts in view."""
    page.evaluate(
        "([name, up]) => scrollBy({ top: document.querySelector(name).getBoundingClientRect().top - up, behavior: 'instant' })",
        [target, up],
    )
    page.wait_for_timeout(4000)


def _first(page: Page) -> None:
    page.evaluate(MOVED)
    page.wait_for_timeout(800)


def _scoreboard(page: Page) -> None:
    page.evaluate("document.querySelectorAll('#scoreboard .part')[2].open = true")
    page.evaluate("document.querySelectorAll('#scoreboard .part')[2].querySelector('li details').open = true")
    _at(page, "#scoreboard")


def _atlas(page: Page) -> None:
    """Two models side by side, all others below them."""
    page.select_option(".at select", "symbolic")
    for number in (0, 3):
        page.locator(".at-choose").nth(number).click()
    _at(page, "section.at")


SHOTS: dict[str, tuple[str, dict[str, Any], str, Callable[[Page], None]]] = {
    "page-first.png": ("", LAPTOP, "light", _first),
    "page-findings.png": ("", LAPTOP, "light", lambda page: _at(page, ".finding:nth-of-type(4)", 50)),
    "page-question.png": ("", LAPTOP, "light", lambda page: _at(page, "#q-frequencies")),
    "page-scoreboard.png": ("", LAPTOP, "light", _scoreboard),
    "page-atlas.png": ("", {"width": 1280, "height": 1180}, "light", _atlas),
    "page-atlas-phone.png": ("", PHONE, "light", lambda page: _at(page, "section.at")),
    "page-phone.png": ("", PHONE, "light", _first),
    "page-dark.png": ("", LAPTOP, "dark", _first),
    "page-model.png": ("profile-smollm2-135m", LAPTOP, "light", lambda page: _at(page, ".run", 60)),
    "page-model-dark.png": ("profile-smollm2-135m", LAPTOP, "dark", lambda page: _at(page, ".ym-lists", 130)),
}
"""File name to run (all of them if empty), window, colours, and what to do first."""


def main(wanted: list[str]) -> None:
    """Take the pictures that are wanted, or all."""
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium-headless-shell") or shutil.which("chromium"), args=["--no-sandbox"]
        )
        pages: dict[str, Path] = {}
        for name, (run, window, colours, prepare) in SHOTS.items():
            if wanted and name not in wanted:
                continue
            if run not in pages:
                pages[run] = write_page([RESULTS / run], Path(place) / f"{run or 'all'}.html")
            scale = 2 if window is PHONE else 1
            context = browser.new_context(viewport=window, color_scheme=colours, device_scale_factor=scale, offline=True)
            page = context.new_page()
            page.goto(pages[run].as_uri())
            page.wait_for_timeout(1000)
            page.evaluate("document.querySelector('.duet')?.duet.stop()")
            prepare(page)
            page.screenshot(path=DOCS / name)
            context.close()


if __name__ == "__main__":
    main(sys.argv[1:])
