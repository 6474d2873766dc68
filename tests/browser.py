"""A real browser for tests of pages, with the network off: Debian's Chromium where there is one, else Playwright's own."""

import shutil
from contextlib import contextmanager

from playwright.sync_api import sync_playwright

QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")


@contextmanager
def opened(path, **context):
    """A page opened from a file, and the list of what its console complained of; `context` as in Playwright."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        page = browser.new_context(offline=True, **context).new_page()
        complaints = []
        page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.resolve().as_uri())
        yield page, complaints
        browser.close()
