"""Whole ledgers on their way to disk: taken in a moment where they live, turned into bytes a slice at a time in the writer's
thread. Between two slices the interpreter is left to whoever waits for it, so that a checkpoint holds up no loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Final

from reachline.core.still import slices
from reachline.model import Seconds
from reachline.store.items import Mark, Opening
from reachline.store.records import Opened
from reachline.store.segment import Resume

__all__ = ["BREATH", "opened", "resumed"]

_BUSY: Final[Seconds] = 0.001
"""Work between two breaths: the most a loop beside it waits for the interpreter at a time."""
BREATH: Final[Seconds] = 0.0002
"""Long enough for a waiting thread to wake up and take over."""


def opened(opening: Opening, breathe: Callable[[], object]) -> Opened:
    """The record, with a breath at least every millisecond of work."""
    pieces, began = [], time.perf_counter()
    for piece in slices(opening.ledger):
        pieces.append(piece)
        if time.perf_counter() - began >= _BUSY:
            breathe()
            began = time.perf_counter()
    return Opened(scope=opening.scope, at_ms=opening.at_ms, checkpoint=b"".join(pieces), continues=opening.continues)


def resumed(mark: Mark, bodies: Iterator[bytes]) -> Generator[None, None, Resume]:
    """The resume point, step by step; `bodies` are those behind record `mark.seq`."""
    found, ledgers = [], []
    for piece in bodies:
        found.append(piece)
        yield
    for scope, ledger in mark.ledgers:
        pieces = []
        for piece in slices(ledger):
            pieces.append(piece)
            yield
        ledgers.append((scope, b"".join(pieces)))
    return Resume(mark.seq, mark.at_ms, tuple(ledgers), b"".join(found))
