"""Random: every endpoint with the same chance, whatever its weight, and no memory between picks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Generic, TypeVar

from reachline.core.pick.member import Memory, Picker, Source
from reachline.core.pick.policy import Policy

__all__ = ["Uniform", "uniform"]

T = TypeVar("T")


class Uniform(Generic[T]):
    """All items alike."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[T]) -> None:
        self.items: Final = tuple(items)

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:  # noqa: ARG002 - chance needs neither
        """One item, or None without items."""
        items = self.items
        return items[int(rng.random() * len(items))] if items else None


def uniform(source: Source[T], policy: Policy, memory: Memory, rng: Random) -> Picker[T]:  # noqa: ARG001 - one signature
    """The picker of `TABLE`."""
    return Uniform([member.item for member in source.members])
