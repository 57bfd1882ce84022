"""What the judge obeys, as numbers: frozen, digestible, stored in the journal beside the evidence.

Doors compile a document into `Rules`; nothing in `core` knows where a number came from. Tables of `exp` and of decay are
part of the rules, computed once by the door, so that a replay on another machine multiplies the same integers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, NamedTuple

from reachline.core.cusum import Question
from reachline.core.measures import BreakerRules, GuardRules, LocalRules
from reachline.core.powers import ONE, power, powers
from reachline.errors import JournalError
from reachline.model import Zone

__all__ = [
    "FAULT",
    "ONE",
    "SEMANTICS",
    "SHADOWS",
    "BaselineRules",
    "BreakerRules",
    "BusinessRules",
    "FaultRules",
    "GuardRules",
    "Limit",
    "LocalRules",
    "Patience",
    "QuorumRules",
    "Rules",
    "decode",
    "digest",
    "encode",
    "power",
    "powers",
    "with_tables",
]

SEMANTICS: Final = 3
"""The engine's meaning. Decisions of semantics n replay by n, or are called not comparable."""

FAULT: Final = 1_000_000
"""One fault. Millionths, not thousandths: with thousandths two cells of the document's own trace (62.35, 88.86) round
to a neighbour."""


class Limit(NamedTuple):
    """Where one metric turns degraded and failed, and where it turns back. Rates in 1/1000, RTT in microseconds.

    `metric` is a name of `model.Vote.metric` without its kind. None: the metric never reaches that zone.
    """

    metric: str
    degraded_enter: int | None
    degraded_exit: int | None
    failed_enter: int | None
    failed_exit: int | None
    minimum: int
    """Samples below which the metric has no opinion."""


class Patience(NamedTuple):
    """How many ticks in a row it takes to believe."""

    degraded: int = 2
    failed: int = 3
    recover: int = 3
    lone_failed: int = 6
    """F ticks where only one vantage is configured and nobody can second it."""


class QuorumRules(NamedTuple):
    """Who counts in a vote."""

    share_milli: int = 500
    """The bad zone needs strictly more than this share of the fresh weight."""
    fresh_ms: int = 25_000
    """A vote counts this long after it arrived: 2.5 heartbeats."""
    blind_ms: int = 60_000
    """No fresh vote for this long: the line is blind, its state held."""


class FaultRules(NamedTuple):
    """How faults grow, fade and cost weight."""

    per_ms: int = 10_000
    """A further bad tick adds its length divided by this."""
    cap: int = 20 * FAULT
    """20 faults leave 5 % of the base at the default decay: a degraded line keeps a floor."""
    forget: int = FAULT // 20
    """Below 0.05 a fault is forgotten."""
    fade: tuple[int, ...] = ()
    """`powers` of 2 ** (-1 / half-life in ms): entry k is the factor of 2**k ms."""
    cost: tuple[int, ...] = ()
    """`powers` of exp(-lambda / FAULT): entry k is the factor of 2**k millionths of a fault."""


class BaselineRules(NamedTuple):
    """A line's own idea of slow: multiples of its usual round trip, where they are above the limits. 0: it has none."""

    degraded_milli: int = 0
    failed_milli: int = 0


class BusinessRules(NamedTuple):
    """When the business's own calls are a verdict, and when they are believed over the vantages."""

    span_ms: int = 10_000
    """Calls count this long…"""
    minimum: int = 50
    """…and say nothing while there are fewer of them on a line…"""
    clients: int = 2
    """…or from fewer processes (all, where fewer exist)."""
    conflict_ticks: int = 3
    """Ticks in a row in which one side says healthy and the other does not: then the business is believed…"""
    hold_ms: int = 60_000
    """…until this long after the last of them."""
    apart_milli: int = 3_291
    """z by which a line must be worse than the others for a service's failing to be its own: two-sided 99.9 %."""


