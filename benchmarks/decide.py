"""What deciding costs: a slice of evidence into the ledger, and a tick, at 10 000 lines seen by five vantages.

One process, one core, no sockets. A tick's figures are the median and the 99th percentile of many ticks in one run.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Iterator, Sequence
from random import Random

from reachline.core.ledger import Ledger
from reachline.core.rules import Rules
from reachline.doors import reach
from reachline.model import LineId, Reading, VantageId, Version
from reachline.testing.bench import Figure, finish
from reachline.testing.builders import line, reading, scope, vantages

LINES = 10_000
VANTAGES = 5
SLICE = 100
TICK_MS = 10_000
TOUCHED = 0.02
"""Of the lines change their state or counts in an ordinary tick."""


def rules() -> Rules:
    """The default preset's."""
    document = reach.read("clusters: {payments: {lines: ['tcp://a.test:443']}}", name="bench")
    return reach.rules(document, "payments")


def ledger(seen_by: Sequence[VantageId]) -> Ledger:
    """All lines there are, nothing known of them."""
    lines = tuple(line(f"l{number:05d}") for number in range(LINES))
    return Ledger(scope(), lines, rules(), vantages=frozenset(seen_by), version=Version(1, 0), now_ms=0)


def sliced(lines: Sequence[LineId], said: Sequence[Reading]) -> Iterator[list[tuple[LineId, Reading]]]:
    """The same readings of all lines, in the parts in which heartbeats bring them."""
    for at in range(0, len(lines), SLICE):
        yield [(name, one) for name in lines[at : at + SLICE] for one in said]


def heard(book: Ledger, lines: Sequence[LineId], said: Reading, seen_by: Sequence[VantageId], now_ms: int) -> None:
    """Every vantage says this of these lines."""
    for vantage in seen_by:
        for part in sliced(lines, [said]):
            book.report(vantage, part, now_ms=now_ms)


def tick(book: Ledger, now_ms: int) -> float:
    """Milliseconds of one tick."""
    began = time.perf_counter()
    book.close(now_ms)
    return 1_000 * (time.perf_counter() - began)


def ticks(share: float, count: int) -> list[float]:
    """Ticks in each of which `share` of the lines turns bad while those of the last one come back."""
    seen_by, rng = vantages(VANTAGES), Random("decide")
    book = ledger(seen_by)
    names = list(book.lines)
    now_ms = 0
    for _ in range(4):
        now_ms += TICK_MS
        heard(book, names, reading(), seen_by, now_ms)
        book.close(now_ms)
    found = []
    for _ in range(count):
        now_ms += TICK_MS
        bad = set(rng.sample(names, round(share * LINES)))
        heard(book, [name for name in names if name not in bad], reading(), seen_by, now_ms)
        heard(book, sorted(bad), reading(ok=190, late=10), seen_by, now_ms)
        gc.collect()
        found.append(tick(book, now_ms))
    return found


def slices(said: Reading, count: int) -> list[float]:
    """Milliseconds of each heartbeat slice of 100 lines of which all is the same."""
    seen_by = vantages(VANTAGES)
    book, found = ledger(seen_by), []
    for part in list(sliced(list(book.lines), [said]))[:count]:
        began = time.perf_counter()
        book.report(seen_by[0], part, now_ms=TICK_MS)
        found.append(1_000 * (time.perf_counter() - began))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def figure(what: str, values: Sequence[float], bound: str) -> Figure:
    """The 99th percentile beside the span."""
    return Figure(what, "ms, p99", percentile(values, 0.99), min(values), max(values), len(values), bound)


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=50)
    asked = parser.parse_args()
    finish(
        "decide",
        [
            figure("slice of 100 healthy lines", slices(reading(), 100), "≤ 1, goal 0.3"),
            figure("slice of 100 lines that lose", slices(reading(ok=190, late=10), 100), ""),
            figure("tick, 2 % touched", ticks(TOUCHED, asked.ticks), "≤ 40, goal 20"),
            figure("tick, all touched", ticks(1.0, max(5, asked.ticks // 5)), "≤ 200, goal 100"),
        ],
    )


if __name__ == "__main__":
    main()
