"""What only the whole document can show: keys that contradict each other, roles that do not fit a policy, lines nobody sees.

Runs on validated settings. Each check yields findings; warnings are findings that are no errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from reachline.doors.addresses import SCHEMES
from reachline.doors.effective import Effective, Path, effective
from reachline.doors.limits import RATES, ROUND_TRIPS
from reachline.doors.listened import listened
from reachline.doors.outbounds import DIRECT, resolves_here
from reachline.doors.planning import kinds_known, kinds_of, options_of, why_not
from reachline.doors.problems import Finding, nearest
from reachline.doors.settings import Cluster, Document, LineSettings, Tunable
from reachline.doors.units import text_of_seconds, text_of_share
from reachline.errors import ConfigError
from reachline.model import Endpoint, Kind
from reachline.talk import TABLE, build, hop
from reachline.talk.secure import is_address

__all__ = ["checked"]

_PAIRS: Final = {"primary_backup": ("primary", "backup"), "ab_groups": ("traffic", "reserve")}


def checked(document: Document) -> Iterator[Finding]:
    """Everything wrong or odd, in no order."""
    yield from _twice(document, ())
    yield from _ladder(document, ())
    yield from _stack(document, ())
    yield from _center(document)
    yield from _regions(document)
    yield from listened(document)
    for name, cluster in document.clusters.items():
        path = ("clusters", name)
        found = effective(document, name)
        yield from _twice(cluster, path)
        yield from _ladder(cluster, path)
        yield from _stack(cluster, path)
        yield from _numbers(found, path)
        yield from _fast(found, path)
        yield from _limits(found, path)
        yield from _roles(cluster, found.settings.policy, path)
        yield from _origins(document, cluster, path)
        yield from _duplicates(document, cluster, path)
        yield from _proxies(cluster, found, path)
        yield from _probes(cluster, found, path)
        yield from _marks(cluster, found, path)


def _regions(document: Document) -> Iterator[Finding]:
    """A region's capacity says nothing where no line stands in it: most likely one of both names is mistyped."""
    named = sorted({line.region for cluster in document.clusters.values() for line in cluster.lines.values()} - {""})
    for name in document.regions:
        if name not in named:
            near = nearest(name, named)
            hint = f"did you mean {near}?" if near else f"give lines region: {name}, or drop it"
            yield Finding(path=("regions", name), rule="no line stands in this region", hint=hint, is_error=False)


def _twice(layer: Tunable, path: Path) -> Iterator[Finding]:
    """A key that may stand at either of two levels stands at both."""
    breaker = layer.circuit_breaker
    if breaker.cooldown_multiplier is not None and "cooldown_multiplier" in breaker.half_open.model_fields_set:
        at = (*path, "circuit_breaker", "cooldown_multiplier")
        yield Finding(path=at, rule="stands here and under half_open", hint="keep one of them")
    if layer.recovery is not None and "recovery" in breaker.model_fields_set:
        yield Finding(path=(*path, "recovery"), rule="stands here and under circuit_breaker", hint="keep one of them")


def _ladder(layer: Tunable, path: Path) -> Iterator[Finding]:
    """Steps go up to the full weight."""
    for home, recovery in (("circuit_breaker", layer.circuit_breaker.recovery), ("", layer.recovery)):
        steps = recovery.step_ratios if recovery is not None else (1.0,)
        at = (*path, *([home] if home else []), "recovery", "step_ratios")
        if any(low >= high for low, high in pairwise(steps)):
            yield Finding(path=at, rule="must rise from step to step")
        elif steps[-1] < 1:
            yield Finding(path=at, rule="must end with 1.0", hint="else the line never gets its full weight back")


def _stack(layer: Tunable, path: Path) -> Iterator[Finding]:
    """Policies nest from groups to lines."""
    policy = layer.policy
    if len(set(policy)) < len(policy):
        yield Finding(path=(*path, "policy"), rule="names a policy twice")
    elif "ab_groups" in policy[1:]:
        yield Finding(
            path=(*path, "policy"),
            rule="must begin with ab_groups",
            hint="outermost first: [ab_groups, primary_backup]",
        )
    elif "weighted" in policy[:-1]:
        yield Finding(
            path=(*path, "policy"),
            rule="has weighted above another policy",
            hint="weighted has no groups: it stands last",
        )


def _center(document: Document) -> Iterator[Finding]:
    center = document.center
    if center.grpc == center.http and not center.grpc.endswith(":0"):
        yield Finding(path=("center", "http"), rule="is the address of center.grpc too", hint="they are two servers")


