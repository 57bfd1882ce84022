"""What a center decided of lines, read as statuses of outbounds."""

from __future__ import annotations

from random import Random

import pytest

from reachline.core.observing import DEAD_MS, BalancerRules, Status, balancers
from reachline.core.observing.standings import Standings
from reachline.model import Gate, Health
from reachline.testing.builders import snapshot, standing


@pytest.mark.parametrize(
    ("health", "gate", "alive"),
    [
        (Health.HEALTHY, Gate.CLOSED, True),
        (Health.DEGRADED, Gate.RAMP, True),
        (Health.HEALTHY, Gate.HALF_OPEN, True),
        (Health.HEALTHY, Gate.OPEN, False),
        (Health.UNHEALTHY, Gate.CLOSED, False),
        (Health.DRAINING, Gate.CLOSED, False),
        (Health.TIMEOUT, Gate.CLOSED, False),
    ],
)
def test_alive_is_who_gets_traffic(health: Health, gate: Gate, alive: bool) -> None:
    seen = Standings()

    seen.put(snapshot(standing("a", health=health, gate=gate, reason="why")))

    assert seen.statuses(0) == (Status("a", alive, 0 if alive else DEAD_MS, "why"),)


def test_a_balancer_chooses_by_a_centers_snapshot_and_the_unknown_are_not_observed() -> None:
    seen = Standings()
    made = balancers((BalancerRules("b", ("",)),), seen)["b"]
    made.outbounds(("a", "b", "c"))

    seen.put(snapshot(standing("a", health=Health.UNHEALTHY), standing("b"), standing("c", health=Health.UNKNOWN)))
    first = made.pick(0, Random(1)).tag
    seen.put(snapshot(standing("a"), standing("b", gate=Gate.OPEN), standing("c", health=Health.UNKNOWN)))
    second = made.pick(0, Random(1)).tag

    assert (first, second) == ("b", "a")
