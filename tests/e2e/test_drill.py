"""A real drill on the demo's services and callers: traffic moves off the line, and a second line that breaks ends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.world import World, world

from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def drill_of(running: World) -> dict[str, Any]:
    """The newest drill's row, its one cluster under `of`; empty while the center is away."""
    rows = (running.get("/api/v1/drills") or {"drills": []})["drills"]
    return {**rows[0], "of": rows[0]["clusters"][0]} if rows else {}


@pytest.mark.timeout(300)
def test_a_drill_moves_the_traffic_and_ends_itself_when_a_second_line_breaks(tmp_path: Path) -> None:
    with world(tmp_path, preset="quick_recovery", mode="fast", more="judge: {tick: 1s, heartbeat: 1s}\n") as running:
        running.start_traffic(120)
        eventually(running.settled, within=90, what="all lines healthy")
        began = running.reachline(
            "drill", "shop/a", "--fail", "--for", "10m", "--real", "--reason", "who carries a's calls?",
            "--center", running.center, "-o", "json",
        )  # fmt: skip
        assert began.returncode == 0, began.stderr
        assert json.loads(began.stdout)["drill"]["state"] == "running"

        eventually(lambda: drill_of(running)["of"]["since_moved"]["calls"] >= 300, within=90, what="traffic has moved")
        moved = drill_of(running)
        running.kill("b")
        eventually(lambda: drill_of(running)["state"] != "running", within=90, what="the drill ends")
        eventually(lambda: running.line("a").get("weight") == 100, within=30, what="a carries traffic again")

        over = drill_of(running)
        assert moved["state"] == "running"
        assert moved["of"]["since_moved"]["on_share"] <= 0.01
        assert moved["of"]["during"]["failed"] == 0
        assert (over["state"], over["ended_by"]) == ("aborted", "drill")
        assert "shop/b failed during it" in over["ended_reason"] or "calls failed" in over["ended_reason"]
        assert running.line("a")["health"] == "healthy"
        running.kill("traffic")
        codes = running.stop()
        assert {name: codes[name] for name in ("center", "a1", "a2")} == {"center": 0, "a1": 0, "a2": 0}
    replayed = running.reachline("replay", str(running.journal))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
