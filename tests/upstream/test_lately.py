"""Failures in a row are a reason to go elsewhere where they are many among the newest calls on the line, not on a busy line's chance."""

from __future__ import annotations

from random import Random

import pytest

from reachline.core.rules import LocalRules
from reachline.model import LineId, Version
from reachline.upstream.cluster import Cluster
from reachline.upstream.listing import LineList, Listed, target
from reachline.upstream.outcome import Column

A, B = LineId("payments/a"), LineId("payments/b")
OFTEN = LocalRules(share_milli=200)


class Caller:
    """One client of two lines."""

    def __init__(self, rules: LocalRules = OFTEN) -> None:
        self.now = 100.0
        self.cluster = Cluster("payments", clock=lambda: self.now, rng=Random(1))
        self.cluster.wake()
        listed = tuple(
            Listed(line=line, target=target(f"tcp://{line[-1]}.test:443"), weight=100, base=100) for line in (A, B)
        )
        self.cluster.replace(
            LineList(cluster="payments", lines=listed, version=Version(1, 0), local=rules), source="center"
        )

    def call(self, *ends: Column, line: LineId = A) -> bool:
        """Calls on a line that end so, one after the other; whether it is out then."""
        for end in ends:
            (pick,) = (pick for pick, _ in self.cluster.offers if pick.line == line)
            self.cluster.record(pick, end)
        return line in self.cluster.open_lines()

    def wait(self, seconds: float) -> None:
        """Time passes, and the driver takes what came to each second."""
        for _ in range(round(seconds)):
            self.now += 1.0
            self.cluster.turn()
            self.cluster.take("pay")


OK, FAILED, LATE, ERRORS = Column.OK, Column.FAILED, Column.LATE, Column.ERRORS


def test_two_in_a_row_of_a_busy_line_are_chance_and_four_of_twenty_are_not() -> None:
    caller = Caller()

    assert not caller.call(*50 * [OK], FAILED, LATE)
    assert not caller.call(FAILED)
    assert caller.call(LATE)


def test_where_the_share_is_not_asked_for_two_in_a_row_are_enough() -> None:
    assert Caller(LocalRules()).call(*50 * [OK], FAILED, FAILED)


def test_a_line_with_few_calls_is_left_after_two() -> None:
    caller = Caller()

    assert not caller.call(OK, OK, OK, FAILED)
    assert caller.call(FAILED)


@pytest.mark.parametrize(("seconds", "is_out"), [(10, False), (11, True)])
def test_calls_count_for_ten_seconds_after_they_were_taken(seconds: int, is_out: bool) -> None:
    caller = Caller()
    caller.call(*30 * [OK])
    caller.wait(seconds)

    assert caller.call(FAILED, FAILED) is is_out


def test_failures_before_the_newest_twenty_calls_are_forgotten() -> None:
    caller = Caller()
    assert not caller.call(*20 * [OK], FAILED, OK, FAILED, OK)
    caller.wait(1)

    assert not caller.call(*17 * [OK], FAILED, FAILED)


def test_failures_of_former_takes_count() -> None:
    caller = Caller()
    assert not caller.call(*20 * [OK], FAILED, OK, FAILED)
    caller.wait(2)

    assert not caller.call(OK, FAILED)
    assert caller.call(FAILED)


def test_errors_of_a_server_are_answers() -> None:
    assert not Caller().call(*30 * [ERRORS], FAILED, FAILED)


def test_lines_are_looked_at_apart() -> None:
    caller = Caller()
    caller.call(*50 * [OK], line=B)

    assert caller.call(FAILED, FAILED)


def test_a_line_on_which_nothing_fails_any_more_is_not_remembered() -> None:
    caller = Caller()
    caller.call(*50 * [OK], FAILED)

    caller.wait(11)

    assert not caller.cluster._lately._failing


def test_the_calls_of_before_a_fork_are_the_parents() -> None:
    caller = Caller()
    caller.call(*50 * [OK])
    caller.wait(1)

    caller.cluster.forked(Random(2))
    caller.cluster.wake()

    assert caller.call(FAILED, FAILED)
