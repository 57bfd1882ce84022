from __future__ import annotations

import pytest

from reachline.core.pick import Member
from reachline.core.pick.member import WEIGHT_MOST, checked
from reachline.core.pick.orca import Report, Reported, Weighing, learned, reweighed, weight_of

HOW = Weighing()


@pytest.mark.parametrize(
    ("report", "weight"),
    [
        (Report(qps=100, application=0.5), 200),
        (Report(qps=100, cpu=0.5), 200),
        (Report(qps=100, application=0.25, cpu=0.5), 400),
        (Report(qps=100, eps=50, cpu=0.5), 100),  # errors count as half a utilisation
        (Report(qps=0.5, cpu=2.0), 1),
        (Report(qps=1e300, cpu=1e-9), WEIGHT_MOST),
        (Report(qps=0, cpu=0.5), None),
        (Report(qps=-1, cpu=0.5), None),
        (Report(qps=100), None),
        (Report(qps=100, cpu=-0.5), None),
        (Report(qps=float("nan"), cpu=0.5), None),
        (Report(qps=100, cpu=float("nan")), None),
        (Report(qps=100, cpu=float("inf")), None),
    ],
)
def test_a_weight_is_what_is_done_per_utilisation(report: Report, weight: int | None) -> None:
    assert weight_of(report, HOW) == weight


def test_named_metrics_come_first_and_the_greatest_of_them_counts() -> None:
    report = Report(qps=100, application=0.1, named={"db": 0.5, "queue": 0.25})

    assert weight_of(report, Weighing(named=("queue", "db"))) == 200
    assert weight_of(report, Weighing(named=("absent",))) == 1_000


def members(names: str) -> list[Member[str]]:
    return [Member(name, name) for name in names]


def weights(names: str, known: dict[str, Reported], now_ms: int) -> list[int]:
    return [member.weight for member in reweighed(members(names), known, now_ms, HOW)]


def test_a_weight_counts_after_the_blackout_and_until_it_expires() -> None:
    known = {"a": Reported(40, since_ms=0, at_ms=30_000), "b": Reported(20, since_ms=0, at_ms=30_000)}
    known["c"] = Reported(90, since_ms=25_000, at_ms=30_000)

    assert weights("abc", known, 9_999) == [1, 1, 1]
    assert weights("abc", known, 30_000) == [40, 20, 30]
    assert weights("abc", known, 35_000) == [40, 20, 90]
    assert weights("abc", known, 210_001) == [1, 1, 1]


def test_those_without_a_weight_get_the_median() -> None:
    known = {name: Reported(weight, 0, 20_000) for name, weight in (("a", 10), ("b", 100), ("c", 30))}

    assert weights("abcd", known, 20_000) == [10, 100, 30, 30]


def test_after_a_gap_the_blackout_begins_again() -> None:
    first = learned(None, Report(qps=10, cpu=1), 0, HOW)
    second = learned(first, Report(qps=20, cpu=1), 100_000, HOW)
    silent = learned(second, Report(), 150_000, HOW)
    third = learned(silent, Report(qps=30, cpu=1), 300_000, HOW)

    assert (first, second, silent) == (Reported(10, 0, 0), Reported(20, 0, 100_000), Reported(20, 0, 100_000))
    assert third == Reported(30, 300_000, 300_000)


def test_weights_that_are_too_large_together_keep_their_ratios() -> None:
    known = {"a": Reported(WEIGHT_MOST, 0, 20_000), "b": Reported(WEIGHT_MOST, 0, 20_000), "c": Reported(1, 0, 20_000)}

    found = reweighed(members("abc"), known, 20_000, HOW)

    assert checked(found)
    assert found[0].weight == found[1].weight > 2**30
