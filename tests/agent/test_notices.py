"""What is worth a line in the log of things that come and go."""

from __future__ import annotations

from reachline.agent.notices import CALM, Notices


def test_what_flaps_is_told_once_and_is_over_once_it_was_away_for_long() -> None:
    notices = Notices()

    looks = [notices.look(["late"] if second % 2 else [], float(second)) for second in range(100)]

    assert [look for look in looks if look != ((), ())] == [(("late",), ())]
    assert notices.look([], 98.9 + CALM) == ((), ())
    assert notices.look([], 99.0 + CALM) == ((), ("late",))
    assert notices.look(["late"], 99.5 + CALM) == (("late",), ())


def test_each_is_told_by_itself() -> None:
    notices = Notices()

    assert notices.look(["a"], 0.0) == (("a",), ())
    assert notices.look(["a", "b"], 1.0) == (("b",), ())
    assert notices.look(["b"], CALM) == ((), ())
    assert notices.look(["b"], 1.0 + CALM) == ((), ("a",))
