"""Numbers and rules as sentences a person understands at 3 am. Every sentence carries the count it speaks of.

Knows the names that rules, metrics and facts have elsewhere in `core`, and decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from reachline.model import CENSORED_US, Change, Gate, Standing, Vote, Zone

__all__ = [
    "amount",
    "called",
    "duration",
    "metric",
    "milliseconds",
    "move",
    "paths",
    "percent",
    "rule",
    "state",
    "unenforced",
    "vote",
    "zone",
]

_ZONES: Final = {Zone.H: "healthy", Zone.D: "degraded", Zone.F: "failed", Zone.N: "no opinion"}
_GATES: Final = {Gate.CLOSED: "closed", Gate.OPEN: "open", Gate.HALF_OPEN: "in trial", Gate.RAMP: "coming back"}
_METRICS: Final = {
    "loss": "packet loss",
    "timeout": "timeouts",
    "errors": "errors",
    "connect": "connecting",
    "resolve": "finding the name's address",
    "p95": "P95 latency",
    "ewma": "average latency",
    "jitter": "jitter (P95 − P50)",
    "failed": "attempts that failed or lost a packet",
    "slow": "answers above the degraded limit",
    "crawl": "answers above the failed limit",
}
_RATES: Final = ("loss", "timeout", "errors", "failed", "slow", "crawl")
_ADDED: Final = ("failed", "slow", "crawl")
"""What `fast` mode asks for: it adds up over vantages and calls, and no vantage finds it by itself."""
_IDLE: Final = "unenforced."
_CALLED: Final = {
    "timeout": "late",
    "errors": "failed or answered with an error",
    "slow": "above the degraded limit",
    "crawl": "above the failed limit",
}
_PASSIVE: Final = "passive"

_RULES: Final = {
    "judge.recovered": "{good_ticks} clean ticks in a row, {recover_patience} are asked",
    "breaker.cooldown_over": "the cooldown is over and most vantages no longer call it failed",
    "breaker.early_trial": "it is well again before its cooldown is over, and this is its first opening",
    "breaker.window_passed": "the window passed: {trial_ok} calls ok ({trial_min_ok} asked), {trial_failed} failed "
    "({trial_fail_threshold} at least would end it)",
    "breaker.window_starved": "too few real calls, but none failed: {trial_ok} calls and {trial_synthetic} probes ok",
    "breaker.trial_failed": "calls failed in the trial: {trial_failed} ({trial_fail_threshold} at least end it), {trial_ok} were ok",
    "breaker.forgiven": "closed long enough with real traffic: earlier reopenings no longer lengthen the cooldown",
    "guard.last_line": "it should be open, but it is the last closed line of its cluster and keeps the floor weight",
    "guard.blast": "it should be open, but automation holds no more of the cluster open than that: it keeps the floor weight",
    "guard.panic": "most of the cluster's weight is lost and nothing better is left, so what works at all carries traffic",
    "capacity.poured": "another line has reached what it can carry, and its traffic went on by weight",
    "group.incident": "several lines of its shared-risk group turned bad together: one incident",
    "group.over": "it is well again: the incident of its shared-risk group is over for it",
    "guard.fail_open": "every line of the cluster is open, so the least bad one carries traffic",
    "operator.drain": "an operator drains it (order {order})",
    "operator.undrain": "no order drains it any more",
    "operator.weight": "an operator set its weight (order {order})",
    "operator.standby": "an operator set it aside as a backup (order {order})",
    "operator.open": "an operator keeps it open (order {order})",
    "operator.close": "an operator keeps it closed, whatever is measured (order {order})",
    "operator.ended": "the order that it followed is over",
    "drill.failed": "a drill plays that it failed (order {order})",
    "drill.slowed": "a drill plays that it is slow (order {order})",
    "drill.over": "the drill is over, and it stands as its own evidence says",
    "quorum.blind": "no vantage has reported on it for too long: its state is held, not judged",
    "quorum.seen": "vantages report on it again",
    "faults.grew": "more bad ticks: {faults} faults now, each costs a fixed share of the weight",
    "faults.faded": "clean ticks let its faults fade: {faults} are left",
    "faults.fading": "healthy again; {faults} faults still cost weight and fade",
}
_CLOSED: Final = ".closed"
_AS_WRITTEN: Final = {"grpc": "gRPC", "redis": "Redis"}
"""Names that are not capitals throughout."""


def zone(value: Zone) -> str:
    """One verdict in a word."""
    return _ZONES[value]


def state(standing: Standing) -> str:
    """Health and breaker of a line in a few words: `healthy`, `unhealthy, open`, `degraded, coming back (step 2)`."""
    health = standing.health.name.lower()
    if standing.gate is Gate.CLOSED:
        return health
    step = f" (step {standing.step})" if standing.gate is Gate.RAMP else ""
    return f"{health}, {_GATES[standing.gate]}{step}"


def metric(name: str) -> str:
    """`tcp.loss` as `TCP packet loss`, `passive.loss` as what it is measured on."""
    kind, _, rest = name.partition(".")
    base, _, also = rest.partition("+")
    seconded = f", seconded by {also.upper()}" if also else ""
    if kind == _PASSIVE:
        return f"{_METRICS.get(base, base) if base != 'connect' else 'progress'} on the business's own connections{seconded}"
    return f"{_AS_WRITTEN.get(kind, kind.upper())} {_METRICS.get(base, base)}{seconded}"


def vote(cast: Vote) -> str:
    """What one vantage measured, with numerator, denominator and the limit it was held against."""
    base = cast.metric.partition(".")[2].partition("+")[0]
    name = metric(cast.metric)
    if base in ("connect", "resolve"):
        fails = f" (fails at {cast.limit})" if cast.zone is Zone.F else ""
        rounds = "looks" if cast.metric.startswith(f"{_PASSIVE}.") else "rounds"
        return f"{name}: {cast.numerator} of the last {cast.denominator} {rounds} ok{fails}"
    if base in _RATES:
        found = f"{cast.numerator} of {cast.denominator} ({percent(cast.numerator, cast.denominator)})"
        limit = percent(cast.limit, 1_000)
    elif cast.numerator >= CENSORED_US:
        found, limit = f"the slowest 5 % got no answer ({cast.denominator} attempts did)", milliseconds(cast.limit)
    else:
        found, limit = f"{milliseconds(cast.numerator)} over {cast.denominator} answers", milliseconds(cast.limit)
    if not cast.limit:
        return f"{name}: {found}"
    return f"{name}: {found}, {'limit' if cast.zone in (Zone.D, Zone.F) else 'degraded from'} {limit}"


def unenforced(facts: Mapping[str, int]) -> str:
    """The rules that only record, as the end of a sentence; empty where all act."""
    names = [name.removeprefix(_IDLE) for name in facts if name.startswith(_IDLE)]
    return f"; unenforced: {', '.join(names)}" if names else ""


def rule(name: str, facts: Mapping[str, int]) -> str:
    """Why, in words, with the numbers the decision rests on; the name itself where there are no words for it."""
    # A fact that a decision did not record reads as `?`, never as an error.
    known = defaultdict[str, object](lambda: "?", {**facts, "faults": amount(facts.get("faults_micro", 0))})
    if name.startswith("vote."):
        return _voted(name, known)
    if name.startswith("business."):
        return _business(name, known)
    if name.startswith("policy."):
        return f"the cluster's policy ({name.partition('.')[2].replace('.', ', ')}) moved its share, for other lines changed"
    closed = name.endswith(_CLOSED)
    text = _RULES.get(name.removesuffix(_CLOSED), name or "nothing has gone wrong")
    return text.format_map(known) + ("; that was the last step, it is closed again" if closed else "")


def _voted(name: str, known: Mapping[str, object]) -> str:
    _, metric_name, level = name.split(".", 2)
    what = _METRICS.get(metric_name.partition("+")[0], metric_name)
    if metric_name in _ADDED or f"sum.{metric_name}" in known:
        return f"{what} added up over vantages and calls until the line counts as {level}"
    if level == "degraded":
        return (
            f"most vantages found {what} beyond the degraded limit, {known['bad_ticks']} ticks in a row "
            f"({known['degraded_patience']} are asked)"
        )
    if "trial_ok" in known:
        return f"most vantages found {what} beyond the failure limit while it was coming back: one such tick is enough"
    return (
        f"most vantages found {what} beyond the failure limit, {known['down_ticks']} ticks in a row "
        f"({known['failed_patience']} are asked)"
    )


def called(metric_name: str) -> str:
    """How calls were bad, by the metric of the business's word."""
    return _CALLED.get(metric_name, metric_name)


