"""A line that was open or returns: few calls at a time, few connections a second, and no connection from before."""

from __future__ import annotations

import random
import time

import pytest
from tests.upstream.kept import Clock as KeptClock
from tests.upstream.kept import addresses, call, kept

from reachline.core.local import LocalBreaker
from reachline.core.rules import LocalRules
from reachline.model import Failure, Gate, LineId, Version
from reachline.upstream import Cluster, Column, LineList, Listed
from reachline.upstream.care import Care, Cares
from reachline.upstream.listing import picks_of, target


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def lists(*gates: Gate, counter: int = 1, weight: int = 100) -> LineList:
    rows = tuple(
        Listed(
            LineId(f"payments/{n}"),
            target(f"tcp://10.0.0.{n}:80"),
            0 if gate is Gate.OPEN else weight,
            100,
            breaker=gate,
        )
        for n, gate in enumerate(gates)
    )
    return LineList(cluster="payments", lines=rows, version=Version(1, counter))


def cluster(*gates: Gate, clock: Clock | None = None) -> Cluster:
    made = Cluster("payments", clock=clock or Clock(), rng=random.Random(1))
    made.replace(lists(*gates), source="center")
    made.wake()
    return made


def care_of(made: Cluster, line: str) -> Care | None:
    return next(pick.care for pick, _ in made.offers if pick.line == line)


def test_a_line_that_never_was_ill_needs_no_care() -> None:
    made = cluster(Gate.CLOSED, Gate.CLOSED)

    assert [pick.care for pick, _ in made.offers] == [None, None]


def test_calls_beyond_a_trials_few_go_to_other_lines() -> None:
    made = cluster(Gate.HALF_OPEN, Gate.CLOSED)

    calls = [made.attempt().__enter__() for _ in range(200)]

    assert sum(each.line == "payments/0" for each in calls) == LocalRules().trial_calls
    for each in calls:
        each.__exit__(None, None, None)
    more = [made.attempt().__enter__() for _ in range(200)]
    assert sum(each.line == "payments/0" for each in more) == LocalRules().trial_calls


def test_a_busy_client_gives_a_trial_a_twentieth_of_what_was_in_flight() -> None:
    clock = Clock()
    made = cluster(Gate.HALF_OPEN, Gate.CLOSED, clock=clock)
    made.take("")
    pick = made.another(())
    assert pick is not None
    for _ in range(200):
        made.record(pick, Column.OK, 1.0)
    clock.now += 1.0
    made.take("")

    calls = [made.attempt().__enter__() for _ in range(400)]

    assert sum(each.line == "payments/0" for each in calls) == 3 + 10


def test_without_another_line_the_limit_gives_way_for_no_call_is_refused() -> None:
    made = cluster(Gate.HALF_OPEN)

    assert all(made.attempt().__enter__().line == "payments/0" for _ in range(20))


@pytest.mark.parametrize("gate", [Gate.HALF_OPEN, Gate.RAMP])
def test_a_returning_line_gets_fifty_new_connections_a_second(gate: Gate) -> None:
    made = cluster(gate, Gate.CLOSED)
    care = care_of(made, "payments/0")
    assert care is not None

    began = time.monotonic()
    made_now = sum(care.may_connect() for _ in range(500))

    assert 50 <= made_now <= 50 * (1 + int(time.monotonic() - began))
    made.replace(lists(Gate.CLOSED, Gate.CLOSED, counter=2), source="center")
    assert all(care.may_connect() for _ in range(500))


def test_connections_from_before_an_opening_are_told_by_its_number() -> None:
    made = cluster(Gate.CLOSED, Gate.CLOSED)
    found = []
    for counter, gate in enumerate([Gate.OPEN, Gate.OPEN, Gate.HALF_OPEN, Gate.CLOSED, Gate.OPEN, Gate.RAMP], 2):
        made.replace(lists(gate, Gate.CLOSED, counter=counter), source="center")
        if gate is not Gate.OPEN:
            found.append(getattr(care_of(made, "payments/0"), "openings", None))

    assert found == [1, 1, 2]
    assert care_of(made, "payments/1") is None


def test_this_clients_own_breaker_counts_as_an_opening_too() -> None:
    clock = Clock()
    made = cluster(Gate.CLOSED, Gate.CLOSED, clock=clock)
    pick = made.pick()
    assert pick is not None
    for _ in range(2):
        made.report(pick, Failure.TIMEOUT)
    assert made.open_lines() == (pick.line,)

    clock.now += 6.0
    made.turn()

    care = care_of(made, pick.line)
    assert care is not None
    assert care.openings == 1


def test_a_forked_child_knows_the_openings_and_none_of_the_calls() -> None:
    made = cluster(Gate.HALF_OPEN, Gate.CLOSED)
    made.replace(lists(Gate.OPEN, Gate.CLOSED, counter=2), source="center")
    made.replace(lists(Gate.HALF_OPEN, Gate.CLOSED, counter=3), source="center")
    held = [made.attempt().__enter__() for _ in range(100)]

    made.forked(random.Random(2))
    made.wake()

    assert sum(made.attempt().__enter__().line == "payments/0" for _ in range(100)) == LocalRules().trial_calls
    care = care_of(made, "payments/0")
    assert care is not None
    assert care.openings == 1
    held[0].__exit__(None, None, None)


def test_a_local_row_without_a_trip_opens_nothing() -> None:
    made = lists(Gate.CLOSED)
    found = Cares().applied(made, picks_of(made), {LineId("payments/0"): LocalBreaker(failures=1)})

    assert found[0].care is None


def test_an_ejection_of_a_cluster_kept_in_process_counts_as_an_opening() -> None:
    clock, (ill, well) = KeptClock(), addresses(2)
    made = kept(clock, targets=[ill, well], policy="round_robin", outliers={"consecutive_5xx": 3})
    found = []
    for _ in range(2):
        call(made, ill, 500, times=3)
        assert made.open_lines() == (f"c/{ill}",)
        clock.now += 300
        made.turn()
        offered = {pick.target: pick.care for _ in range(4) if (pick := made.pick())}
        found.append(getattr(offered[ill], "openings", None))
        assert offered[well] is None

    assert found == [1, 2]
