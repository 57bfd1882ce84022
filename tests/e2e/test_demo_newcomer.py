"""The quickstart's demo as README starts it: its whole story, followed by a newcomer."""

from __future__ import annotations

import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.console.chromium import browser, visit
from tests.e2e.upped import Upped, environ, rates
from tests.measured import best_of

from reachline.testing.parts import free_port
from reachline.testing.wait import eventually

__all__ = ["browser"]

pytestmark = [pytest.mark.e2e, pytest.mark.calm, pytest.mark.slow]

ANY = ("--port", "0", "--agents-port", "0")


@pytest.mark.timeout(900)  # the story takes 165 s
def test_a_newcomer_sees_the_whole_story_within_210_seconds(browser: Browser, root: Path, tmp_path: Path) -> None:
    """The quickstart as README starts it, but for its ports: followed in the console, by `status` and by `explain`."""
    rounds = count(1)
    best_of(2, lambda: see_the_story(browser, root, tmp_path / f"round-{next(rounds)}"))


def see_the_story(browser: Browser, root: Path, directory: Path) -> None:
    directory.mkdir()
    path = directory / "quickstart.yaml"
    text = (root / "examples" / "quickstart.yaml").read_text()
    for port in ("7701", "7702", "7703"):
        text = text.replace(port, str(free_port()))
    path.write_text(text)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    with Upped(str(path), "--demo", *ANY, directory=directory) as running:
        visit(page, running.url)
        east = page.locator('[role="row"][data-line="shop/east"]')
        demo = page.get_by_role("region", name="Demo")
        expect(demo).to_contain_text("real calls/s", timeout=30_000)
        eventually(lambda: sum(rates(running).values()) >= 200, within=60, every=0.5, what="200 calls a second")

        expect(demo.get_by_role("heading")).to_have_text("east is called degraded", timeout=45_000)
        expect(east).to_contain_text("degraded")
        expect(east.get_by_text("open")).to_be_visible(timeout=60_000)
        expect(east.locator(".figure")).to_have_text("0")
        expect(demo.get_by_role("heading")).to_have_text("east is out: its breaker is open")
        assert is_slide(weights(running)), f"not step by step: {weights(running)}"
        assert "shop/east" in told(running, directory, "status")
        assert "vote." in told(running, directory, "explain", "shop/east")

        expect(east).to_contain_text("trial 10 %", timeout=75_000)
        expect(east).to_contain_text("ramp 25 %", timeout=45_000)
        expect(east).to_contain_text("ramp 50 %", timeout=45_000)
        expect(east).to_contain_text("healthy", timeout=45_000)
        assert running.get("api/v1/demo")["elapsed"] <= 210
        assert running.get("api/v1/demo")["round"] == 1
        assert "Traceback" not in running.said
    page.close()


def weights(running: Upped) -> list[int]:
    """The published weights of east, from its first decision on."""
    changes = running.get("api/v1/changes?line=shop/east&limit=1000")["changes"]
    return [change["after"]["weight"] for change in changes]


def is_slide(weights: list[int]) -> bool:
    """Full weight, then at least five smaller and smaller ones before the breaker takes the rest."""
    falling = weights == sorted(weights, reverse=True)
    return falling and weights[0] == 100 and weights[-1] == 0 and len(set(weights)) >= 7


def told(running: Upped, directory: Path, *command: str) -> str:
    """What a command says of the running center."""
    arguments = [sys.executable, "-m", "reachline", *command, "--center", running.url.rstrip("/")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=30, env=environ(directory), check=False)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr
