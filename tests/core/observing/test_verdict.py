"""Whether an outbound is alive: doubts, re-checks, rise and fall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.observing import Care
from reachline.core.observing.verdict import Verdict


def _heard(signs: str, care: Care | None = None) -> Verdict:
    """`+` and `-`: requests; `p` and `f`: calls."""
    verdict = Verdict(care or Care())
    for sign in signs:
        if sign in "+-":
            verdict.heard(sign == "+")
        else:
            verdict.called(sign == "p")
    return verdict


@pytest.mark.parametrize(
    ("signs", "alive", "in_doubt"),
    [
        ("", None, False),
        ("+", True, False),
        ("-", None, True),
        ("+-", True, True),
        ("+--", True, True),
        ("+---", False, False),
        ("+-+++", True, False),
        ("+--+-", False, False),
        ("+-+-++", True, False),
        ("+-++--", False, False),
        ("---", False, False),
        ("-+++", True, False),
        ("---+", False, False),
        ("---++", True, False),
        ("---+-+", False, False),
        ("---+-++", True, False),
        ("+f", True, True),
        ("+fff", True, True),
        ("+f--", False, False),
        ("+fp", True, True),
        ("+fp++", True, True),
        ("+-p++", True, False),
        ("+-f-", False, False),
        ("p", None, False),
        ("---p", False, False),
        ("---p+", True, False),
        ("---ppp", False, False),
        ("---p-p+", True, False),
    ],
)  # fmt: skip
def test_what_is_heard_decides(signs: str, alive: bool | None, in_doubt: bool) -> None:
    verdict = _heard(signs)

    assert (verdict.alive, verdict.in_doubt) == (alive, in_doubt)


def test_with_a_fall_and_a_rise_of_one_each_result_decides_as_in_xray() -> None:
    care = Care(fall=1, rise=1)

    assert [_heard(signs, care).alive for signs in ("-", "+-", "+-+", "f")] == [False, False, True, False]


@given(st.integers(1, 5), st.integers(0, 5), st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_doubt_is_settled_by_its_rechecks_at_the_latest(fall: int, rechecks: int, results: list[bool]) -> None:
    verdict = Verdict(Care(fall=fall, rechecks=rechecks))
    verdict.heard(True)
    verdict.heard(False)

    for number, passed in enumerate(results):
        if not verdict.in_doubt:
            break
        assert number < rechecks
        verdict.heard(passed)

    assert not verdict.in_doubt


@given(st.lists(st.sampled_from("pf"), max_size=30))
def test_calls_alone_kill_nobody_and_raise_nobody(calls: list[str]) -> None:
    assert _heard("+" + "".join(calls)).alive is True
    assert _heard("---" + "".join(calls)).alive is False
    assert _heard("".join(calls)).alive is None
