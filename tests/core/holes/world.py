"""A center's judge and what reaches it: a document through its door, a ledger, and what vantages and clients say of its lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from reachline.core.ledger import Closed, Ledger
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.doors import reach
from reachline.model import Counts, Gate, Health, Kind, LineId, Outcome, Reading, Standing, VantageId, Version, Zone
from reachline.testing import builders

__all__ = ["DEAD", "FRESH", "MILD", "SLOW", "WELL", "World", "attempts", "line_id", "ruled"]

WELL = builders.reading(ok=200)
"""60 ms, P95 110 ms, nothing lost…"""
SLOW = builders.reading(ok=200, p50_us=140_000, p95_us=270_000, ewma_us=140_000)
"""…degraded by its P95 alone…"""
DEAD = builders.reading(ok=0, late=200, rounds_ok=0, p50_us=None, p95_us=None, ewma_us=None)
"""…nothing was answered."""
SAID = {"H": WELL, "D": SLOW, "F": DEAD, "N": Reading(Kind.TCP)}

FRESH = builders.reading(ok=5)
"""`fast` mode: five attempts since the last tick, all well…"""
MILD = FRESH._replace(fresh_slow=3)
"""…three of them above the degraded limit…"""
ADDED = {
    "H": FRESH,
    "D": MILD,
    "F": builders.reading(ok=0, late=5, rounds_ok=0, p50_us=None, p95_us=None, ewma_us=None),
    "N": Reading(Kind.TCP),
}
NONE: Mapping[str, Reading] = MappingProxyType({})
NO_CALLS: Mapping[str, tuple[int, int]] = MappingProxyType({})


def line_id(name: str) -> LineId:
    return LineId(f"payments/{name}")


def attempts(ok: int = 0, *, late: int = 0, lost: int = 0, p95_ms: int = 110) -> Reading:
    """A window of these attempts, one packet each."""
    counts = Counts(ok=ok, late=late)
    return WELL._replace(counts=counts, sent=counts.attempts, lost=lost, answered=ok, p95_us=1_000 * p95_ms)


def ruled(rules: Rules, **parts: Mapping[str, object]) -> Rules:
    """These rules with some fields of some of their parts changed."""
    return replace(rules, **{part: getattr(rules, part)._replace(**fields) for part, fields in parts.items()})


class World:
    """Some lines, some vantages. `more` are further top-level keys of the document, `cluster` of its only cluster."""

    def __init__(
        self,
        more: str = "",
        *,
        mode: str = "literal",
        lines: str | Mapping[str, str] = "abc",
        cluster: str = "",
        vantages: int = 3,
    ) -> None:
        keys = dict.fromkeys(lines, "") if isinstance(lines, str) else lines
        listed = "".join(f'      {name}: {{to: "tcp://{name}.test:443"{more}}}\n' for name, more in keys.items())
        listing = "".join(f"    {key}\n" for key in cluster.splitlines())
        text = f"schema_version: 1\nmode: {mode}\n{more}\nclusters:\n  payments:\n{listing}    lines:\n{listed}"
        self.document = reach.read(text, name="reachline.yaml")
        self.rules = reach.rules(self.document, "payments")
        self.vantages = builders.vantages(vantages)
        self.now_ms = 0
        self.ledger = Ledger(
            builders.scope(),
            reach.lines(self.document, "payments"),
            self.rules,
            vantages=frozenset(self.vantages),
            version=Version(1, 0),
            now_ms=0,
        )

    def tick(
        self,
        zones: str = "HHH",
        *,
        odd: Mapping[int, str] | None = None,
        calls: Mapping[str, tuple[int, int]] = NO_CALLS,
        clients: Sequence[str] = ("app",),
        late: bool = False,
        times: int = 1,
    ) -> Closed:
        """All vantages say these zones of the lines in turn (`-`: nothing), but those by place in `odd` say others; of each
        client come (ok, bad) calls in the window now open.
        """
        for _ in range(times):
            self.now_ms += self.rules.tick_ms
            for place, vantage in enumerate(self.vantages):
                self.say(vantage, (odd or {}).get(place, zones))
            for client in clients if calls else ():
                self.call(client, calls, late=late)
            closed = self.ledger.close(self.now_ms)
        return closed

    def say(self, vantage: VantageId, zones: str) -> None:
        """What one vantage reports of the lines in turn, just before the tick."""
        said = ADDED if self.rules.questions else SAID
        told = [(line, said[zone]) for line, zone in zip(self.ledger.lines, zones, strict=False) if zone != "-"]
        self.ledger.report(vantage, told, now_ms=self.now_ms - 100)

    def see(self, *readings: Reading, of: str = "a", times: int = 1) -> Zone:
        """All vantages report these of one line; the common zone after the tick."""
        for _ in range(times):
            self.now_ms += self.rules.tick_ms
            self.hear(dict.fromkeys(self.vantages, readings), of=of)
            self.ledger.close(self.now_ms)
        return self.row(of).zone

    def hear(self, said: Mapping[VantageId, Iterable[Reading]], *, of: str = "a") -> None:
        """What vantages report of one line, just before the tick."""
        for vantage, readings in said.items():
            self.ledger.report(vantage, [(line_id(of), one) for one in readings], now_ms=self.now_ms - 100)

    def call(
        self, client: str, calls: Mapping[str, tuple[int, int]], *, late: bool = False, window: int | None = None
    ) -> None:
        """(ok, bad) calls of one client, in the window that is open or in this one."""
        rows = [
            Outcome(
                line_id(name),
                window=self.row(name).breaker.window if window is None else window,
                ok=ok,
                failed=0 if late else bad,
                late=bad if late else 0,
            )
            for name, (ok, bad) in calls.items()
        ]
        self.ledger.outcomes(client, rows, now_ms=self.now_ms - 50)

    def wait(self) -> Closed:
        """A tick in which nothing is heard."""
        self.now_ms += self.rules.tick_ms
        return self.ledger.close(self.now_ms)

    def row(self, name: str = "a") -> Row:
        return self.ledger.rows[line_id(name)]

    def standing(self, name: str = "a") -> Standing:
        return self.ledger.board.standings[line_id(name)]

    def weight(self, name: str = "a") -> int:
        return self.standing(name).weight

    def health(self, name: str = "a") -> Health:
        return self.row(name).judgement.health

    def gate(self, name: str = "a") -> Gate:
        return self.row(name).breaker.gate

    def opened(self) -> World:
        """With line a out."""
        for zones in ("HHH", "HHH", "HHH", *6 * ["FHH"]):
            if self.gate() is Gate.CLOSED:
                self.tick(zones)
        assert self.gate() is Gate.OPEN
        return self

    def tried(self) -> World:
        """With line a on trial, for the first time or again."""
        if self.gate() is Gate.CLOSED:
            self.opened()
        for _ in range(120):
            if self.gate() is Gate.HALF_OPEN:
                return self
            self.tick("HHH")
        raise AssertionError("no trial began")