def _numbers(found: Effective, path: Path) -> Iterator[Finding]:
    """Numbers that only make sense together."""
    settings = found.settings
    breaker, trial, local = settings.circuit_breaker, settings.circuit_breaker.half_open, settings.local_breaker
    if breaker.max_cooldown_seconds < breaker.cooldown_seconds:
        at = found.whence(path, ("circuit_breaker", "max_cooldown_seconds"))
        yield Finding(path=at, rule=f"must be at least cooldown_seconds, {breaker.cooldown_seconds:g}")
    if trial.max_success_requests < trial.min_success_requests:
        at = found.whence(path, ("circuit_breaker", "half_open", "max_success_requests"))
        yield Finding(path=at, rule=f"must be at least min_success_requests, {trial.min_success_requests}")
    if local.open_cap < local.open:
        at = found.whence(path, ("local_breaker", "open_cap"))
        yield Finding(path=at, rule=f"must be at least open, {text_of_seconds(local.open)}")
    if settings.judge.tick < settings.judge.heartbeat:
        rule = f"is shorter than judge.heartbeat, {text_of_seconds(settings.judge.heartbeat)}: a report counts more than once"
        yield Finding(path=found.whence(path, ("judge", "tick")), rule=rule, is_error=False)


def _fast(found: Effective, path: Path) -> Iterator[Finding]:
    """What `fast` mode does not read although somebody wrote it, and the one number that it reads otherwise."""
    if found.settings.mode != "fast":
        return
    unread = [("limits", metric) for metric in (*RATES, *ROUND_TRIPS) if metric != "p95"]
    for key in (*unread, ("judge", "vote_share")):
        if found.is_written(key):
            rule = "is not read in mode fast, which asks whether failures and slow answers add up"
            yield Finding(path=found.whence(path, key), rule=rule, is_error=False)
    patience, key = found.settings.patience, ("patience", "lone_failed")
    if found.is_written(key) and patience.lone_failed < 2 * patience.failed:
        rule = f"counts as {2 * patience.failed} in mode fast: a lone vantage needs twice the ticks of patience.failed"
        yield Finding(path=found.whence(path, key), rule=rule, is_error=False)


def _limits(found: Effective, path: Path) -> Iterator[Finding]:
    """Enter above exit, failed above degraded."""
    for metric in (*RATES, *ROUND_TRIPS):
        limit = getattr(found.settings.limits, metric)
        text = text_of_share if metric in RATES else text_of_seconds
        for lower, upper in (("exit", "degraded"), ("failed_exit", "failed"), ("degraded", "failed")):
            low, high = getattr(limit, lower), getattr(limit, upper)
            if low is not None and high is not None and low > high:
                at = found.whence(path, ("limits", metric, lower))
                other = found.sources.get(("limits", metric, upper), "default")
                yield Finding(path=at, rule=f"must be at most {upper}, {text(high)} ({other})", hint=f"say {upper} too")


def _roles(cluster: Cluster, policy: tuple[str, ...], path: Path) -> Iterator[Finding]:
    """Roles that the policy reads, one of each pair, and both ends of each pair present."""
    known = {role: name for name, pair in _PAIRS.items() for role in pair}
    for name, line in cluster.lines.items():
        at = (*path, "lines", name, "role")
        for role in line.role:
            if known[role] not in policy:
                hint = f"policy is {', '.join(policy)}; {role} belongs to {known[role]}"
                yield Finding(path=at, rule=f"has no meaning: {role}", hint=hint)
        for pair in _PAIRS.values():
            if set(pair) <= set(line.role):
                yield Finding(path=at, rule=f"cannot be both {pair[0]} and {pair[1]}")
    for policy_name in policy:
        if policy_name in _PAIRS:
            yield from _both_ends(cluster.lines.values(), policy_name, path)


def _both_ends(lines: Iterable[LineSettings], policy: str, path: Path) -> Iterator[Finding]:
    """A line that says nothing is primary (traffic): then the other end must be named."""
    first, second = _PAIRS[policy]
    seconds = [second in line.role for line in lines]
    if not any(seconds):
        hint = f"say role: {second} on at least one line"
        yield Finding(
            path=(*path, "lines"), rule=f"has no {second} line, which policy {policy} needs", hint=hint, about_key=True
        )
    elif all(seconds):
        hint = f"say role: {first} on at least one line"
        yield Finding(
            path=(*path, "lines"), rule=f"has no {first} line, which policy {policy} needs", hint=hint, about_key=True
        )


