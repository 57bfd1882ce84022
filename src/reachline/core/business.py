"""The business's own calls as evidence: kept over the last ten seconds, by line, client and service, and what they say of a line.

Written by its ledger only. The scope test comes first: calls whose failing is a service's or one caller's fault are not held
against the line. Knows no vantage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reachline.core.cusum import NOTHING, Evidence
from reachline.core.rules import BusinessRules, Limit, Rules
from reachline.core.scope import Cause, Key, Seen, causes, is_kept, is_suspect, summed
from reachline.core.zone import is_over
from reachline.model import LineId, Zone

__all__ = ["UNKNOWN", "Business", "Span", "Word", "limits_of"]

_SLOW: Final = (
    Limit("slow", 50, 40, None, None, 20),
    Limit("crawl", None, None, 50, 40, 20),
)
"""The P95 of calls is above a limit where more than 5 % of them are."""
_RATES: Final = (
    Limit("timeout", 20, 10, 50, 30, 25),
    Limit("errors", 20, 10, 100, 50, 5),
)
"""For rules that name no limits of their own: the table's."""


class Word(NamedTuple):
    """What the business says of a line: its zone (N: too few calls, or too few callers), why, and whose fault it is if not the line's."""

    zone: Zone
    metric: str = ""
    numerator: int = 0
    denominator: int = 0
    limit: int = 0
    calls: int = 0
    clients: int = 0
    causes: tuple[Cause, ...] = ()
    held: tuple[tuple[str, int], ...] = ()
    """Metrics it holds in D (1) or F (2)."""


UNKNOWN: Final = Word(Zone.N)


@dataclass(slots=True)
class Span:
    """The calls between two ticks: rows by line, and who called. What follows from them is worked out where somebody asks."""

    rows: dict[LineId, dict[Key, Seen]] = field(default_factory=dict)
    clients: set[str] = field(default_factory=set)
    suspects: set[LineId] = field(default_factory=set)
    """Lines with anything bad among their calls: of all others the calls speak well."""
    _wholes: dict[LineId, Seen] = field(default_factory=dict)
    """Of each line that somebody asked for since the last call was added."""

    def add(self, line: LineId, key: Key, seen: Seen) -> None:
        """These calls too."""
        rows = self.rows.get(line)
        if rows is None:
            rows = self.rows[line] = {}
        was = rows.get(key)
        rows[key] = seen if was is None else was.plus(seen)
        self.clients.add(key[0])
        _, failed, late, errors, _, slow, _ = seen
        if failed or late or errors or slow:
            self.suspects.add(line)
        if self._wholes:
            self._wholes.clear()

    def whole(self, line: LineId) -> Seen | None:
        """All calls of the line; None where there is none."""
        found = self._wholes.get(line)
        if found is None and (rows := self.rows.get(line)):
            found = self._wholes[line] = summed(rows.values())
        return found

    def services(self) -> dict[str, Seen]:
        """All calls of each service."""
        found: dict[str, list[Seen]] = {}
        for rows in self.rows.values():
            for (_, service), seen in rows.items():
                found.setdefault(service, []).append(seen)
        return {service: summed(each) for service, each in found.items()}


def limits_of(rules: Rules) -> tuple[Limit, ...]:
    """Those that calls are held against: the line's own for rates, and its P95's as shares of slow calls."""
    own = {limit.metric: limit for limit in rules.limits}
    return (*(own.get(limit.metric, limit) for limit in _RATES), *_SLOW)


