"""The agent's small decisions: how long to wait, how far to trust itself, what a wrong option is told."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.agent import trust
from reachline.agent.settings import checked
from reachline.agent.uplink import pause
from reachline.errors import ConfigError
from reachline.model import Zone


@given(failures=st.integers(1, 10_000), seed=st.integers())
def test_the_pause_doubles_from_a_fifth_of_a_second_to_ten_and_half_of_it_is_chance(failures: int, seed: int) -> None:
    ceiling = min(10.0, 0.2 * 2 ** (min(failures, 20) - 1))

    assert 0.5 * ceiling <= pause(failures, random.Random(seed)) <= ceiling


def test_agents_that_lose_their_center_together_do_not_return_together() -> None:
    pauses = {round(pause(6, random.Random(seed)), 3) for seed in range(100)}

    assert len(pauses) > 80


@pytest.mark.parametrize(
    ("score", "worst", "after"), [(0, 0, 0), (0, 7, 1), (7, 7, 7), (3, 0, 2), (6, 7, 7), (1, 1, 1), (5, 1, 4)]
)
def test_doubt_grows_with_every_heartbeat_that_speaks_against_us_and_fades_with_clean_ones(
    score: int, worst: int, after: int
) -> None:
    assert trust.doubt(score, worst) == after


@pytest.mark.parametrize(("late_ms", "worst"), [(0, 0), (199, 0), (200, 1), (399, 1), (400, 2), (60_000, 7)])
def test_timers_that_are_a_little_late_raise_the_doubt_a_little(late_ms: int, worst: int) -> None:
    assert trust.of_timers(late_ms) == worst


def groups(*names: str) -> list[frozenset[str]]:
    """One line for each text, its groups written as letters."""
    return [frozenset(name) for name in names]


@pytest.mark.parametrize(
    ("turned", "lines", "is_us"),
    [
        (groups("a", "b"), 3, True),
        (groups("a", "b"), 4, False),
        (groups("a", "a", "a"), 3, False),
        (groups("ab", "b", "bc", "c"), 4, False),
        (groups("ab", "c", "cd"), 4, True),
        (groups("a"), 1, False),
        (groups(), 0, False),
    ],
    ids=["most, apart", "half", "one group", "a chain of groups", "two sets", "one line", "no line"],
)
def test_lines_that_turn_bad_at_once_speak_against_us_where_they_share_nothing(
    turned: list[frozenset[str]], lines: int, is_us: bool
) -> None:
    assert trust.at_once(turned, lines) is is_us


@pytest.mark.parametrize(
    ("references", "cut"),
    [
        ((), False),
        ((None,), False),
        ((False,), True),
        ((False, False), True),
        ((False, True), False),
        ((False, None), False),
    ],
)
def test_cut_off_is_who_knows_that_every_reference_fails(references: tuple[bool | None, ...], cut: bool) -> None:
    assert trust.is_cut_off(references) is cut


@pytest.mark.parametrize(
    ("before", "known", "ok", "after"),
    [
        (Zone.N, 2, 0, Zone.N),
        (Zone.N, 3, 0, Zone.F),
        (Zone.F, 3, 1, Zone.F),
        (Zone.F, 3, 2, Zone.F),
        (Zone.F, 3, 3, Zone.H),
        (Zone.H, 3, 1, Zone.H),
    ],
)
def test_the_quick_opinion_turns_at_none_and_at_all_of_three_rounds(
    before: Zone, known: int, ok: int, after: Zone
) -> None:
    assert trust.advisory(before, known, ok) is after


def test_every_wrong_option_is_named_once_and_a_token_never_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        checked(
            id="a 1", centers=("nowhere",), sources=("1.2.3",), zone="*", references=("x",), rate=0, token=["s3cret"]
        )

    places = [problem.place for problem in caught.value.problems]
    assert places == ["--id", "--center", "--zone", "--source", "--token", "--rate", "--reference"]
    assert "s3cret" not in str(caught.value)
    assert all("\n" not in str(problem) for problem in caught.value.problems)


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        checked(id="v1", centers=("127.0.0.1:7600",), certificate="v1.pem")

    assert str(caught.value).startswith("--cert: ")
    assert "belong together" in str(caught.value)
