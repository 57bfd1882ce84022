"""From one vantage's reading to its verdict: limits with hysteresis, minimum samples and a confidence gate.

Knows nothing of other vantages, of time or of what a verdict leads to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from reachline.core.cusum import NOTHING, Evidence
from reachline.core.echo import brought
from reachline.core.rules import Limit, Rules
from reachline.model import HELPERS, Kind, Reading, VantageId, Vote, Zone

__all__ = ["Calm", "Verdict", "calm_of", "evidence", "is_calm", "is_over", "verdict", "wilson_at_least"]

CONNECT: Final = "connect"
RESOLVE: Final = "resolve"
"""`connect` of a line whose name does not resolve."""
ERRORS: Final = "errors"
_RATES: Final = frozenset({"loss", "timeout", ERRORS})

# The 5xx row of the table reads "2 of 5 or 2 %" and "3 of 5 or 10 %": counts that a short window can reach.
_RECENT: Final = 5
_RECENT_DEGRADED: Final = 2
_RECENT_FAILED: Final = 3

_ROUNDS: Final = 3
"""Probe rounds that the connect metric looks back on."""
_NEVER: Final = 2**31
"""Above every RTT a reading can hold: a limit that is never reached."""

_NO_OWN: Final[Mapping[Kind, tuple[Limit, ...]]] = MappingProxyType({})
_CALLS: Final = frozenset({Kind.HTTP, Kind.GRPC, Kind.REDIS})
"""Kinds that ask the service itself, beyond the connect."""


class Verdict(NamedTuple):
    """A vantage's zone, the vote that explains it, and which metrics it holds in D (1) or F (2) for the next time."""

    zone: Zone
    vote: Vote | None
    held: tuple[tuple[str, int], ...]


class Calm(NamedTuple):
    """RTT figures under which a reading without any failure is healthy whatever was held: the lowest exit limits."""

    p95_us: int
    ewma_us: int
    jitter_us: int


def calm_of(limits: Iterable[Limit]) -> Calm:
    """The quiet corner of these limits; worked out once, for most readings fall into it."""
    lowest = {limit.metric: _lowest(limit) for limit in limits}
    return Calm(*(lowest.get(metric, _NEVER) for metric in ("p95", "ewma", "jitter")))


def _lowest(limit: Limit) -> int:
    known = (limit.degraded_enter, limit.degraded_exit, limit.failed_enter, limit.failed_exit)
    return min((one for one in known if one is not None), default=_NEVER)


def is_calm(reading: Reading, calm: Calm) -> bool:
    """Nothing failed, nothing was lost, all three rounds known and good, and every RTT figure under its exit limits."""
    _, counts, _, lost, rounds, rounds_ok, _, recent_bad, _, ewma, _, p95, jitter, _, _, _, void, *_ = reading
    if rounds != _ROUNDS or rounds_ok != _ROUNDS or lost or recent_bad or void or any(counts[1:]):
        return False
    most_p95, most_ewma, most_jitter = calm
    return (
        (p95 is None or p95 < most_p95)
        and (ewma is None or ewma < most_ewma)
        and (jitter is None or jitter < most_jitter)
    )


def evidence(readings: Iterable[Reading], decides: frozenset[Kind]) -> tuple[Evidence, Kind | None]:
    """What readings of one line bring that is new, and the kind that brings most failures; None where none of them counts."""
    found, worst = NOTHING, None
    most = -1
    for reading in readings:
        if reading.void or reading.kind not in decides or not (attempts := reading.fresh_ok + reading.fresh_failed):
            continue
        failed = reading.fresh_failed + reading.fresh_marred
        brings = brought(attempts, failed, reading.fresh_slow, reading.fresh_crawl)
        found = brings if found is NOTHING else found.plus(brings)
        if failed > most:
            most, worst = failed, reading.kind
    return found, worst


class _Measure(NamedTuple):
    name: str
    numerator: int
    denominator: int
    limit: Limit


def wilson_at_least(hits: int, attempts: int, limit_milli: int, z_milli: int) -> bool:
    """Whether the one-sided Wilson lower bound of hits/attempts reaches limit_milli/1000; exact, in integers.

    The bound reaches p0 exactly where the score test rejects p0: hits/n - p0 >= z * sqrt(p0 * (1 - p0) / n).
    """
    excess = 1_000 * hits - attempts * limit_milli
    if excess < 0:
        return False
    return excess * excess * 1_000_000 >= z_milli * z_milli * attempts * limit_milli * (1_000 - limit_milli)


def is_over(numerator: int, denominator: int, *, level: int, leave: int, held: bool, z_milli: int) -> bool:
    """Whether a rate is in a zone with these enter and exit limits (1/1000): gated on the way in, sticky until exit."""
    if held:
        return 1_000 * numerator >= leave * denominator
    if 1_000 * numerator < level * denominator:
        return False
    return wilson_at_least(numerator, denominator, leave, z_milli)


