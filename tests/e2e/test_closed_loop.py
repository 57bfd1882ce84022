"""The product's main job on real sockets, by the documents' own rules: a line dies, and what is published says so in time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.e2e.world import world

from reachline.client import connect_sync
from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_by_the_documents_own_rules_a_dead_line_is_published_as_zero_within_75_seconds(tmp_path: Path) -> None:
    with world(tmp_path, preset="default") as running:
        eventually(running.settled, within=90, what="all lines healthy")
        running.kill("b")
        since = time.monotonic()
        with connect_sync(running.center, clusters="shop", local_breaker=False) as client:
            eventually(
                lambda: [line.weight for line in client.cluster("shop").lines() if line.line == "shop/b"] == [0],
                within=75,
                what="published weight 0",
            )
        took = time.monotonic() - since

        assert took <= 75
        (trip,) = (row for row in running.get("/api/v1/changes?line=shop/b")["changes"] if row["after"]["weight"] == 0)
        assert trip["rule"] == "vote.connect.failed"
        assert {(vote["vantage"], vote["numerator"], vote["denominator"]) for vote in trip["votes"]} == {
            ("a1", 0, 3),
            ("a2", 0, 3),
        }
        assert {name: code for name, code in running.stop().items() if name in {"center", "a1", "a2"}} == {
            "center": 0,
            "a1": 0,
            "a2": 0,
        }
    told = running.reachline("explain", "shop/b", "--journal", str(running.journal))
    assert "vote.connect.failed" in told.stdout
    assert running.reachline("replay", str(running.journal)).returncode == 0
