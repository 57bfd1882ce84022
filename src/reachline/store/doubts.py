"""What recorded evidence cannot answer about other settings, in words. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from statistics import median
from typing import Final

from reachline.core.rules import Rules
from reachline.core.settling import NEAR, NEAR_MEAN
from reachline.core.zone import calm_of
from reachline.model import Line, LineId, VantageId
from reachline.store.records import Reported

__all__ = ["Doubts"]

_NAMED: Final = 3
"""Lines a warning names before it only counts them."""
_BEATS: Final = 200
"""Intervals between heartbeats that are enough to know them."""
_NEVER_US: Final = 2**31


class Doubts:
    """One cluster's: told of everything that is read, asked at the end."""

    def __init__(self, lines: Iterable[Line], rules: Rules) -> None:
        self._wanted, self._rules = {line.id for line in lines}, rules
        self._by: dict[tuple[int | None, int | None], Rules] = {}
        self._known: set[LineId] = set()
        self._seen: set[LineId] = set()
        self._heard: dict[VantageId, tuple[LineId, int]] = {}
        self._beats: list[int] = []

    def judged_by(self, rules: Rules, lines: Collection[LineId]) -> None:
        """Rules and lines in force where evidence was recorded."""
        self._by[_slow(rules)] = rules
        self._known |= set(lines)

    def reported(self, record: Reported) -> None:
        """One part of a heartbeat."""
        self._seen.update(line for line, _ in record.readings)
        if not record.readings:
            return
        first, vantage = record.readings[0][0], record.vantage
        line, at_ms = self._heard.setdefault(vantage, (first, record.at_ms))
        if line == first and record.at_ms > at_ms:
            self._heard[vantage] = (first, record.at_ms)
            if len(self._beats) < _BEATS:
                self._beats.append(record.at_ms - at_ms)

    def told(self, vantages: Collection[VantageId], names: Mapping[LineId, LineId]) -> tuple[str, ...]:
        """All that is to be said; `vantages` are those that the settings name, `names` what lines are called there."""
        found = [*self._of_limits(), *self._of_pace()]
        if silent := sorted(vantages - self._heard.keys()):
            found.append(f"never heard in this span, but counted for the quorum: {_some(silent)}")
        if unseen := sorted(self._wanted - {names.get(line, line) for line in self._seen}):
            found.append(f"no evidence in this span: {_some(unseen)}")
        if left := sorted({names.get(line, line) for line in self._known} - self._wanted):
            found.append(f"recorded, but not in the settings: {_some(left)}")
        return tuple(found)

    def _of_pace(self) -> Iterable[str]:
        if self._beats and (beat := median(self._beats)) > 1.5 * self._rules.tick_ms:
            yield (
                f"evidence came every {beat / 1_000:g} s and the settings tick every {self._rules.tick_ms / 1_000:g} s: "
                "times to act are longer than they would be"
            )

    def _of_limits(self) -> Iterable[str]:
        wanted = _slow(self._rules)
        for limits, rules in self._by.items():
            if self._rules.questions and limits != wanted:
                yield (
                    f"slow answers were counted above {_ms(limits[0])} and {_ms(limits[1])}, the settings say {_ms(wanted[0])} "
                    f"and {_ms(wanted[1])}: what latency alone would have done is not known"
                )
            yield from _held(rules, self._rules)


def _held(recorded: Rules, wanted: Rules) -> Iterable[str]:
    """Below the recorded limits figures are held still; limits down there meet figures that are only nearly right."""
    was, now = calm_of(recorded.limits), calm_of(wanted.limits)
    for name, above, limit, near in (
        ("P95", was.p95_us, now.p95_us, NEAR),
        ("EWMA", was.ewma_us, now.ewma_us, NEAR_MEAN),
        ("jitter", was.jitter_us, now.jitter_us, NEAR_MEAN),
    ):
        if limit < above:
            yield (
                f"{name} below {_ms(above)} is recorded within {100 // near} % only, and the settings have a limit at {_ms(limit)}"
            )


def _slow(rules: Rules) -> tuple[int | None, int | None]:
    """Microseconds above which an agent counts an answer as slow, and as crawling."""
    limit = next((one for one in rules.limits if one.metric == "p95"), None)
    return (None, None) if limit is None else (limit.degraded_enter, limit.failed_enter)


def _ms(limit_us: int | None) -> str:
    return "no limit" if limit_us is None or limit_us >= _NEVER_US else f"{limit_us / 1_000:g} ms"


def _some(names: list[LineId] | list[VantageId]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
