"""Logging in at the console of a real center, in a real browser: led there, refused, let in, out again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from reachline.store.access import Access
from reachline.testing.center import running_center
from reachline.testing.stage import ASSETS

pytestmark = pytest.mark.browser

PASSWORD = "correct horse battery"
DOCUMENT = """
clusters: {payments: {lines: {a: "tcp://127.0.0.1:9"}}}
center: {grpc: "127.0.0.1:0", http: "127.0.0.1:0", journal: JOURNAL, access: ACCESS}
"""


@pytest.fixture
def center(tmp_path: Path) -> Iterator[str]:
    """The URL of a center that knows one person, in a thread of its own: playwright's loop runs in this one."""
    Access(tmp_path / "access.json").set_person("ann", "operator", PASSWORD, now=datetime.now(UTC))
    text = DOCUMENT.replace("ACCESS", str(tmp_path / "access.json"))
    found: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def work() -> None:
        async with running_center(tmp_path, text, console=ASSETS) as running:
            found.append(running.http)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert ready.wait(60)
    yield found[0]
    over.set()
    thread.join(60)


def test_a_person_is_led_to_the_log_in_and_back_and_out_again(browser: Browser, center: str) -> None:
    with browser.new_context(reduced_motion="reduce") as context:
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.goto(f"{center}/")
        expect(page).to_have_url(f"{center}/login.html?next=/")
        expect(page.get_by_label("Name")).to_be_focused()

        page.keyboard.type("ann")
        page.keyboard.press("Tab")
        page.keyboard.type("wrong horse battery")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("name or password are wrong.")

        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{center}/")
        expect(page.get_by_text("ann · operator")).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="payments/a")).to_be_visible()
        assert page.evaluate("document.cookie") == ""

        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(f"{center}/login.html?next=%2F")
        page.goto(f"{center}/")
        expect(page.get_by_label("Name")).to_be_visible()


@pytest.mark.parametrize(
    "wanted", ["https://evil.example/", "//evil.example", "/.//evil.example", "javascript:alert(1)"]
)
def test_nobody_is_led_elsewhere_after_logging_in(browser: Browser, center: str, wanted: str) -> None:
    with browser.new_context(reduced_motion="reduce") as context:
        page = context.new_page()
        page.goto(f"{center}/login.html?next={wanted}")
        page.get_by_label("Name").fill("ann")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()

        expect(page).to_have_url(f"{center}/")
