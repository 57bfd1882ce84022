"""What this process holds open."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path

__all__ = ["open_files"]


def open_files() -> set[str]:
    """What each descriptor leads to, such as `socket:[1234]`.

    Not how many there are, nor their numbers: one that an earlier test left may be closed at any time, and its number used again.
    Those who compare ask for what is new: `not open_files() - before`.
    """
    gc.collect()
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            found.add(str(each.readlink()))
    return found
