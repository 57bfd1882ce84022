"""What people want to see of a line beside its standing: the newest readings, pooled figures, the last 15 minutes.

In memory and bounded; nothing here is evidence, and a restart forgets it. Replayed heartbeats may come in here.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from reachline.core import histogram, words
from reachline.errors import RemoteProtocolError, one_line
from reachline.model import CENSORED_US, HELPERS, Kind, LineId, Reading, Seconds, VantageId
from reachline.wire import view
from reachline.wire.frame import Connections, Detail, Phases, Ports, Report

__all__ = ["HISTORY", "Point", "Readings", "Seen", "detail_row", "told_paths"]

HISTORY: Final[Seconds] = 900.0
"""Fifteen minutes: an incident from its first sign to the end of the default ramp (210 s), with what came before."""
_LEFT_MS: Final = 60_000
"""What a vantage that left said last is shown this long: a restart passes unseen…"""
_MOST_LEFT: Final = 64
"""…but of no more than these, the newest: ids that come once and never again are forgotten however fast they come."""
_MOST_POINTS: Final = 900
"""One a second at most, whatever the tick."""
_CLOCKS: Final = ("kernel", "receive stamp", "application")
_TELLING: Final = tuple(sorted(Kind, key=HELPERS.__contains__))
"""Whose RTT a list shows when a line has several probe kinds: what decides over it, and first what the kernel measures best."""


class Seen(NamedTuple):
    """The newest report of one vantage by one kind, and when it arrived."""

    at_ms: int
    reading: Reading
    detail: Detail
    replayed: bool = False
    """From a time without a center: shown where nothing newer is known, and in no figure."""


class Point(NamedTuple):
    """One point of a line's history."""

    at_ms: int
    p50: Seconds | None
    p95: Seconds | None
    loss: float | None
    timeout: float | None
    weight: int


class _Ring:
    """The last points of one line in flat arrays: 28 bytes each, where tuples would take 200. NaN stands for None inside."""

    __slots__ = ("_at", "_next", "_size", "_values")

    _COLUMNS: Final = 5

    def __init__(self, size: int) -> None:
        self._size = size
        self._next = 0
        self._at = array("q")
        self._values = array("f")

    def add(self, point: Point) -> None:
        """The oldest point makes room once the ring is full."""
        row = array("f", (math.nan if value is None else value for value in point[1:]))
        if len(self._at) < self._size:
            self._at.append(point.at_ms)
            self._values.extend(row)
            return
        place = self._next * self._COLUMNS
        self._at[self._next] = point.at_ms
        self._values[place : place + self._COLUMNS] = row
        self._next = (self._next + 1) % self._size

    def __iter__(self) -> Iterator[Point]:
        """Oldest first."""
        for offset in range(len(self._at)):
            at = (self._next + offset) % len(self._at)
            p50, p95, loss, timeout, weight = self._values[at * self._COLUMNS : (at + 1) * self._COLUMNS]
            yield Point(self._at[at], _known(p50), _known(p95), _known(loss), _known(timeout), round(weight))


def _known(value: float) -> float | None:
    # A float32 has seven digits: a microsecond of ten seconds.
    return None if math.isnan(value) else round(value, 6)