class Business:
    """Calls since the last tick, and of the ticks before it that still count."""

    def __init__(self) -> None:
        self.pending = Span()
        self.spans: tuple[tuple[int, Span], ...] = ()
        """Closed ones by the ms they ended at; nobody changes them any more."""

    def turn(self, now_ms: int, rules: BusinessRules) -> None:
        """A tick ends: what was pending is closed, what is too old is forgotten."""
        kept = tuple(item for item in self.spans if item[0] > now_ms - rules.span_ms)
        self.spans = (*kept, (now_ms, self.pending))
        self.pending = Span()

    def keep(self, lines: Mapping[LineId, LineId]) -> None:
        """Lines under other names: each as it was called before (empty: it is new); others are forgotten."""
        names = {old: new for new, old in lines.items() if old}

        def moved(span: Span) -> Span:
            found = Span()
            for line, rows in span.rows.items():
                for key, seen in rows.items() if line in names else ():
                    found.add(names[line], key, seen)
            return found

        self.pending, self.spans = moved(self.pending), tuple((at, moved(span)) for at, span in self.spans)

    @property
    def newest(self) -> Span:
        """Of the tick that ends now; call `turn` first."""
        return self.spans[-1][1] if self.spans else self.pending

    def called(self) -> set[LineId]:
        """Lines of which there are any calls that still count."""
        return set().union(*[span.rows for _, span in self.spans])

    def callers(self, line: LineId) -> tuple[str, ...]:
        """Who told of calls on it that still count."""
        return tuple(sorted({client for _, span in self.spans for client, _ in span.rows.get(line, ())}))

    def suspects(self) -> set[LineId]:
        """Lines called since the last tick with anything bad among it; not to be written."""
        return self.newest.suspects

    def word(self, line: LineId, held: Iterable[tuple[str, int]], rules: Rules) -> Word:
        """What the calls of the last ten seconds say of the line; `held` are the metrics it was in D or F by."""
        spans = [span for _, span in self.spans if line in span.rows]
        whole = summed(known for span in spans if (known := span.whole(line)) is not None)
        callers = {client for span in spans for client, _ in span.rows[line]}
        wanted = min(rules.business.clients, len({client for _, span in self.spans for client in span.clients}))
        if whole.calls < rules.business.minimum or len(callers) < wanted:
            return UNKNOWN._replace(calls=whole.calls, clients=len(callers))
        found = self._causes(line, [span for _, span in self.spans], rules) if is_suspect(whole) else ()
        kept = {
            aspect: self._kept(spans, line, aspect, found) if found else whole for aspect in ("failed", "slow", "crawl")
        }
        word = _judged(kept, dict(held), rules)
        return word._replace(calls=whole.calls, clients=len(callers), causes=found)

    def evidence(self, line: LineId, rules: Rules) -> Evidence:
        """`fast` mode: the calls since the last tick that are held against the line, or for it."""
        newest = self.newest
        whole = newest.whole(line)
        if whole is None:
            return NOTHING
        found: tuple[Cause, ...] = ()
        if is_suspect(whole):
            found = self._causes(line, [span for _, span in self.spans], rules) or self._causes(line, [newest], rules)
        failed = self._kept([newest], line, "failed", found) if found else whole
        slow = self._kept([newest], line, "slow", found) if found else whole
        crawl = self._kept([newest], line, "crawl", found) if found else whole
        timed = min(slow.timed, crawl.timed)
        return Evidence(
            failed.calls,
            failed.failed + failed.late,
            min(slow.slow, timed),
            min(crawl.crawl, timed),
            failed.errors,
            timed,
        )

    def _causes(self, line: LineId, spans: Iterable[Span], rules: Rules) -> tuple[Cause, ...]:
        """Whose fault what is bad in these spans is."""
        rows: dict[Key, list[Seen]] = {}
        services: dict[str, list[Seen]] = {}
        for span in spans:
            for key, seen in span.rows.get(line, {}).items():
                rows.setdefault(key, []).append(seen)
            for name, seen in span.services().items():
                services.setdefault(name, []).append(seen)
        return causes(
            {key: summed(seen) for key, seen in rows.items()},
            {name: summed(seen) for name, seen in services.items()},
            rules.business.apart_milli,
        )

    def _kept(self, spans: Iterable[Span], line: LineId, aspect: str, found: Iterable[Cause]) -> Seen:
        blamed = tuple(found)
        return summed(
            seen for span in spans for key, seen in span.rows.get(line, {}).items() if is_kept(key, aspect, blamed)
        )


def _judged(kept: Mapping[str, Seen], held: Mapping[str, int], rules: Rules) -> Word:
    """The worst zone over the metrics; H where none is over a limit, N where nothing is left to judge by."""
    failing = kept["failed"]
    known = {
        "timeout": (failing.late, failing.calls),
        "errors": (failing.failed + failing.errors, failing.calls),
        "slow": (kept["slow"].slow, kept["slow"].timed),
        "crawl": (kept["crawl"].crawl, kept["crawl"].timed),
    }
    if failing.calls < rules.business.minimum:
        return UNKNOWN
    worst, grip = Word(Zone.H), []
    for limit in limits_of(rules):
        numerator, denominator = known[limit.metric]
        zone = _level(limit, numerator, denominator, held.get(limit.metric, 0), rules.gate_milli)
        if zone is not Zone.H:
            grip.append((limit.metric, zone.value))
        if zone.value > worst.zone.value:
            enter = limit.failed_enter if zone is Zone.F else limit.degraded_enter
            worst = Word(zone, limit.metric, numerator, denominator, enter or 0)
    return worst._replace(held=tuple(grip))


def _level(limit: Limit, numerator: int, denominator: int, held: int, z_milli: int) -> Zone:
    if denominator < max(limit.minimum, 1):
        return Zone.H
    for zone, enter, leave in (
        (Zone.F, limit.failed_enter, limit.failed_exit),
        (Zone.D, limit.degraded_enter, limit.degraded_exit),
    ):
        if enter is not None:
            floor = enter if leave is None else leave
            is_held = held >= zone.value
            if is_over(numerator, denominator, level=enter, leave=floor, held=is_held, z_milli=z_milli):
                return zone
    return Zone.H
