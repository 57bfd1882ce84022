"""The demo as a newcomer meets it: a story moves weights, through nothing but knobs, probes, votes and calls."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.console.chromium import browser, visit
from tests.e2e.upped import Upped, environ
from tests.measured import best_of

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


def rates(running: Upped) -> dict[str, float]:
    """Calls a second by line, as the callers count them."""
    found = running.get("api/v1/demo").get("calls") or {}
    return dict(found.get("rates") or {})


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
