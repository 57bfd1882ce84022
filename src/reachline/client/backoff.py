"""How long to leave a failing center alone. Pure; chance comes in."""

from __future__ import annotations

from random import Random
from typing import Final

from reachline.model import Seconds

__all__ = ["pause"]

_FIRST: Final[Seconds] = 0.2
"""A center that restarts is back within a second; a fleet of a thousand spread over 0.2 s is 5 000 requests a second."""
_DOUBLINGS_MOST: Final = 10


def pause(failures: int, rng: Random, *, most: Seconds) -> Seconds:
    """The wait after this many failures in a row: doubled each time up to `most`, then anywhere in its upper half."""
    doublings = min(max(failures - 1, 0), _DOUBLINGS_MOST)
    wait = min(_FIRST * (1 << doublings), most)
    return wait * (0.5 + rng.random() / 2)