def _business(name: str, known: Mapping[str, object]) -> str:
    _, metric_name, level = name.split(".", 2)
    what = f"{known['business_bad']} of {known['business_of']} calls of {known['business_clients']} processes were {called(metric_name)}"
    beyond = "degraded" if level == "degraded" else "failure"
    return (
        f"the business's own calls: {what}, beyond the {beyond} limit, {known['business_ticks']} ticks in a row, "
        "and no majority of vantages sees it"
    )


def paths(dead: int, tried: int, *, parts: int = 0, bucket: int | None = None, shift: int = 0) -> str:
    """A dead path among equal ones, as connects from many source ports show it; empty where none does."""
    if not dead:
        return ""
    ports = f"no connect gets through from {dead} of {tried} source ports"
    if not parts:
        return f"{ports}, while all others do: one of several equal paths is dead"
    port = f"(port >> {shift})" if shift else "port"
    which = "" if bucket is None else f", those with {port} mod {parts} = {bucket}"
    return f"1 of {parts} equal paths is dead: {ports}{which}"


def move(change: Change) -> str:
    """What a change did: `healthy → degraded, weight 100 → 87`."""
    before, after = state(change.before), state(change.after)
    weights = f"weight {change.before.weight} → {change.after.weight}"
    if change.before.weight == change.after.weight:
        weights = f"weight {change.after.weight}"
    return f"{before} → {after}, {weights}" if before != after else f"{after}, {weights}"


def amount(faults_micro: int) -> str:
    """Faults with at most two decimals: `1`, `3.5`, `0.07`."""
    whole, rest = divmod((faults_micro + 5_000) // 10_000, 100)
    return f"{whole}.{rest:02d}".rstrip("0").rstrip(".")


def percent(part: int, whole: int) -> str:
    """A share as `6 %`, `0.4 %`; one decimal below 10 % where it says something."""
    if whole <= 0:
        return "0 %"
    tenths = (1_000 * part + whole // 2) // whole
    return f"{(tenths + 5) // 10} %" if tenths >= 100 or tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10} %"


def milliseconds(microseconds: int) -> str:
    """An RTT as `0.43 ms`, `12.3 ms`, `350 ms`."""
    if microseconds < 1_000:
        return f"{microseconds / 1_000:.2f} ms"
    return f"{microseconds / 1_000:.1f} ms" if microseconds < 100_000 else f"{(microseconds + 500) // 1_000} ms"


def duration(ms: int) -> str:
    """A time span to the second: `18 s`, `5 min 12 s`, `2 h 3 min`."""
    seconds = (abs(ms) + 500) // 1_000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3_600:
        return f"{seconds // 60} min" + (f" {seconds % 60} s" if seconds % 60 else "")
    hours = seconds // 3_600
    return f"{hours} h {seconds % 3_600 // 60} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"
