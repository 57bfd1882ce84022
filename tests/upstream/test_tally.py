"""Many calls that went well, counted at once, come to the same as one by one."""

from __future__ import annotations

from reachline.model import LineId
from reachline.upstream.outcome import Column
from reachline.upstream.tally import Tally

LINE = LineId("payments/l1")


def test_timed_calls_counted_at_once_are_those_counted_by_their_pace() -> None:
    at_once, singly = Tally(), Tally()

    at_once.add_timed(LINE, 3, 20, 5, 2)
    for calls, pace in ((15, 1), (3, 2), (2, 3)):
        singly.add(LINE, 3, Column.OK, calls, pace)

    assert at_once.totals() == singly.totals()
    assert at_once.take("main") == singly.take("main")


def test_a_call_that_went_well_is_counted_as_any_other() -> None:
    fast, singly = Tally(), Tally()

    for pace in (0, 1, 2, 3):
        fast.well(LINE, 3, 0.5, pace)
        singly.add(LINE, 3, Column.OK, pace=pace, elapsed=0.5)

    assert fast.take_busy() == singly.take_busy() == 2.0
    assert fast.totals() == singly.totals()
    assert fast.take("main") == singly.take("main")
