"""The product's main job on real sockets: a line dies, traffic leaves; it is mended, traffic comes back slowly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.e2e.traffic import Traffic, is_steady
from tests.e2e.world import World, world

from reachline.client import connect_sync
from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_each_client_leaves_a_dead_line_within_a_second_and_it_returns_by_trial_and_ramp(tmp_path: Path) -> None:
    with world(tmp_path, preset="quick_recovery") as running, connect_sync(running.center, clusters="shop") as client:
        eventually(running.settled, within=60, what="all lines healthy")
        eventually(lambda: is_steady(client), what="a line list")
        with Traffic(client).running() as traffic:
            traffic.over(3)
            running.kill("b")
            died = time.monotonic()
            traffic.over(2.5)
            assert traffic.last["shop/b"] - died <= 1.0 + traffic.held_up(died)

            eventually(lambda: running.line("b").get("weight") == 0, within=30, what="the published weight is 0")
            running.start_target("b")
            seen = _steps_until_closed(running, within=300)

            assert not traffic.raised
        assert [step for step, _ in seen] == [("half_open", 0), ("ramp", 1), ("ramp", 2), ("closed", 0)]
        assert [weight for _, weight in seen] == [10, 25, 50, 100]
    replayed = running.reachline("replay", str(running.journal))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def _steps_until_closed(running: World, *, within: float) -> list[tuple[tuple[str, int], int]]:
    """(gate, step) and weight at each change of gate or step, from half-open until closed again."""
    seen: list[tuple[tuple[str, int], int]] = []

    def is_closed() -> bool:
        row = running.line("b")
        at = (row["breaker"], row["step"])
        if at[0] != "open" and (not seen or seen[-1][0] != at):
            seen.append((at, row["weight"]))
        return bool(seen) and at[0] == "closed"

    eventually(is_closed, within=within, every=0.2, what="the line is closed again")
    return seen
