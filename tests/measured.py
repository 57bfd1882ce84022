"""Measuring a promise on a machine that is not ours alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

__all__ = ["best_of"]

T = TypeVar("T")


def best_of(times: int, measure: Callable[[], T]) -> T:
    """What the first of at most `times` measurements brought that held; the last one's AssertionError where none did.

    A neighbour on the machine (a hypervisor that takes the core between two stamps, a disk shared with others) can make
    a measurement worse, never better. So one that holds shows the promise kept, and one that does not shows nothing yet;
    what is really bad is bad every time. `measure` asserts for itself and begins anew at each call.
    """
    for left in reversed(range(times)):
        try:
            return measure()
        except AssertionError as error:
            if not left:
                raise
            print(f"measured again, {left} more at most: {str(error).splitlines()[:1]}", file=sys.stderr)
    raise ValueError(f"{times} measurements are none")
