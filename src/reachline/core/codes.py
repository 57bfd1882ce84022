"""An attempt's end as one byte: the column of `Counts` it stands in and, above it, the class of its status code.

Knows neither time nor round trips; a window keeps one of these bytes for each attempt.
"""

from __future__ import annotations

from typing import Final

from reachline.model import Counts, Failure

__all__ = ["ANSWERED", "OK", "bad_among", "classes_of", "code_of", "counts_of"]

OK: Final = 0
"""The byte of an attempt that ended well and has no status."""
_LATE, _RESET, _ERRORS = 1, 3, 7
_BAD: Final = frozenset({_RESET, _ERRORS})
_COLUMN: Final = {
    None: OK,
    Failure.TIMEOUT: _LATE,
    Failure.REFUSED: 2,
    Failure.RESET: _RESET,
    Failure.UNREACHABLE: 4,
    Failure.RESOLVE: 5,
    Failure.TLS: 6,
    Failure.PROXY: 6,
    Failure.PROTOCOL: 6,
    Failure.STATUS: _ERRORS,
}
"""The column of `Counts` in which an attempt stands; AGENT is in none."""
ANSWERED: Final = frozenset({None, Failure.REFUSED, Failure.STATUS})
"""Ends that are an answer even where no usable RTT came with it (a retransmitted SYN): neither fast nor censored."""


def code_of(failure: Failure | None, *, late: bool, status: int) -> int:
    """The byte of an attempt; KeyError for AGENT, which is no attempt."""
    return (_LATE if late else _COLUMN[failure]) | (min(status // 100, 5) << 3 if status else 0)


def counts_of(codes: bytearray) -> Counts:
    """How these attempts ended."""
    if not any(codes):  # as in most windows
        return Counts(len(codes))
    columns = [0] * 8
    for code in set(codes):
        columns[code & 7] += codes.count(code)
    return Counts(*columns)


def classes_of(codes: bytearray) -> tuple[int, int, int, int, int]:
    """Answers by class, 1xx…5xx."""
    classes = [0] * 6
    for code in set(codes):
        classes[code >> 3] += codes.count(code)
    return classes[1], classes[2], classes[3], classes[4], classes[5]


def bad_among(codes: bytearray) -> int:
    """How many of them ended in a 5xx or a reset."""
    return sum(code & 7 in _BAD for code in codes) if any(codes) else 0
