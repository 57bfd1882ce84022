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


STORIES = 3
"""At most: where the machine stands still so long that lines that are well are judged bad, that is another story."""


class Starved(Exception):  # noqa: N818 - of the machine, not of ours
    """Lines that nobody touched were judged bad."""


@pytest.mark.timeout(900)
def test_each_client_leaves_a_dead_line_within_a_second_and_it_returns_by_trial_and_ramp(tmp_path: Path) -> None:
    for number in range(STORIES):
        directory = tmp_path / str(number)
        directory.mkdir()
        try:
            return _told(directory)
        except Starved:
            continue
    pytest.fail(f"lines that are well were judged bad in {STORIES} of {STORIES} stories")


def _told(directory: Path) -> None:
    with world(directory, preset="quick_recovery") as running, connect_sync(running.center, clusters="shop") as client:
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
            if _others_were_bad(running):
                raise Starved

            assert not traffic.raised
        assert [step for step, _ in seen] == [("half_open", 0), ("ramp", 1), ("ramp", 2), ("closed", 0)]
        assert [weight for _, weight in seen] == [10, 25, 50, 100]
    replayed = running.reachline("replay", str(running.journal))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def _others_were_bad(running: World) -> bool:
    changes = running.get("/api/v1/changes?limit=500")["changes"]
    return any(row["line"] != "shop/b" and row["after"]["health"] == "unhealthy" for row in changes)


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
