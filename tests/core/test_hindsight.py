"""What was at fault, told afterwards by one fixed measure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reachline.core.hindsight import Fault, Hindsight
from reachline.model import Kind, LineId, Reading, VantageId
from reachline.testing import builders

A, B = LineId("payments/a"), LineId("payments/b")


def hindsight() -> Hindsight:
    return Hindsight({line.id: line for line in builders.lines("a", "b")})


def fresh(ok: int, failed: int = 0, *, p95_us: int = 100_000, kind: Kind = Kind.TCP) -> Reading:
    return builders.reading(kind, p95_us=p95_us)._replace(fresh_ok=ok, fresh_failed=failed)


def beats(found: Hindsight, said: Sequence[Sequence[Reading]]) -> tuple[Fault, ...]:
    """Each round a heartbeat of all vantages at the end of ten seconds."""
    for number, readings in enumerate(said, 1):
        for index, reading in enumerate(readings):
            found.reported(VantageId(f"v{index}"), [(A, reading)], number * 10_000)
    return found.faults()


GOOD, BAD = [fresh(10)] * 5, [fresh(7, 3)] * 5


def test_bad_buckets_make_a_fault_from_the_first_to_the_last_and_short_pauses_do_not_end_it() -> None:
    found = beats(hindsight(), [GOOD, BAD, BAD, GOOD, GOOD, BAD, GOOD, GOOD, GOOD, BAD, BAD])

    assert found == (Fault(A, 10_000, 60_000), Fault(A, 90_000, 110_000))


def test_one_bad_bucket_is_no_fault() -> None:
    assert beats(hindsight(), [GOOD, BAD, GOOD, GOOD, GOOD]) == ()


@pytest.mark.parametrize(("failing", "is_fault"), [(1, False), (2, True)])
def test_of_five_vantages_the_worst_is_left_aside(failing: int, is_fault: bool) -> None:
    round_ = [fresh(0, 10)] * failing + [fresh(10)] * (5 - failing)

    assert bool(beats(hindsight(), [round_] * 3)) is is_fault


@pytest.mark.parametrize(("slow", "is_fault"), [(2, False), (3, True)])
def test_most_vantages_must_find_it_slow(slow: int, is_fault: bool) -> None:
    round_ = [fresh(10, p95_us=500_000)] * slow + [fresh(10, p95_us=499_999)] * (5 - slow)

    assert bool(beats(hindsight(), [round_] * 3)) is is_fault


@pytest.mark.parametrize(("failed", "is_fault"), [(1, False), (6, True)])
def test_a_share_must_be_reached_and_sure(failed: int, is_fault: bool) -> None:
    """1 of 20 is 5 %, but surely only 1 %; 6 of 100 are surely 3 %."""
    round_ = [fresh(19, 1)] if failed == 1 else [fresh(94, 6)]

    assert bool(beats(hindsight(), [round_] * 3)) is is_fault


def test_helpers_and_void_readings_are_no_evidence() -> None:
    void = fresh(0, 10)._replace(void=True)

    assert beats(hindsight(), [[fresh(0, 10, kind=Kind.DNS)] * 5, [void] * 5] * 3) == ()


@pytest.mark.parametrize(
    ("calls", "elsewhere", "is_fault"),
    [((90, 10), (100, 0), True), ((40, 9), (100, 0), False), ((90, 10), (90, 10), False), ((98, 2), (100, 0), False)],
)
def test_calls_make_a_fault_where_enough_of_them_fail_on_this_line_only(
    calls: tuple[int, int], elsewhere: tuple[int, int], is_fault: bool
) -> None:
    found = hindsight()

    for number in range(1, 4):
        for name, (ok, failed) in (("a", calls), ("b", elsewhere)):
            found.called([builders.outcome(name, ok=ok, failed=failed)], number * 10_000)

    assert [fault.line for fault in found.faults()] == [A] * is_fault
