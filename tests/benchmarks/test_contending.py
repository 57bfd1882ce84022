"""The statistics of `benchmarks/decisions.py`: differences with their intervals, what counts as the same run, what is stored."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
from benchmarks.contending.digest import digest, modules
from benchmarks.contending.paired import difference, quantile_of_t
from benchmarks.contending.stored import Stored, load, merged, save
from tests.simulate.short import scenario


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [(0.975, 1, 12.7062), (0.975, 4, 2.7764), (0.975, 9, 2.2622), (0.95, 4, 2.1318), (0.975, 41, 2.0195)],
)
def test_quantiles_of_student_are_those_of_the_tables(share: float, freedom: int, value: float) -> None:
    assert quantile_of_t(share, freedom) == pytest.approx(value, abs=1e-3)


def test_a_difference_in_every_pair_is_more_than_chance() -> None:
    found = difference([1.0, 1.2, 0.9, 1.1, 1.0], [2.0, 2.1, 2.0, 2.3, 1.9])

    assert found.mean == pytest.approx(-1.02)
    assert found.is_less
    assert found.low < found.mean < found.high < 0


def test_pairs_that_disagree_leave_it_open() -> None:
    found = difference([1.0, 3.0, 1.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0])

    assert not found.is_less
    assert not found.is_more


def test_pairing_takes_out_what_the_seeds_share() -> None:
    theirs = [10.0, 50.0, 20.0, 90.0, 40.0]

    found = difference([each + 1.0 + 0.1 * at for at, each in enumerate(theirs)], theirs)

    assert found.is_more


def test_few_pairs_are_taken_further_out_than_any_of_them() -> None:
    apart = [1.0, 2.0, 3.0]

    found = difference(apart, [0.0] * 3)

    assert [found.low, found.high] == pytest.approx([2.0 - 2.4841, 2.0 + 2.4841], abs=1e-3)
    assert not found.is_more


def test_lopsided_differences_are_followed_to_their_side() -> None:
    apart = [0.0] * 98 + [50.0] * 2

    found = difference(apart, [0.0] * 100)

    assert found.low < 0.0  # as Student's t has it
    assert found.high > 2.45  # Student's t would end at 2.40
    assert found == difference(apart, [0.0] * 100)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = Random(7)
    holds = 0
    for _ in range(25):
        found = difference([rng.gauss(1.0, 1.0) for _ in range(5)], [0.0] * 5)
        holds += found.low <= 1.0 <= found.high

    assert holds >= 20


@pytest.mark.parametrize("apart", [[], [0.0] * 5])
def test_where_nobody_has_any_nothing_differs(apart: list[float]) -> None:
    found = difference(apart, [0.0] * len(apart))

    assert (found.mean, found.low, found.high) == (0.0, 0.0, 0.0)


def test_one_pair_says_nothing_of_chance() -> None:
    found = difference([3.0], [1.0])

    assert (found.low, found.high) == (-math.inf, math.inf)


def test_a_run_counts_for_as_long_as_code_and_world_are_the_same() -> None:
    here = scenario()

    assert digest(here, "reachline") == digest(scenario(), "reachline")
    assert digest(here, "reachline") != digest(here, "envoy-like")
    assert digest(here, "reachline") != digest(here, "reachline-literal")
    assert digest(here, "reachline") != digest(scenario(duration_s=61), "reachline")
    assert digest(here, "reachline") == digest(here.model_copy(update={"rng_seeds": [9]}), "reachline")


def test_what_decides_counts_and_what_explains_does_not() -> None:
    ours, theirs = set(modules("reachline")), set(modules("envoy-like"))

    assert {"reachline.core.breaker", "reachline.upstream.cluster", "reachline.simulate.reach.center"} <= ours
    assert "reachline.doors.presets" in ours
    assert not {"reachline.core.explain", "reachline.core.whatif", "reachline.doors.reach"} & ours
    assert {"reachline.simulate.peers.envoy", "reachline.simulate.world"} <= theirs
    assert (
        not {
            "reachline.core.breaker",
            "reachline.core.rules",
            "reachline.simulate.reach.center",
            "reachline.simulate.peers.linkerd",
        }
        & theirs
    )


def stored(seed: int, *, at: str = "2026-01-01T00:00:00+00:00", bad: float = 0.0) -> Stored:
    return Stored("S1", "none", seed, "d", "c", at, {"bad_requests": bad, "b_share": [0.1, 0.2]}, {"t_detect": True})


def test_results_come_back_as_they_were_and_grow(tmp_path: Path) -> None:
    path = tmp_path / "results" / "found.json"
    save(path, {one.key: one for one in (stored(2), stored(1))})

    again = merged(load(path), [stored(3)])
    save(path, again)

    assert list(load(path)) == [("S1", "none", 1), ("S1", "none", 2), ("S1", "none", 3)]
    assert load(path)["S1", "none", 2] == stored(2)


def test_of_the_same_run_the_later_one_counts() -> None:
    early, late = stored(1, bad=0.5), stored(1, at="2026-02-01T00:00:00+00:00")

    assert merged({early.key: early}, [late]) == merged({late.key: late}, [early]) == {late.key: late}


def test_a_file_that_is_none_of_ours_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"runs": [{"scenario": "S1"}]}')

    with pytest.raises(ValueError, match=r"other\.json: not a file of results"):
        load(path)