SHADOWS: Final = ("breaker", "faults", "groups", "capacity", "guard", "business", "local", "regions")
"""Rules that may judge and record without acting; each is asked for by `Rules.acts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One scope's rules. Compare by `digest`, never by identity."""

    mode: str = "literal"
    tick_ms: int = 10_000
    limits: tuple[Limit, ...] = ()
    questions: tuple[Question, ...] = ()
    """What `fast` mode asks of a line's pooled evidence; empty in `literal`, which holds readings against `limits`."""
    gate_milli: int = 1_645
    """z of the one-sided 95 % Wilson bound that a rate must also clear."""
    patience: Patience = Patience()
    quorum: QuorumRules = QuorumRules()
    faults: FaultRules = FaultRules()
    breaker: BreakerRules = BreakerRules()
    local: LocalRules = LocalRules()
    policy: tuple[str, ...] = ("weighted",)
    """Outermost first: `ab_groups` before `primary_backup` or `weighted`."""
    enforce: bool = True
    """False: judge and record, publish base weights."""
    seed: int = 0
    """Run seed of every chance in a decision."""
    baseline: BaselineRules = BaselineRules()
    business: BusinessRules = BusinessRules()
    shadowed: tuple[str, ...] = ()
    """Of `SHADOWS`, those that do not act."""
    guard: GuardRules = GuardRules()
    priority: int = 0
    """Of the cluster among all, higher first, for the plan across regions…"""
    regions: tuple[tuple[str, int], ...] = ()
    """…and calls a second that regions carry in all, where the document says so, by name."""

    def acts(self, rule: str) -> bool:
        """Whether this rule of `SHADOWS` changes what is published, rather than only being recorded."""
        return self.enforce and rule not in self.shadowed


def with_tables(faults: FaultRules, *, decay: float, half_life_ms: int) -> FaultRules:
    """The same rules with their tables: `decay` is the document's lambda per fault, `half_life_ms` that of a fault."""
    # 2**25 millionths are 33 faults, above any cap of 20; 2**25 ms are 9 hours, where any fault has faded.
    return faults._replace(
        cost=powers(-decay / FAULT, highest=25),
        fade=powers(-math.log(2) / half_life_ms, highest=25),
    )


def encode(rules: Rules) -> bytes:
    """Canonical JSON: the rules record of a journal."""
    return json.dumps(asdict(rules), sort_keys=True, separators=(",", ":"), default=lambda zone: zone.value).encode()


def digest(rules: Rules) -> bytes:
    """Eight bytes that name these rules."""
    return hashlib.blake2b(encode(rules), digest_size=8).digest()


def decode(record: bytes) -> Rules:
    """Rules from their record; JournalError where it is not one. Unknown keys mean newer semantics and are refused."""
    try:
        document = json.loads(record)
        known = {field.name for field in fields(Rules)}
        if strange := sorted(document.keys() - known):
            raise JournalError(f"rules record has unknown keys {strange}: written by a newer engine")
        return _assemble(document)
    except (ValueError, TypeError, AttributeError) as error:
        raise JournalError(f"not a rules record: {error}") from error


def _assemble(document: Mapping[str, Any]) -> Rules:
    def rows(kind: Any, value: Any) -> Any:
        return kind(*(tuple(item) if isinstance(item, list) else item for item in value))

    nested = {"patience": Patience, "quorum": QuorumRules, "faults": FaultRules, "breaker": BreakerRules}
    nested |= {"local": LocalRules, "baseline": BaselineRules, "guard": GuardRules}
    nested["business"] = BusinessRules
    parts = {name: rows(kind, document[name]) for name, kind in nested.items() if name in document}
    flat = {name: value for name, value in document.items() if name not in nested}
    flat["limits"] = tuple(Limit(*item) for item in document.get("limits", ()))
    flat["questions"] = tuple(Question(Zone(zone), *rest) for zone, *rest in document.get("questions", ()))
    flat["shadowed"] = tuple(document.get("shadowed", ()))
    flat["regions"] = tuple((region, calls) for region, calls in document.get("regions", ()))
    flat["policy"] = tuple(document.get("policy", ("weighted",)))
    return replace(Rules(), **flat, **parts)
