"""A real browser in front of a staged center. Without Chromium these tests are skipped by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Error, Page, Request, expect, sync_playwright

from reachline.testing.stage import ASSETS

CHROMIUM: Final = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

# The default of 5 s is for machines that do nothing else; bounds that are promised are named where they are tested.
expect.set_options(timeout=20_000)


# A module, not a session: while playwright runs, its thread has a running loop, and no other test there may start one.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that must not log an error: a script that breaks and a request that CSP refuses both do."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if is_ours(message.type, message.text) else None)
    yield page
    context.close()
    assert errors == []


CHANGED: Final = "net::ERR_NETWORK_CHANGED"
VISITS: Final = 50
STARTED: Final = "import('/main.js').then(() => true, () => false)"
"""Whether the page's scripts are there, all of them: a module runs once however often it is imported."""


def visit(page: Page, url: str = "") -> None:
    """Open `url`, or load the page that is open anew; once more where Chromium broke off what it was loading because an interface of the machine came or went.

    It does so for loopback too, and for scripts: the page then never starts. Tests beside this one make interfaces.
    """
    for _ in range(VISITS):
        broken: list[str] = []

        def note(request: Request, broken: list[str] = broken) -> None:
            if request.failure == CHANGED:
                broken.append(request.url)

        page.on("requestfailed", note)
        try:
            page.goto(url) if url else page.reload()
            if not page.evaluate(STARTED):
                broken.append(page.url)
        except Error as error:
            if CHANGED not in error.message:
                raise
            broken.append(page.url)
        finally:
            page.remove_listener("requestfailed", note)
        if not broken:
            return
        url = "" if page.url == url else url  # with a fragment, the same address would only scroll
    raise AssertionError(f"the machine's interfaces change all the time: {VISITS} visits of {page.url} were broken off")


def is_ours(kind: str, text: str) -> bool:
    """Errors that the page makes, not those of a center that is away (or of a demo that is not played: 404)."""
    return kind == "error" and not any(away in text for away in ("404", "net::ERR_", "WebSocket connection to"))


@pytest.fixture(scope="session")
def charts() -> None:
    if not (ASSETS / "vendor" / "uPlot.esm.js").exists():
        pytest.skip("needs the console's chart library: make console")
