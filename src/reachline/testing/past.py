"""A past to ask about: journals with known times and evidence, as a center would have written them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from reachline.core.ledger import Ledger
from reachline.doors import reach
from reachline.model import LineId, Outcome, Reading, Scope, VantageId, Version
from reachline.store.records import Gap, Opened, Outcomes, Record, Reported, Ticked
from reachline.store.segment import ROOT, Meta, SegmentWriter, create
from reachline.store.whatif import Proposed
from reachline.testing.builders import healthy, mute

__all__ = ["SCOPE", "UNIX", "VANTAGES", "Said", "dead", "record", "settings"]

SCOPE: Final = Scope(cluster="payments")
VANTAGES: Final = ("v1", "v2", "v3")
UNIX: Final = 1_800_000_000
"""Wall clock where the journal's clock is 0, unless told otherwise."""
_AGENTS: Final = "agents: {v1: {}, v2: {}, v3: {}}"
_LINES: Final = "lines: {a: 'tcp://a.test:443', b: 'tcp://b.test:443', c: 'tcp://c.test:443'}"
_FIRST: Final = LineId("payments/a")
_BEAT_MS: Final = 10_000

Said = Callable[[int, str, LineId], Reading]
"""What a vantage says of a line in a round."""


def settings(text: str = "", *, cluster: str = "") -> Proposed:
    """The document with these keys on top, and these in the cluster."""
    document = reach.read(f"clusters: {{payments: {{{_LINES}{cluster}}}}}\n{_AGENTS}\n{text}", name="past")
    return Proposed(
        reach.lines(document, "payments"), reach.rules(document, "payments"), reach.vantages(document, "payments")
    )


def record(
    directory: Path,
    said: Said,
    *,
    rounds: int = 40,
    by: Proposed | None = None,
    calls: Mapping[int, Sequence[Outcome]] | None = None,
    cut: int = 0,
    gap: int = 0,
    unix: int = UNIX,
) -> Path:
    """So many rounds of ten seconds in a journal. `cut`: the round in which a second segment begins, `gap`: in which records
    are lost, `calls`: what calls came to in a round.
    """
    directory.mkdir(parents=True, exist_ok=True)
    by = by or settings()
    ledger = Ledger(SCOPE, by.lines, by.rules, vantages=by.vantages, version=Version(1, 0), now_ms=0)
    pen = _Pen(directory, unix)
    pen.put(Opened(scope=SCOPE, at_ms=0, checkpoint=ledger.freeze()))
    for number in range(1, rounds + 1):
        at_ms = number * _BEAT_MS
        if number == cut:
            pen.cut(at_ms)
            pen.put(Opened(scope=SCOPE, at_ms=at_ms, checkpoint=ledger.freeze(), continues=True))
        if number == gap:
            pen.put(Gap(at_ms=at_ms, since_ms=at_ms - _BEAT_MS, lost=5, reason="disk full"))
            pen.put(Opened(scope=SCOPE, at_ms=at_ms, checkpoint=ledger.freeze()))
        _round(pen, ledger, number, said, tuple((calls or {}).get(number, ())))
    pen.close()
    return directory


def _round(pen: _Pen, ledger: Ledger, number: int, said: Said, calls: tuple[Outcome, ...]) -> None:
    at_ms = number * _BEAT_MS
    for vantage in map(VantageId, VANTAGES):
        readings = tuple((line, said(number, vantage, line)) for line in ledger.lines)
        pen.put(Reported(scope=SCOPE, at_ms=at_ms - 500, vantage=vantage, readings=readings))
        ledger.report(vantage, readings, now_ms=at_ms - 500)
    if calls:
        pen.put(Outcomes(scope=SCOPE, at_ms=at_ms - 400, client="c", rows=calls))
        ledger.outcomes("c", calls, now_ms=at_ms - 400)
    closed = ledger.close(at_ms)
    pen.put(Ticked(scope=SCOPE, at_ms=at_ms, changes=closed.changes, digest=closed.digest))


class _Pen:
    """Writes segments, each in one go. Written by `record` alone."""

    def __init__(self, directory: Path, unix: int) -> None:
        self._directory, self._unix, self._seq, self._number = directory, unix, 0, 0
        self._records: list[tuple[int, Record]] = []
        self._writer = self._segment(ROOT, 0)

    def put(self, record: Record) -> None:
        """The next record."""
        self._seq += 1
        self._records.append((self._seq, record))

    def cut(self, at_ms: int) -> None:
        """What follows goes into another segment."""
        self.close()
        self._writer = self._segment(self._writer.chain, at_ms)

    def close(self) -> None:
        """All of it is on disk."""
        self._writer.write(self._records)
        self._records = []
        self._writer.close()

    def _segment(self, chain: bytes, at_ms: int) -> SegmentWriter:
        self._number += 1
        meta = Meta(
            release="past",
            epoch=1,
            number=self._number,
            first=self._seq + 1,
            chain=chain,
            opened_ms=at_ms,
            opened_unix_ms=self._unix * 1_000 + at_ms,
        )
        return SegmentWriter(create(self._directory, meta), meta)


def dead(first: int, last: int, *, line: LineId = _FIRST, vantages: Sequence[str] = VANTAGES) -> Said:
    """These vantages get no answer from the line in these rounds; all is well otherwise."""
    return lambda number, vantage, seen: (
        mute()._replace(fresh_ok=0, fresh_failed=10)
        if first <= number <= last and seen == line and vantage in vantages
        else healthy()._replace(fresh_ok=10)
    )
