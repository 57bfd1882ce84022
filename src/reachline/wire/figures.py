"""Which figures of a heartbeat can be true at all. One agent out of its mind must not stop the judge of all others."""

from __future__ import annotations

from typing import Final

from reachline.model import CENSORED_US, Reading

__all__ = ["MOST", "wrong", "wrong_doubt"]

MOST: Final = 2**30 - 1
"""Attempts, packets or ms that one reading may hold: twelve days. Sums of a tick stay far within 64 bits."""
_MOST_DOUBT: Final = 1_000


def wrong(reading: Reading) -> str:
    """The first figure that cannot be true, with its bounds; empty where there is none."""
    _, counts, sent, lost, rounds, rounds_ok, recent, recent_bad, answered, ewma, p50, p95, jitter, *rest = reading
    fresh_ok, fresh_failed, covered_ms, _, quality, marred, slow, crawl = rest
    ok, late, refused, reset, unreachable, unresolved, broken, errors = counts
    # The bits of all of them over each other: below nothing, or above the most (which is all ones), where one of them is.
    figures = (
        ok | late | refused | reset | unreachable | unresolved | broken | errors | sent | lost | rounds | rounds_ok
    )
    figures |= recent | recent_bad | answered | fresh_ok | fresh_failed | covered_ms | quality | marred | slow | crawl
    times = (ewma or 0) | (p50 or 0) | (p95 or 0) | (jitter or 0)
    return "" if 0 <= figures <= MOST and 0 <= times <= CENSORED_US else _named(reading)


def _named(reading: Reading) -> str:
    figures = {**reading.counts._asdict(), **reading._asdict()}
    for name, value in figures.items():
        most = CENSORED_US if name.endswith("_us") else MOST
        if isinstance(value, int) and not 0 <= value <= most:
            return f"{reading.kind.value}: {name} is {value}, must be 0…{most}"
    return ""


def wrong_doubt(doubt: int) -> str:
    """As `wrong`, of an agent's doubt of itself."""
    return "" if 0 <= doubt <= _MOST_DOUBT else f"doubt is {doubt}, must be 0…{_MOST_DOUBT}"
