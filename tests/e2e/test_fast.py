"""`mode: fast` by whole processes: what agents count adds up at the center, and a dead line is taken out and let in again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.world import world

from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_a_dead_line_is_open_and_its_return_is_tried(tmp_path: Path) -> None:
    with world(tmp_path, preset="quick_recovery", mode="fast") as running:
        eventually(running.settled, within=90, what="all lines healthy")
        running.kill("b")
        eventually(lambda: running.line("b").get("weight") == 0, within=90, what="the published weight is 0")
        opened, *_ = (
            row for row in running.get("/api/v1/changes?line=shop/b")["changes"] if not row["after"]["weight"]
        )
        running.start_target("b")
        eventually(lambda: running.line("b").get("weight") == 10, within=120, what="the trial")

        assert opened["rule"] == "vote.failed.failed"
        assert {vote["vantage"] for vote in opened["votes"]} == {"a1", "a2"}
        assert all(0 < vote["numerator"] <= vote["denominator"] for vote in opened["votes"])
        assert {name: running.line(name)["weight"] for name in "ac"} == {"a": 100, "c": 100}
        codes = running.stop()
        assert {name: codes[name] for name in ("center", "a1", "a2")} == {"center": 0, "a1": 0, "a2": 0}
    told = running.reachline("explain", "shop/b", "--journal", str(running.journal))
    before = opened["before"]
    # Degraded first, where that came to light before.
    how = f"{before['health']} → unhealthy, open, weight {before['weight']} → 0"
    assert f"vote.failed.failed: {how}" in told.stdout
    replayed = running.reachline("replay", str(running.journal))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