def _origins(document: Document, cluster: Cluster, path: Path) -> Iterator[Finding]:
    """A zone that no agent stands in sees nothing; without named agents nobody knows how many of a zone must agree."""
    zones = {agent.locality.zone for agent in document.agents.values()} - {""}
    for name, line in cluster.lines.items():
        if line.origins and not document.agents:
            rule = "names a zone, but the document names no agents: how many of the zone must agree is not known"
            hint = "add agents: {edge-1: {locality: {zone: …}}}, or drop from"
            yield Finding(path=(*path, "lines", name, "from"), rule=rule, hint=hint)
            continue
        for zone in line.origins:
            if zone not in zones:
                close = nearest(zone, sorted(zones))
                known = f"zones of agents: {', '.join(sorted(zones)) or 'none'}"
                hint = f"did you mean {close}?" if close else known
                yield Finding(
                    path=(*path, "lines", name, "from"), rule=f"names the zone {zone}, where no agent stands", hint=hint
                )


def _duplicates(document: Document, cluster: Cluster, path: Path) -> Iterator[Finding]:
    """Two lines that are one: allowed, but a share counted twice."""
    seen: dict[tuple[object, ...], str] = {}
    for name, line in cluster.lines.items():
        what = (line.endpoint, line.via, line.source, line.interface, line.origins)
        first = seen.setdefault(what, name)
        if first != name:
            where = document.place((*path, "lines", first))
            rule = f"goes the same way as {first} ({where})"
            yield Finding(
                path=(*path, "lines", name), rule=rule, hint="give it another via or source, or drop it", is_error=False
            )


def _proxies(cluster: Cluster, found: Effective, path: Path) -> Iterator[Finding]:
    """What does not go through a proxy is told by name: it is never sent directly instead."""
    for name, line in cluster.lines.items():
        if line.via == DIRECT:
            continue
        at, scheme = (*path, "lines", name, "via"), line.endpoint.scheme
        if line.family and not is_address(line.endpoint.host) and not resolves_here(line.via):
            hint = "socks5:// hands it an address, or name the address itself"
            yield Finding(
                path=(*path, "lines", name, "family"), rule="is the proxy's choice: it resolves the name", hint=hint
            )
        for kind in kinds_of(line.endpoint, found):
            if not (reason := hop.why_not(kind)):
                continue
            if kind in SCHEMES[scheme].kinds:
                hint = "drop via, or watch a tcp:// port of the same machine"
                yield Finding(path=at, rule=f"cannot carry {scheme}://: {reason}", hint=hint)
            else:
                rule = f"leaves this line without its {kind.value} probe: {reason}"
                yield Finding(path=at, rule=rule, is_error=False)


def _probes(cluster: Cluster, found: Effective, path: Path) -> Iterator[Finding]:
    """Each line is observed by something, and every kind named can be asked somewhere; options are read as agents do."""
    probes = found.settings.probes
    ends = {name: line.endpoint for name, line in cluster.lines.items()}
    for name, endpoint in ends.items():
        via = cluster.lines[name].via
        kinds = kinds_of(endpoint, found, via)
        is_told = via != DIRECT and any(map(hop.why_not, SCHEMES[endpoint.scheme].kinds))
        if not kinds and not is_told:
            rule = "is probed by nothing: its probes are off"
            yield Finding(path=(*path, "lines", name), rule=rule, hint="leave one of its scheme's kinds on")
        for kind in kinds:
            yield from _options(endpoint, kind, found, path, (*path, "lines", name))
    for kind in kinds_known():
        reasons = [why_not(endpoint, kind, probes) for endpoint in ends.values()]
        if found.is_written(("probes", kind.value)) and all(reasons):
            at = found.whence(path, ("probes", kind.value))
            yield Finding(path=at, rule=f"fits no line of this cluster: {reasons[0]}", is_error=False)


def _marks(cluster: Cluster, found: Effective, path: Path) -> Iterator[Finding]:
    """Connections that are known by their mark have one, and two lines not the same."""
    passive = found.settings.probes.passive
    if passive.match != "mark":
        return
    seen: dict[int, str] = {}
    for name, line in cluster.lines.items():
        at = (*path, "lines", name)
        if line.mark is None and passive.mark is None and Kind.PASSIVE in kinds_of(line.endpoint, found, line.via):
            yield Finding(
                path=at, rule="has no mark, by which probes.passive is to know it", hint="say mark: NUMBER here"
            )
        elif line.mark is not None and (first := seen.setdefault(line.mark, name)) != name:
            yield Finding(
                path=(*at, "mark"), rule=f"is the mark of {first} too: both have the same connections", is_error=False
            )


def _options(endpoint: Endpoint, kind: Kind, found: Effective, path: Path, line: Path) -> Iterator[Finding]:
    """What the talk of this kind makes of its options, and of what its target says in their place (`to`)."""
    if kind not in TABLE:
        return
    try:
        build(kind, endpoint, options_of(endpoint, kind, found.settings.probes))
    except ConfigError as error:
        for problem in error.problems:
            at = line if problem.path == "to" else found.whence(path, ("probes", kind.value, problem.path))
            yield Finding(path=at, rule=problem.rule, hint=problem.hint)
