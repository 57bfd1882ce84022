"""The demo as a newcomer meets it: a story moves weights, through nothing but knobs, probes, votes and calls."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.console.chromium import browser, visit
from tests.e2e.upped import Upped, rates

from reachline.testing.parts import free_port
from reachline.testing.wait import eventually

__all__ = ["browser"]

pytestmark = [pytest.mark.e2e, pytest.mark.calm, pytest.mark.slow]

ANY = ("--port", "0", "--agents-port", "0")
LINES = ("north", "east", "west")

QUICK = """
preset: quick_recovery
window: {max_age: 8s}
circuit_breaker:
  cooldown_seconds: 4
  half_open: {min_window_seconds: 3, min_success_requests: 20}
  recovery: {step_ratios: [0.1, 0.5, 1.0], step_interval_seconds: 3}
"""
"""The quickstart's preset with a shorter memory and shorter waits, so that a whole story fits into a minute."""

REFUSING = """
line: west
length: 10m
phases: {calm: Calm, gone: Gone, back: Back}
script:
  - {at: 0s, phase: calm, title: All is well, say: Wait.}
  - {at: 20s, phase: gone, title: "{name} refuses", say: "Watch {name}.", knobs: {refuse: true}}
  - {at: 40s, phase: back, title: "{name} is back", say: Watch it return.}
"""


def document(directory: Path, rules: str) -> Path:
    path = directory / "demo.yaml"
    lines = "".join(f"      {name}: 'http://127.0.0.1:{free_port()}'\n" for name in LINES)
    agents = "agents: {a: {}, b: {}, c: {}}\n"
    probes = "    probes: {tcp: off, http: {every: 1s, burst: 3, path: /healthz}}\n"
    path.write_text(f"{rules}clusters:\n  shop:\n{probes}    lines:\n{lines}{agents}")
    return path


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Upped]:
    """A demo with a story of our own, about another line and another fault."""
    story = tmp_path / "story.yaml"
    story.write_text(REFUSING)
    with Upped(str(document(tmp_path, QUICK)), "--demo", "--story", str(story), *ANY, directory=tmp_path) as running:
        yield running


def test_another_story_moves_other_weights(other: Upped) -> None:
    eventually(lambda: was_judged_well(other, "shop/west"), within=150, every=0.3, what="judged")

    eventually(lambda: other.line("shop/west")["breaker"] == "open", within=60, every=0.3, what="west trips")
    assert {name: other.line(f"shop/{name}")["weight"] for name in LINES} == {"north": 100, "east": 100, "west": 0}
    eventually(lambda: rates(other)["shop/west"] == 0, within=30, every=0.3, what="no call goes over west")
    assert rates(other)["shop/east"] > 50

    seen = []
    eventually(lambda: came_back(other, seen), within=60, every=0.3, what="west carries its full share again")
    assert [weight for weight in (10, 50, 100) if weight in seen] == [10, 50, 100]
    rules = [change["rule"] for change in other.get("api/v1/changes?line=shop/west&limit=100")["changes"]]
    assert rules[-3:] == ["breaker.cooldown_over", "breaker.window_passed", "breaker.window_passed.closed"]
    assert "west refuses" in other.said
    assert "shop/west: weight" in other.said


def was_judged_well(running: Upped, line: str) -> bool:
    """Once, at least: the story goes on whether somebody looks or not."""
    changes = running.get(f"api/v1/changes?line={line}&limit=100")["changes"]
    return any(change["after"]["health"] == "healthy" for change in changes)


def came_back(running: Upped, seen: list[int]) -> bool:
    line = running.line("shop/west")
    if line["weight"] not in seen[-1:]:
        seen.append(line["weight"])
    return bool(line["breaker"] == "closed" and line["weight"] == 100)


def test_eight_open_pages_are_all_live_and_grey_when_it_ends(other: Upped, browser: Browser) -> None:
    context = browser.new_context()
    pages = [context.new_page() for _ in range(8)]
    for page in pages:
        visit(page, other.url)

    for page in pages:
        expect(page.locator("#freshness")).to_contain_text("live", timeout=30_000)
        expect(page.locator("[data-line]")).to_have_count(3)

    assert other.end(signal.SIGINT) == 0, "open pages must not hold it up"
    assert other.family() == {}
    for page in pages:
        expect(page.locator("body[data-stale]")).to_be_attached()
    context.close()
