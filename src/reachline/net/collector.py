"""The garbage collector while probes are under way. What an attempt is made of goes by itself when it ends; looking through it again
and again for cycles that are not there took a twelfth of the time of an echo.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["calm", "held"]

_YOUNG: Final = 5_000
"""Objects made and not gone again before the young ones are looked through: a third of a millisecond, once in a while."""


def calm() -> None:
    """Have it look seldom in this process. One that is off, or looks more seldom, stays as it is."""
    young, *older = gc.get_threshold()
    if 0 < young < _YOUNG:
        gc.set_threshold(_YOUNG, *older)


@contextmanager
def held() -> Iterator[None]:
    """It does not look inside this block, only after it: a tick over thousands of lines would be halted by it again and again, and
    makes nothing that only the collector could free.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