class Readings:
    """Written by the owner's task, read by everybody on the same loop."""

    def __init__(self) -> None:
        self._seen: dict[LineId, dict[tuple[VantageId, Kind], Seen]] = {}
        self._heard: dict[VantageId, int] = {}
        """When each vantage last said anything."""
        self._skipped: dict[LineId, int] = {}
        self._rings: dict[LineId, _Ring] = {}
        self._figures: dict[LineId, tuple[int, view.Figures]] = {}
        """Computed figures and until when they hold if nothing new arrives."""

    def take(self, vantage: VantageId, reports: Iterable[Report], now_ms: int, *, replayed: bool = False) -> None:
        """The newest reports of one vantage replace its older ones; a replayed one only fills a hole."""
        for report in reports:
            by_vantage = self._seen.setdefault(LineId(report.line), {})
            key = (vantage, report.reading.kind)
            if replayed and key in by_vantage and not by_vantage[key].replayed:
                continue
            by_vantage[key] = Seen(now_ms, report.reading, report.detail, replayed)
            if report.detail.skipped:
                line = LineId(report.line)
                self._skipped[line] = self._skipped.get(line, 0) + report.detail.skipped
            self._figures.pop(LineId(report.line), None)
            self._heard[vantage] = now_ms

    def members(self, known: Collection[VantageId], now_ms: int) -> None:
        """Vantages that are none of these, and said nothing lately, are forgotten."""
        left = sorted((-at_ms, one) for one, at_ms in self._heard.items() if one not in known)
        gone = {one for place, (at, one) in enumerate(left) if place >= _MOST_LEFT or -at < now_ms - _LEFT_MS}
        if not gone:
            return
        self._heard = {one: at_ms for one, at_ms in self._heard.items() if one not in gone}
        for line, seen in self._seen.items():
            self._seen[line] = {key: row for key, row in seen.items() if key[0] not in gone}

    def keep(self, lines: frozenset[LineId]) -> None:
        """Lines that left the document are forgotten."""
        for gone in self._seen.keys() - lines:
            del self._seen[gone]
        for gone in self._skipped.keys() - lines:
            del self._skipped[gone]
        for gone in self._rings.keys() - lines:
            del self._rings[gone]
        for gone in self._figures.keys() - lines:
            del self._figures[gone]

    def mark(self, line: LineId, weight: int, now_ms: int, *, fresh_ms: int, every_ms: int) -> None:
        """One more point of the line's history; `every_ms` is the distance at which they come."""
        ring = self._rings.get(line)
        if ring is None:
            size = min(_MOST_POINTS, max(1, round(HISTORY * 1000 / every_ms)))
            ring = self._rings[line] = _Ring(size)
        figures = self.figures(line, now_ms, fresh_ms=fresh_ms)
        ring.add(Point(now_ms, figures.p50, figures.p95, figures.loss, figures.timeout, weight))

    def history(self, line: LineId) -> tuple[Point, ...]:
        """The line's points, oldest first."""
        return tuple(self._rings.get(line, ()))

    def seen(self, line: LineId) -> Mapping[tuple[VantageId, Kind], Seen]:
        """The newest report of each vantage and kind."""
        return self._seen.get(line, {})

    def skipped(self, line: LineId) -> int:
        """Rounds that agents left out since we began: their doing, not the line's."""
        return self._skipped.get(line, 0)

    def figures(self, line: LineId, now_ms: int, *, fresh_ms: int) -> view.Figures:
        """Pooled over the vantages heard within `fresh_ms`: rates by their counts, percentiles by merged histograms."""
        kept = self._figures.get(line)
        if kept is not None and now_ms <= kept[0]:
            return kept[1]
        rows = [(kind, seen) for (_, kind), seen in self._seen.get(line, {}).items()]
        fresh = [row for row in rows if now_ms - row[1].at_ms <= fresh_ms and not row[1].replayed]
        figures = _pooled([row for row in fresh if not row[1].reading.void])
        self._figures[line] = (min((seen.at_ms for _, seen in fresh), default=now_ms) + fresh_ms, figures)
        return figures


def _pooled(rows: Iterable[tuple[Kind, Seen]]) -> view.Figures:
    by_kind: dict[Kind, list[Seen]] = {}
    for kind, seen in rows:
        by_kind.setdefault(kind, []).append(seen)
    telling = next((kind for kind in _TELLING if kind in by_kind), None)
    if telling is None:
        return view.NO_FIGURES
    # DNS is advisory: its losses say nothing about the line itself, unless it is all there is.
    judged = [rows for kind, rows in by_kind.items() if kind is not Kind.DNS] or [by_kind[telling]]
    return _rtts(telling, by_kind[telling])._replace(
        loss=_worst(judged, lambda reading: (reading.lost, reading.sent)),
        timeout=_worst(judged, lambda reading: (reading.counts.late, reading.counts.attempts)),
    )


def _worst(kinds: Iterable[Iterable[Seen]], of: Callable[[Reading], tuple[int, int]]) -> float | None:
    """The worst kind's pooled rate, None where no kind has a denominator."""
    rates = []
    for rows in kinds:
        pairs = [of(seen.reading) for seen in rows]
        if total := sum(denominator for _, denominator in pairs):
            rates.append(round(sum(numerator for numerator, _ in pairs) / total, 6))
    return max(rates, default=None)


