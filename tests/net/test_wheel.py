from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reachline.net.wheel import NEVER, SLOT_NS, Wheel


@given(st.lists(st.integers(0, 50 * SLOT_NS), max_size=60), st.integers(1, 7))
def test_items_come_once_never_early_and_within_their_slot(dues, most):
    wheel: Wheel[int] = Wheel()
    for number, due in enumerate(dues):
        wheel.add(due, number)
    seen: dict[int, int] = {}

    for now in range(0, 52 * SLOT_NS, SLOT_NS):
        while taken := wheel.take(now, most):
            assert len(taken) <= most
            seen |= dict.fromkeys(taken, now)

    assert sorted(seen) == list(range(len(dues)))
    assert all(due <= seen[number] < due + SLOT_NS for number, due in enumerate(dues))
    assert wheel.size == 0
    assert wheel.next_ns() == NEVER


def test_the_next_slot_is_known_without_visiting_empty_ones():
    wheel: Wheel[str] = Wheel()

    wheel.add(10**15, "far")
    assert wheel.next_ns() == 10**15
    wheel.add(3, "near")

    assert wheel.next_ns() == SLOT_NS


def test_items_of_one_slot_come_in_the_order_they_were_added():
    wheel: Wheel[int] = Wheel()
    for number in range(10):
        wheel.add(5, number)

    assert wheel.take(SLOT_NS, 4) + wheel.take(SLOT_NS, 100) == list(range(10))


def test_a_sweep_drops_what_is_not_kept():
    wheel: Wheel[int] = Wheel()
    for number in range(10):
        wheel.add(number * SLOT_NS, number)

    wheel.sweep(lambda number: number % 3 == 0)

    assert wheel.size == 4
    assert wheel.take(NEVER, 100) == [0, 3, 6, 9]
