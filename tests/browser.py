"""A real browser for tests of pages, with the network off: Debian's Chromium where there is one, else Playwright's own."""

import shutil
from contextlib import contextmanager

from playwright.sync_api import sync_playwright

QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")
running = []


@contextmanager
def opened(path, **context):
    """A page opened from a file, and the list of what its console complained of; `context` as in Playwright."""
    with _browser() as browser:
        place = browser.new_context(offline=True, **context)
        page = place.new_page()
        complaints = []
        page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.resolve().as_uri())
        yield page, complaints
        place.close()


@contextmanager
def _browser():
    """The browser that another page is open in, or a new one: Playwright can only run once at a time."""
    if running:
        yield running[0]
        return
    with sync_playwright() as playwright:
        running.append(playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET)))
        try:
            yield running[0]
        finally:
            running.pop().close()