def verdict(
    vantage: VantageId,
    readings: Iterable[Reading],
    held: Mapping[str, int],
    rules: Rules,
    *,
    decides: frozenset[Kind] = frozenset(Kind) - HELPERS,
    own: Mapping[Kind, tuple[Limit, ...]] = _NO_OWN,
) -> Verdict:
    """The worst zone over a vantage's readings of one line; N where no metric has its minimum of samples.

    `decides` names the kinds whose word counts; of the others, lost ICMP raises the level where TCP and
    HTTP (or gRPC, or Redis) are both bad. `own` are the line's own limits of a kind, in place of the rules'.
    """
    worst, vote = Zone.N, None
    now_held: dict[str, int] = {}
    suspects: set[Kind] = set()
    icmp_lost = False
    for reading in readings:
        limits = own.get(reading.kind, rules.limits)
        zone, why, grip = _of_kind(vantage, reading, held, limits=limits, z_milli=rules.gate_milli)
        if reading.void:
            now_held.update((name, level) for name, level in held.items() if name.startswith(f"{reading.kind}."))
            continue
        now_held.update(grip)
        if reading.kind not in decides:
            icmp_lost |= reading.kind is Kind.ICMP and zone is Zone.F
            continue
        if zone in (Zone.D, Zone.F):
            suspects.add(reading.kind)
        if zone is not Zone.N and (worst is Zone.N or zone.value > worst.value):
            worst, vote = zone, why
    if worst is Zone.D and icmp_lost and Kind.TCP in suspects and suspects & _CALLS:
        worst, vote = Zone.F, None if vote is None else vote._replace(zone=Zone.F, metric=f"{vote.metric}+icmp")
    return Verdict(worst, vote, tuple(sorted(now_held.items())))


def _of_kind(
    vantage: VantageId, reading: Reading, held: Mapping[str, int], *, limits: Iterable[Limit], z_milli: int
) -> tuple[Zone, Vote | None, dict[str, int]]:
    worst, vote = Zone.N, None
    grip: dict[str, int] = {}
    for measure in _measures(reading, limits):
        name = f"{reading.kind}.{measure.name}"
        zone = _level(measure, reading, held.get(name, 0), z_milli)
        if zone in (Zone.D, Zone.F):
            grip[name] = zone.value
        if worst is Zone.N or zone.value > worst.value:
            worst = zone
            limit = measure.limit.failed_enter if zone is Zone.F else measure.limit.degraded_enter
            cause = f"{reading.kind}.{_cause(measure, reading)}"
            vote = Vote(vantage, zone, cause, measure.numerator, measure.denominator, limit or 0)
    return worst, vote, grip


def _cause(measure: _Measure, reading: Reading) -> str:
    """The metric's name for people: rounds that fail because the name has no address are told as that."""
    counts = reading.counts
    if measure.name == CONNECT and 2 * counts.unresolved > counts.attempts - counts.ok:
        return RESOLVE
    return measure.name


def _measures(reading: Reading, limits: Iterable[Limit]) -> Iterable[_Measure]:
    """The metrics of a reading that have their minimum of samples, the most telling first: it names a tie.

    A line that answers with errors has no good round either, but it is the errors that say why.
    """
    counts = reading.counts
    # Refused, unreachable and broken ones count beside 5xx and resets: a line that refuses one call in ten is seen by no other
    # rate. A name that does not resolve is DNS's word, which never decides by itself.
    erred = counts.attempts - counts.ok - counts.late - counts.unresolved
    telling = ERRORS if 2 * counts.errors > counts.attempts - counts.ok else CONNECT
    known = {
        "loss": (reading.lost, reading.sent, reading.sent),
        "timeout": (counts.late, counts.attempts, counts.attempts),
        ERRORS: (erred, counts.attempts, counts.attempts),
        CONNECT: (reading.rounds_ok, reading.rounds, reading.rounds),
        "p95": (reading.p95_us, reading.answered, counts.attempts),
        "ewma": (reading.ewma_us, reading.answered, reading.answered),
        "jitter": (reading.jitter_us, reading.answered, reading.answered),
    }
    for limit in sorted(limits, key=lambda limit: limit.metric != telling):
        numerator, denominator, samples = known.get(limit.metric, (None, 0, 0))
        if numerator is not None and samples >= max(limit.minimum, 1):
            yield _Measure(limit.metric, numerator, denominator, limit)


def _level(measure: _Measure, reading: Reading, held: int, z_milli: int) -> Zone:
    limit = measure.limit
    if measure.name == CONNECT:
        return _connect(measure, held)
    if _reaches(measure, reading, limit.failed_enter, limit.failed_exit, held=held >= Zone.F.value, z_milli=z_milli):
        return Zone.F
    if _reaches(measure, reading, limit.degraded_enter, limit.degraded_exit, held=held >= 1, z_milli=z_milli):
        return Zone.D
    return Zone.H


def _connect(measure: _Measure, held: int) -> Zone:
    """F at 0 of the newest three rounds, until all three are ok again."""
    enter, leave = measure.limit.failed_enter, measure.limit.failed_exit
    if enter is not None and measure.numerator <= enter:
        return Zone.F
    if held >= Zone.F.value and leave is not None and measure.numerator < leave:
        return Zone.F
    return Zone.H


def _reaches(
    measure: _Measure, reading: Reading, enter: int | None, leave: int | None, *, held: bool, z_milli: int
) -> bool:
    if enter is None:
        return False
    floor = enter if leave is None else leave
    if measure.name not in _RATES:
        return measure.numerator >= (floor if held else enter)
    if measure.name == ERRORS and reading.recent >= _RECENT and _recently(reading, measure.limit, enter):
        return True
    return is_over(measure.numerator, measure.denominator, level=enter, leave=floor, held=held, z_milli=z_milli)


def _recently(reading: Reading, limit: Limit, enter: int) -> bool:
    needed = _RECENT_FAILED if enter == limit.failed_enter else _RECENT_DEGRADED
    return reading.recent_bad >= needed
