"""Slow start, for every policy alike: an endpoint's weight right after it became healthy, and when to look again.

Weights are those of one moment, so that a picker stays immutable; whoever builds pickers builds another at `due_ms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from reachline.core.pick.member import Member, is_healthy
from reachline.core.pick.policy import SlowStart

__all__ = ["due_ms", "share", "weights"]

T = TypeVar("T")

STEPS: Final = 50
"""Of a window: an endpoint's share moves by two hundredths of its weight at a time."""
STEP_LEAST_MS: Final = 100
"""No more than ten new pickers a second, however short the window."""


def share(slow: SlowStart, age_ms: int) -> float:
    """The part of its weight that an endpoint has `age_ms` after it became healthy, above 0…1."""
    if age_ms >= slow.window_ms:
        return 1.0
    passed = max(age_ms, 1) / slow.window_ms
    return max(passed if slow.aggression == 1.0 else float(passed ** (1.0 / slow.aggression)), slow.least)


def weights(members: Sequence[Member[T]], slow: SlowStart | None, now_ms: int) -> list[float]:
    """What each member weighs now: its own weight, untouched, or a part of it while it starts."""
    if slow is None:
        return [member.weight for member in members]
    return [
        member.weight if age is None else member.weight * share(slow, age)
        for member in members
        for age in (_age(member, slow, now_ms),)
    ]


def due_ms(members: Sequence[Member[T]], slow: SlowStart | None, now_ms: int) -> int | None:
    """When weights will have moved enough for a new picker, or None while nobody starts."""
    if slow is None:
        return None
    ages = [age for member in members if (age := _age(member, slow, now_ms)) is not None]
    step = max(slow.window_ms // STEPS, STEP_LEAST_MS)
    return now_ms + min(step, slow.window_ms - max(ages)) if ages else None


def _age(member: Member[T], slow: SlowStart, now_ms: int) -> int | None:
    """For how long it has been healthy while it starts, or None once it does not."""
    if member.healthy_since_ms is None or not is_healthy(member):
        return None
    age = max(now_ms - member.healthy_since_ms, 0)
    return age if age < slow.window_ms else None