def _rtts(kind: Kind, rows: list[Seen]) -> view.Figures:
    merged = [one for seen in rows if (one := _histogram(seen.detail.histogram)) is not None]
    middle_ewma = _middle([row.reading.ewma_us for row in rows])
    p50: float | None
    p95: float | None
    if len(rows) == 1 or not merged:
        p50, p95 = _middle([row.reading.p50_us for row in rows]), _middle([_answered_p95(row) for row in rows])
    else:
        p50, p95 = _quantiles(merged)
    return view.Figures(
        p95=_seconds(p95),
        p50=_seconds(p50),
        ewma=_seconds(middle_ewma),
        jitter=_seconds(_middle([row.reading.jitter_us for row in rows])),
        kind=kind.value,
    )


def _quantiles(histograms: list[histogram.Histogram]) -> tuple[float | None, float | None]:
    """P50 and P95 of all together. Agents send one scale, so that a sort is all it takes."""
    scale = histograms[0].scale
    if any(each.scale != scale for each in histograms):
        pool = histogram.merged(*histograms)
    else:
        pool = histogram.Histogram(
            scale=scale, buckets=tuple(sorted(chain.from_iterable(h.buckets for h in histograms)))
        )
    return pool.quantile(0.5), pool.quantile(0.95)


def _answered_p95(row: Seen) -> int | None:
    """Of answered attempts: the judged one counts losses as endless, which a list shows as loss."""
    return row.detail.p95_answered_us if row.detail.p95_answered_us is not None else row.reading.p95_us


def _middle(values: Iterable[int | None]) -> int | None:
    """The median vantage's (the higher of two), for figures that do not merge."""
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None


def _seconds(microseconds: float | None) -> Seconds | None:
    # An attempt that was never answered has no RTT to show.
    return None if microseconds is None or microseconds >= CENSORED_US else round(microseconds / 1e6, 6)


def _histogram(data: bytes) -> histogram.Histogram | None:
    """None where there is none; a malformed one is a fault of display only."""
    if not data:
        return None
    try:
        found = histogram.decode(data)
    except RemoteProtocolError:
        return None
    return found if found.buckets else None


def told_paths(ports: Ports | None) -> str:
    """What connects from many source ports show of the paths behind a line, in words; empty where nothing is wrong."""
    if ports is None:
        return ""
    return words.paths(ports.dead, ports.tried, parts=ports.parts, bucket=ports.bucket, shift=ports.shift)


def _paths(ports: Ports | None) -> dict[str, object] | None:
    if ports is None:
        return None
    return {
        "dead": ports.dead,
        "tried": ports.tried,
        "parts": ports.parts or None,
        "bucket": ports.bucket,
        "shift": ports.shift,
        "text": told_paths(ports),
    }


def detail_row(seen: Seen) -> dict[str, object]:
    """What a line's page adds to a reading: the human detail of the same report."""
    detail = seen.detail
    return {
        "replayed": seen.replayed,
        "p95_answered": _seconds(detail.p95_answered_us),
        "last": _seconds(detail.last_us),
        "clock": _CLOCKS[detail.clock] if 0 <= detail.clock < len(_CLOCKS) else None,
        "codes": dict(zip(("1xx", "2xx", "3xx", "4xx", "5xx"), detail.codes, strict=True)),
        "handshake_lost": detail.handshake_lost,
        # Words of targets and proxies may be in them, which nobody's terminal should obey.
        "address": one_line(detail.address),
        "error": one_line(detail.error),
        "skipped": detail.skipped,
        "lateness": _seconds(detail.lateness_us),
        "certificate_days": detail.certificate_days,
        "interval": detail.interval_ms / 1_000 if detail.interval_ms else None,
        "paths": _paths(detail.ports),
        "connections": _connections(detail.connections),
        "phases": _phases(detail.phases),
    }


def _phases(found: Phases | None) -> dict[str, object] | None:
    """Where the time of the newest attempt went; `rest` is what followed the first byte, and the agent's own overhead."""
    if found is None:
        return None
    parts = (found.resolve_us, found.connect_us, found.proxy_us, found.tls_us, found.first_us)
    rest = None if found.total_us is None else max(found.total_us - sum(part or 0 for part in parts), 0)
    names = ("resolve", "connect", "proxy", "tls", "first", "total", "rest")
    return dict(zip(names, map(_seconds, (*parts, found.total_us, rest)), strict=True))


def _connections(found: Connections | None) -> dict[str, object] | None:
    """What the kernel tells of others' connections; None for kinds that ask it nothing."""
    if found is None:
        return None
    return {
        "count": found.count,
        "deviation": _seconds(found.deviation_us),
        "lowest": _seconds(found.lowest_us),
        "delivery": found.delivery,
    }
