"""What is chosen by a held observation changes when somebody looks, never at a pick."""

from __future__ import annotations

from random import Random

from reachline.core.observing import BalancerRules, Held, Status, Strategy, balancer

_RNG = Random(1)


class _Known:
    """An observation that a test writes."""

    def __init__(self) -> None:
        self.told: tuple[Status, ...] = ()
        self.number = 0

    def put(self, *told: Status) -> None:
        self.told = told
        self.number += 1

    def statuses(self, now: int) -> tuple[Status, ...]:  # noqa: ARG002
        return self.told

    def edition(self, now: int) -> int:  # noqa: ARG002
        return self.number


def test_a_pick_goes_by_the_last_look() -> None:
    known = _Known()
    held = Held(known)
    found = balancer(BalancerRules("b", ("s-",), strategy=Strategy.LEAST_PING), held, {})
    found.outbounds(("s-a", "s-b"))
    known.put(Status("s-a", True, 10), Status("s-b", False))
    held.look(0)
    assert found.pick(0, _RNG).tag == "s-a"

    known.put(Status("s-a", False), Status("s-b", True, 10))

    assert found.pick(1, _RNG).tag == "s-a"
    assert held.look(2)
    assert found.pick(2, _RNG).tag == "s-b"


def test_a_look_at_nothing_new_says_so() -> None:
    known = _Known()
    held = Held(known)

    assert held.look(0)
    assert not held.look(1)


def test_the_more_there_are_the_seldomer_one_looks_and_sooner_where_one_died() -> None:
    known = _Known()
    held = Held(known, readers=2)
    assert held.due(turned=False) is None
    known.put(*(Status(f"s-{number}", True) for number in range(100)))

    held.look(5)

    assert held.due(turned=False) == 5 + 100_000_000
    assert held.due(turned=True) == 5 + 4_000_000


def test_without_balancers_it_is_not_looked_at_each_result() -> None:
    known = _Known()
    held = Held(known, readers=0)
    known.put(*(Status(f"s-{number}", True) for number in range(100)))

    held.look(5)

    assert (held.due(turned=False) or 0) > 5
