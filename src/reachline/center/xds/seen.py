"""What people want to see of data planes' evidence on a line: calls of the last seconds by who told, and what endpoints say of
themselves (ORCA). In memory and bounded; nothing here is evidence, and a restart forgets it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from reachline.model import LineId, Outcome
from reachline.wire.lrs import Metric

__all__ = ["Seen"]

_SPAN_MS: Final = 10_000
"""As long as the business's calls count (`business.span`): two spans, the running one and the one before, are told of."""
_MOST: Final = 20_000
"""Lines times tellers that are remembered; the oldest word is forgotten first."""
_FRESH_MS: Final = 60_000
"""Older words say nothing of now."""


@dataclass(slots=True)
class _Calls:
    """Calls of one teller on one line: sums of the running span and of the one before."""

    since_ms: int
    at_ms: int
    now: list[int] = field(default_factory=lambda: [0] * 7)
    before: list[int] = field(default_factory=lambda: [0] * 7)
    before_ms: int = 0
    """When that began; 0: there is none."""

    def add(self, row: Outcome, now_ms: int) -> None:
        if now_ms - self.since_ms >= _SPAN_MS:
            is_next = now_ms - self.since_ms < 2 * _SPAN_MS
            self.before, self.before_ms = (self.now, self.since_ms) if is_next else ([0] * 7, 0)
            self.now, self.since_ms = [0] * 7, now_ms
        self.now = [one + two for one, two in zip(self.now, row[3:], strict=True)]
        self.at_ms = now_ms


class Seen:
    """Written by `Planes`."""

    def __init__(self) -> None:
        self._calls: dict[tuple[LineId, str], _Calls] = {}
        self._metrics: dict[tuple[LineId, str], tuple[int, tuple[Metric, ...]]] = {}

    def calls(self, teller: str, rows: Sequence[Outcome], now_ms: int) -> None:
        """One post of one teller."""
        for row in rows:
            known = self._calls.pop((row.line, teller), None) or _Calls(now_ms, now_ms)
            known.add(row, now_ms)
            self._calls[row.line, teller] = known
        while len(self._calls) > _MOST:
            del self._calls[next(iter(self._calls))]

    def metrics(self, line: LineId, teller: str, metrics: tuple[Metric, ...], now_ms: int) -> None:
        """What the line's endpoints said of themselves in one interval."""
        self._metrics.pop((line, teller), None)
        self._metrics[line, teller] = (now_ms, metrics)
        while len(self._metrics) > _MOST:
            del self._metrics[next(iter(self._metrics))]

    def keep(self, lines: Container[LineId]) -> None:
        """Only these lines are still in the document."""
        self._calls = {key: known for key, known in self._calls.items() if key[0] in lines}
        self._metrics = {key: known for key, known in self._metrics.items() if key[0] in lines}

    def told(self, line: LineId, now_ms: int) -> list[tuple[str, int, str]]:
        """Who told, when, and what in words, of this line lately; by teller."""
        return sorted(self._told(line, now_ms))

    def _told(self, line: LineId, now_ms: int) -> Iterator[tuple[str, int, str]]:
        for (each, teller), known in self._calls.items():
            if each == line and now_ms - known.at_ms < _FRESH_MS:
                yield teller, known.at_ms, _words(known, now_ms)
        for (each, teller), (at_ms, metrics) in self._metrics.items():
            if each == line and now_ms - at_ms < _FRESH_MS:
                yield f"orca:{teller}", at_ms, ", ".join(map(_mean, metrics))


def _mean(metric: Metric) -> str:
    return f"{metric.name} {metric.total / metric.answers:.4g} (mean of {metric.answers} answers)"


def _words(known: _Calls, now_ms: int) -> str:
    ok, failed, late, errors, timed, slow, crawl = (a + b for a, b in zip(known.now, known.before, strict=True))
    span = (now_ms - (known.before_ms or known.since_ms)) / 1_000
    bad = [
        f"{count} {what}"
        for count, what in ((failed, "failed"), (late, "timed out"), (errors, "server errors"))
        if count
    ]
    slowness = [f"{slow} of {timed} timed were slow"] if slow else []
    slowness += [f"{crawl} crawled"] if crawl else []
    calls = f"{ok + failed + late + errors} calls in {max(span, 1):.0f} s"
    return ", ".join([calls, *bad, *slowness] if bad or slowness else [calls, "none bad"])
