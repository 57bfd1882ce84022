"""What a journal costs on disk: 10 000 healthy lines seen by five vantages, for a day, from windows fed like an agent's.

A few hundred lines are written for some minutes, through the real segment writer; the growth of the file is scaled up. The
lines answer in 60 ms (P95 110 ms), and lose no packet, or 0.4 % of them: what the document calls healthy.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from reachline import __version__
from reachline.core.settling import Settling
from reachline.core.window import Columns, Window
from reachline.core.zone import Calm, calm_of
from reachline.doors import reach
from reachline.model import Kind, LineId, Reading, Scope, VantageId
from reachline.store.records import Reported
from reachline.store.segment import ROOT, Meta, SegmentWriter, create, size_of
from reachline.testing.bench import Figure, finish

LINES = 10_000
VANTAGES = 5
SLICE = 100
ROUND = 5.0
BURST = 5
WARM_UP = 130.0
"""Seconds until windows have reached their age."""
DAY = 86_400
_SIGMA = math.log(110 / 60) / 1.645


class Shape(NamedTuple):
    """What is measured: so many of the lines, for so long, reported this often, losing this share of packets."""

    lines: int
    seconds: float
    heartbeat: float
    loss: float


class Watched:
    """One vantage's window on one line, probed in rounds whose phase moves by up to a tenth."""

    def __init__(self, columns: Columns, rng: Random, loss: float) -> None:
        self.window = Window(columns, Kind.TCP)
        self._rng, self._loss = rng, loss
        self._median_us = 60_000 * math.exp(rng.gauss(0, 0.1))
        self._phase, self._round = rng.random() * ROUND, 0
        self._due = self._phase

    def until(self, now: float) -> None:
        """All rounds that are due."""
        while self._due <= now:
            self._round += 1
            for _ in range(BURST):
                lost = self._rng.random() < self._loss
                rtt_us = round(self._median_us * math.exp(self._rng.gauss(0, _SIGMA))) + 1_000_000 * lost
                self.window.record(
                    self._due, None, rtt_us, late=lost, sent=1 + lost, lost=int(lost), number=self._round, burst=BURST
                )
            self._due = self._phase + ROUND * (self._round + self._rng.uniform(-0.1, 0.1))

    def reading(self, now: float) -> Reading:
        """What the heartbeat of `now` says."""
        self.until(now)
        reading, _ = self.window.summary(now)
        self.window.settle()
        return reading


def calm() -> Calm:
    """The default preset's."""
    document = reach.read("clusters: {payments: {lines: ['tcp://a.test:443']}}", name="bench")
    return calm_of(reach.rules(document, "payments").limits)


def heartbeats(shape: Shape, *, settle: bool = True) -> Iterator[list[Reported]]:
    """All vantages' parts, heartbeat by heartbeat, as the center gives them to ledger and journal."""
    rng, columns = Random("journal"), Columns()
    scope = Scope(cluster="payments")
    names = [LineId(f"payments/l{number:05d}") for number in range(shape.lines)]
    seen = {VantageId(f"a{number}"): [Watched(columns, rng, shape.loss) for _ in names] for number in range(VANTAGES)}
    settling, limits = Settling(), calm()
    now = WARM_UP
    while now < WARM_UP + shape.seconds:
        parts = []
        for vantage, windows in seen.items():
            readings = [(name, watched.reading(now)) for name, watched in zip(names, windows, strict=True)]
            for at in range(0, len(readings), SLICE):
                part = tuple(readings[at : at + SLICE])
                said = settling.settled(vantage, part, limits) if settle else part
                parts.append(Reported(scope=scope, at_ms=round(1_000 * now), vantage=vantage, readings=said))
        yield parts
        now += shape.heartbeat


def bytes_per_reading(shape: Shape, *, settle: bool = True) -> float:
    """Growth of a segment behind the first heartbeats, which name the shapes."""
    with TemporaryDirectory() as directory:
        meta = Meta(release=__version__, epoch=1, number=1, first=1, chain=ROOT, opened_ms=0, opened_unix_ms=0)
        path = create(Path(directory), meta)
        writer, seq, begun, readings = SegmentWriter(path, meta), 0, 0, 0
        for number, parts in enumerate(heartbeats(shape, settle=settle)):
            rows = [(seq + at, part) for at, part in enumerate(parts, 1)]
            writer.write(rows)
            seq += len(rows)
            if number == 1:
                begun = settled_size(writer, path)
            elif number > 1:
                readings += sum(len(part.readings) for part in parts)
        grown = settled_size(writer, path) - begun
        writer.close()
        return grown / readings


def settled_size(writer: SegmentWriter, path: Path) -> int:
    """Bytes of the file once its log is folded in."""
    writer.checkpoint()
    return size_of(path)


def per_day(shape: Shape, *, settle: bool = True) -> Figure:
    """Gigabytes a day of the whole."""
    each = bytes_per_reading(shape, settle=settle)
    gigabytes = each * LINES * VANTAGES * DAY / shape.heartbeat / 1e9
    exact = "" if settle else ", figures exact"
    what = (
        f"{LINES} lines × {VANTAGES}, each {shape.heartbeat:g} s, loss {shape.loss:.1%}{exact} ({each:.2f} B a reading)"
    )
    bound = "1" if settle and shape.heartbeat >= 10 else ""
    return Figure(what, "GB/day", gigabytes, gigabytes, gigabytes, 1, bound)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes `benchmarks/results/journal.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--beats", type=int, default=20, help="heartbeats measured")
    chosen = parser.parse_args(arguments)
    figures = []
    for heartbeat in (10.0, 2.0):
        for loss in (0.0, 0.004):
            shape = Shape(chosen.lines, (chosen.beats + 2) * heartbeat, heartbeat, loss)
            figures += [per_day(shape, settle=False), per_day(shape)]
    finish("journal", figures)


if __name__ == "__main__":
    main()
