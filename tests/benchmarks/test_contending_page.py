"""What the page of `benchmarks/decisions.py` says: made of stored runs alone, and first of what falls short."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from benchmarks.contending import page as pages
from benchmarks.contending.against import Verdict, against
from benchmarks.contending.digest import digest
from benchmarks.contending.page import Book, page
from benchmarks.contending.shown import asked, shown
from benchmarks.contending.stored import Key, Stored
from benchmarks.decisions import PARTS, part_of, wanted
from tests.simulate.short import hard_down, scenario

from reachline.simulate.ran import Figure

CALLS = 100_000


def run(contender: str, seed: int, *, bad: int = 0, trips: float = 0.0, **said: Figure) -> Stored:
    """Of 100 000 calls so many went wrong, all of them beyond the oracle's."""
    metrics: dict[str, Figure] = {
        "t_detect": 4.0,
        "t_drain": 6.0,
        "t_restore_full": None,
        "bad_requests": bad / CALLS,
        "bad_calls": bad,
        "calls": CALLS,
        "false_trips_per_h": trips,
        "false_trips": trips,
        "line_hours": 1.0,
        **said,
    }
    limits = {"t_detect": metrics["t_detect"] == 4.0, "false_trips_per_h": trips <= 0}
    return Stored("short", contender, seed, "d", "abc", f"2026-01-01T00:00:0{seed}+00:00", metrics, limits)


def by_key(runs: Iterable[Stored]) -> dict[Key, Stored]:
    return {one.key: one for one in runs}


def five(contender: str, *bad: int, trips: float = 0.0, **said: Figure) -> list[Stored]:
    return [run(contender, seed, bad=each, trips=trips, **said) for seed, each in enumerate(bad, 1)]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((20, 30, 25, 22, 28), (90, 99, 95, 97, 92), Verdict.BETTER),
        ((90, 99, 95, 97, 92), (20, 30, 25, 22, 28), Verdict.WORSE),
        ((90, 20, 95, 22, 92), (20, 90, 25, 97, 28), Verdict.OPEN),
        ((2, 3, 1, 4, 2), (1, 2, 3, 2, 2), Verdict.EQUAL),
    ],
)
def test_fewer_is_beyond_chance_and_equal_is_where_nobody_has_any(
    ours: tuple[int, ...], theirs: tuple[int, ...], verdict: Verdict
) -> None:
    runs = by_key([*five("reachline", *ours), *five("none", *theirs)])

    assert against("short", "none", runs).of_calls is verdict


def test_only_seeds_that_both_have_are_compared() -> None:
    runs = by_key([*five("reachline", 1, 1, 1, 1, 1), run("none", 2, bad=9), run("none", 9, bad=500)])

    assert against("short", "none", runs).bad.pairs == 1


@pytest.mark.parametrize(("ours", "theirs", "fine"), [(0.0, 0.0, True), (0.5, 1.0, True), (1.0, 0.0, False)])
def test_false_trips_may_be_no_more(ours: float, theirs: float, fine: bool) -> None:
    one, two = five("reachline", 0, 0, 0, trips=ours), five("none", 0, 0, 0, trips=theirs)

    assert against("short", "none", by_key([*one, *two])).trips_no_more is fine


def book(runs: Iterable[Stored], part: str = "blocking") -> Book:
    return Book([hard_down()], by_key(runs), {"short": part}, 0, {one.name: one.seeds for one in PARTS})


def short_of(said: str) -> str:
    return said.partition("### What falls short")[2].partition("\n## ")[0]


def test_what_falls_short_is_named_with_its_figure_and_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "REASONS", {("short", "t_detect"): "Probes come every five seconds."})
    runs = [*five("reachline", 50, 51, 52, t_detect=7.5), *five("none", 10, 11, 12)]

    said = short_of(page(book(runs)))

    assert "- short (blocking), limit: noticed after (s) 7.5, asked ≤ 5. Probes come every five seconds." in said
    assert "- short, more bad calls than `none`: 4 (4 … 4) of 10 000." in said


def test_where_all_is_as_asked_no_contender_is_named_as_short() -> None:
    said = short_of(page(book([*five("reachline", 1, 2, 1), *five("none", 90, 95, 99)])))

    assert "limit:" not in said
    assert "bad calls" not in said


def test_what_was_not_run_is_said() -> None:
    said = short_of(page(book(five("reachline", 1, 1))))

    assert "Not run yet by every contender: short." in said


def test_figures_are_the_middle_with_the_span_and_what_never_came_is_later_than_all() -> None:
    runs = [run("none", 1, t_detect=3.0), run("none", 2, t_detect=5.0), run("none", 3, t_detect=None)]

    assert shown("t_detect", runs) == "5 (3 … never)"
    assert shown("bad_requests", [run("none", 1, bad=25)]) == "2.5"
    assert shown("b_share", [run("none", 1, b_share=[0.01, 0.3]), run("none", 2, b_share=[0.01, 0.4])]) == (
        "0.01 / 0.35 (0.3 … 0.4)"
    )


def test_what_is_asked_is_in_the_units_of_the_figures() -> None:
    assert asked(scenario(limits={"bad_requests": 0.01, "panic_flag": True, "cause_named": "dns"})) == {
        "bad_requests": "≤ 100",
        "panic_flag": "yes",
        "cause_named": "dns",
    }


def test_limits_on_what_only_reachline_tells_are_not_held_against_others() -> None:
    ours, theirs = (run(name, 1)._replace(limits={"cause_named": False}) for name in ("reachline", "none"))
    told = book([ours, theirs])

    assert pages.broken(told, told.scenarios[0], "reachline") == ["cause_named"]
    assert pages.broken(told, told.scenarios[0], "none") == []
    assert (shown("cause_named", [ours]), shown("cause_named", [theirs])) == ("no", "–")


def test_the_soak_adds_up_its_days() -> None:
    runs = [run("reachline", seed, line_hours=72.0, decisions_per_h=0.5) for seed in range(1, 10)]

    said = page(book(runs, "soak"))

    assert (
        "648 line-hours of health, 0 false opens, so at most 4.62 in 1 000 line-hours (95% sure): not enough yet."
        in said
    )


def test_a_run_that_is_there_is_not_made_again_and_one_of_other_code_is() -> None:
    here = scenario(id="S03_short")
    part = PARTS[0]._replace(contenders=("reachline", "none"), seeds=2)
    there = run("reachline", 1)._replace(scenario=here.id, digest=digest(here, "reachline"))
    old = run("none", 1)._replace(scenario=here.id, digest="other")

    left = list(wanted([here], part, by_key([there, old])))

    assert [(job.seed, job.contenders) for job in left] == [(1, ("none",)), (2, ("reachline", "none"))]


def test_each_scenario_belongs_to_one_part() -> None:
    assert [part_of(name) for name in ("S03_hard_down", "S07_icmp_blocked", "S40_healthy_soak")] == [
        "blocking",
        "goal",
        "soak",
    ]
