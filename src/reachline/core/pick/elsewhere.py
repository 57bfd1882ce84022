"""A further pick for the same call: somewhere it has not been yet, as long as there is such a place."""

from __future__ import annotations

from collections.abc import Container
from random import Random
from typing import Final, TypeVar

from reachline.core.pick.member import Picker

__all__ = ["elsewhere"]

T = TypeVar("T")

TRIES: Final = 4
"""Ordinary picks before all items are looked at: they keep the shares, and most often one of them will do."""


def elsewhere(picker: Picker[T], rng: Random, key: int | None, tried: Container[T]) -> T | None:
    """An item that is not in `tried`, or None where all of them are; items without weight are not offered."""
    for attempt in range(1, TRIES + 1):
        found = picker.pick(rng, key, attempt)
        if found is None:
            return None
        if found not in tried:
            return found
    others = [item for item in picker.items if item not in tried]
    return others[int(rng.random() * len(others))] if others else None
