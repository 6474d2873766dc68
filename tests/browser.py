"""A real browser for tests of pages, with the network off: Debian's Chromium where there is one, else Playwright's own.

Both are Chromium's headless shell where it is installed: it has no window and no pages of its own to draw, so that on a busy
machine tests take less than half as long.
"""

import shutil
import time
from contextlib import contextmanager

from playwright.sync_api import sync_playwright

QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")
PATIENCE = 120_000
"""Milliseconds until a state that never comes is an error. Nothing waits that long unless it is broken."""
PROGRAM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
_running = []


@contextmanager
def running():
    """The browser that runs already, or a new one: Playwright can only run once at a time.

    While it runs, this thread has a running event loop, so that nothing else may call `asyncio.run`. That is why the browser is
    shared by the tests of one folder, and not by the whole session.
    """
    if _running:
        yield _running[0]
        return
    with sync_playwright() as playwright:
        _running.append(playwright.chromium.launch(executable_path=PROGRAM, args=list(QUIET), timeout=PATIENCE))
        try:
            yield _running[0]
        finally:
            _running.pop().close()


@contextmanager
def opened(path, **context):
    """A page opened from a file, and the list of its errors and warnings; `context` as in Playwright."""
    with running() as browser:
        place = browser.new_context(offline=True, **context)
        place.set_default_timeout(PATIENCE)
        page = place.new_page()
        complaints = []
        page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.resolve().as_uri())
        yield page, complaints
        place.close()


def until(page, condition):
    """Wait until an expression is true of the page. Playwright's own function needs `eval`, which the page's policy forbids."""
    stop = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < stop, condition
        page.wait_for_timeout(10)
