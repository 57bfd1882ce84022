"""One cluster in our own words: a mapping of settings, checked. Fields that Envoy has are named as there; durations may be seconds.

What is Envoy's is read by the envoy door, so that both dialects mean the same; its defaults here are ours where those are better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast, get_args

from reachline.core.outlier_rules import (
    NATIVE,
    Decay,
    Detector,
    Growth,
    OutlierRules,
    Return,
    Spread,
    ceiling_ms,
    checked,
)
from reachline.core.pick import TABLE, Policy
from reachline.core.pick.maglev import TABLE_MOST, is_prime
from reachline.core.pick.policy import RING_MOST, HashFunction, SlowStart
from reachline.discovery.naming import DnsSettings, Family
from reachline.doors.envoy.circuits import thresholds
from reachline.doors.envoy.fields import UINT32, Block
from reachline.doors.envoy.outliers import outliers as envoy_outliers
from reachline.doors.findings import Finding
from reachline.doors.origin import Path
from reachline.doors.wording import nearest
from reachline.errors import ConfigError
from reachline.members import Address, Member, Membership, Place, faults_of, is_numeric
from reachline.model import Health, Locality
from reachline.upstream.asked import check
from reachline.upstream.durations import in_words, seconds
from reachline.upstream.listing import target
from reachline.upstream.reported import weighing
from reachline.upstream.settings import ClusterSettings, ControlPlane, Kind

__all__ = ["beside", "native"]

_HEALTHS: Final = tuple(health.name for health in Health)
_EJECT_MOST: Final = 50
"""Percent of endpoints that may be ejected: half, as of local breakers. Envoy's 10 ejects nobody in a cluster of nine."""
_ENUMS: Final = {"growth": Growth, "returns": Return, "decay": Decay, "spread": Spread}
_WHOLES: Final = {
    "success_rate_minimum_gap": 100, "latency_percentile": 100, "latency_factor": UINT32, "latency_minimum_hosts": UINT32,
    "latency_request_volume": UINT32, "enforcing_latency": 100, "max_ejection_percent_per_priority": 100,
}  # fmt: skip
_OWN: Final = (
    *_ENUMS,
    *_WHOLES,
    "latency",
    "latency_minimum_gap",
    "together",
    "keep_removed",
    "keep_moved",
    "event_log_path",
)
_DURATIONS: Final = ("interval", "base_ejection_time", "max_ejection_time", "max_ejection_time_jitter")


def native(name: str, block: Block) -> ClusterSettings:
    """The cluster; what is wrong is left in the block's findings."""
    placed, scheme = _targets(block)
    members = tuple(placed.values())
    kinds = get_args(Kind)
    usual = "static" if all(is_numeric(each.address.host) for each in members) else "strict_dns"
    kind = cast("Kind", block.word("type", kinds, usual))
    _check_members(block, kind, placed)
    policy, base, hashes_names = _policy(block)
    weights = _localities(block, members)
    rules, log = _outliers(block)
    found = ClusterSettings(
        name=name,
        type=kind,
        membership=replace(base, members=members, locality_weights=weights),
        scheme=block.text("scheme") or scheme,
        dns=_dns(block, kind),
        resolvers=_resolvers(block),
        path=block.text("path", needed=kind == "file"),
        service=block.text("service_name"),
        initial_fetch_timeout=seconds(block, "initial_fetch_timeout", 15.0),
        control_plane=_control_plane(block, needed=kind == "eds"),
        policy=policy,
        by_locality=bool(weights),
        home=_locality(block, "home"),
        callers=_by_place(block, "callers"),
        hash_hostnames=hashes_names,
        check=check(block),
        thresholds=None if (circuit := block.block("circuit_breakers")) is None else thresholds(circuit),
        merge_window=seconds(block, "update_merge_window", 0.0),
        outliers=rules,
        outlier_log=log,
        warm=seconds(block, "warm", 5.0),
    )
    block.done()
    return found


def beside(block: Block) -> OutlierRules | None:
    """Outlier detection of this process for a cluster that a center judges: all that may be said of one here."""
    rules, log = _outliers(block)
    if rules is None:
        block.found.refuse(block.at("outliers"), "is needed by type: center", "or None in place of the block")
    if log:
        block.refuse("outliers", "has no event_log_path in a cluster that a center judges", "its events are in the log")
    block.word("type", ("center",), "center")
    block.done()
    return rules


def _targets(block: Block) -> tuple[dict[Path, Member], str]:
    """(endpoints, or names that give them, by where they stand; the scheme of those that are URLs)."""
    value = block.raw("targets")
    if isinstance(value, Mapping):
        given: Iterable[tuple[str | int, object]] = [
            (str(address), {"address": address, "weight": weight}) for address, weight in value.items()
        ]
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        given = enumerate(value)
    else:
        if value is not None:
            block.refuse(
                "targets", "must be a list of addresses, or weights by address", "for example ['10.0.0.1:443']"
            )
        return {}, ""
    found: dict[Path, Member] = {}
    schemes: dict[str, Path] = {}
    for at, each in given:
        path = (*block.at("targets"), at)
        own = Block({"address": each} if isinstance(each, str) else each, path, block.found)
        member, scheme = _target(own, path if isinstance(each, str) or isinstance(at, str) else own.at("address"))
        if member is not None:
            found[path] = member
        schemes.setdefault(scheme, path)
    schemes.pop("", None)
    for scheme in list(schemes)[1:]:
        block.found.refuse(schemes[scheme], f"must have the scheme of the others, {next(iter(schemes))}")
    return found, next(iter(schemes), "")


def _target(block: Block, path: Path) -> tuple[Member | None, str]:
    text = block.text("address", needed=True)
    weight, priority = block.raw("weight"), block.raw("priority")
    hostname, locality = block.text("hostname"), _locality(block, "locality")
    health = Health[block.word("health_status", _HEALTHS, "UNKNOWN")]
    metadata = block.raw("metadata") or {}
    block.done()
    taken = target(text)
    if taken.address is None:
        if text:
            block.found.refuse(path, "must name host and port", "for example 10.0.0.1:443")
        return None, ""
    if not isinstance(metadata, Mapping):
        block.refuse("metadata", "must be texts by key")
        metadata = {}
    member = Member(
        address=Address(*taken.address),
        hostname=hostname,
        weight=1 if weight is None else cast("int", weight),  # whatever it is: `faults_of` looks at types
        priority=0 if priority is None else cast("int", priority),
        locality=locality or Locality(),
        health=health,
        metadata={"envoy.lb": metadata} if metadata else {},
    )
    return member, text.partition("://")[0] if "://" in text else ""


def _check_members(block: Block, kind: Kind, placed: Mapping[Path, Member]) -> None:
    """That each can be, that they suit their kind, and that weights have a sum."""
    members = tuple(placed.values())
    for path, member in placed.items():
        for key, value, rule in faults_of(member, named=kind in ("strict_dns", "logical_dns")):
            block.found.append(Finding(path, f"{key} {rule}, not {value}", "", about_key=True))
    if kind in ("file", "eds") and members:
        block.refuse("targets", f"does not go with type: {kind}, whose endpoints come from elsewhere")
    if kind not in ("file", "eds") and not block.has("targets"):
        block.found.refuse(block.at("targets"), f"is needed by type: {kind}", about_key=True)
    if kind == "logical_dns" and block.has("targets") and len(members) != 1:
        block.refuse("targets", "must be exactly one: the cluster is logical_dns")
    for level in {each.priority for each in members}:
        weights = [each.weight for each in members if each.priority == level]
        if all(type(weight) is int for weight in weights) and (total := sum(weights)) > UINT32:
            block.refuse("targets", f"weights of one priority sum to {UINT32} at most, not {total}")


def _locality(block: Block, name: str) -> Locality | None:
    """`region/zone/sub_zone`, or as much of it as there is."""
    text = block.text(name)
    return _place(text) if text else None


def _place(text: str) -> Locality:
    return Locality(**dict(zip(("region", "zone", "sub_zone"), text.split("/", 2), strict=False)))


def _localities(block: Block, members: tuple[Member, ...]) -> Mapping[Place, int]:
    """Weights by locality, of all priorities alike."""
    levels = {each.priority for each in members} or {0}
    weights = _by_place(block, "localities")
    return {Place(level, where): weight for level in levels for where, weight in weights.items()}


def _by_place(block: Block, name: str) -> Mapping[Locality, int]:
    """Whole numbers by `region/zone/sub_zone`."""
    value = block.raw(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        block.refuse(name, "must be numbers by region/zone/sub_zone")
        return {}
    for where, number in value.items():
        if type(number) is not int or not 0 <= number <= UINT32:
            block.found.refuse((*block.at(name), str(where)), f"must be a whole number from 0 to {UINT32}")
    return {_place(str(where)): number for where, number in value.items() if type(number) is int and number >= 0}


def _policy(block: Block) -> tuple[Policy, Membership, bool]:
    """(the policy, what of it goes with the endpoints, whether hostnames are hashed)."""
    value = block.raw("policy")
    if isinstance(value, str) and value not in TABLE:
        close = nearest(value, tuple(TABLE))
        block.refuse("policy", f"must be {' or '.join(TABLE)}", f"did you mean {close}?" if close else "")
        value = {}
    own = Block(value if isinstance(value, Mapping) else {"name": value}, block.at("policy"), block.found)
    usual = Policy()
    slow = own.block("slow_start_config")
    least = own.whole("minimum_ring_size", usual.ring_least, least=1, most=RING_MOST)
    most = own.whole("maximum_ring_size", usual.ring_most, least=1, most=RING_MOST)
    size = own.whole("table_size", usual.table_size, least=2, most=TABLE_MOST)
    if not is_prime(size):
        own.refuse("table_size", "must be a prime number", "65537 is one")
    fields: dict[str, Any] = {
        "name": own.word("name", tuple(TABLE), "least_request"),
        "panic": own.whole("healthy_panic_threshold", usual.panic, most=100),
        "fail_in_panic": own.flag("fail_traffic_on_panic"),
        "choices": own.whole("choice_count", usual.choices, least=2),
        "full_scan": own.flag("full_scan"),
        "bias": own.number("active_request_bias", usual.bias),
        "ring_least": least,
        "ring_most": most,
        "hash_function": HashFunction[own.word("hash_function", tuple(each.name for each in HashFunction), "XX_HASH")],
        "table_size": size,
        "balance_factor": own.whole("hash_balance_factor", 0),
        "slow_start": None if slow is None else _slow_start(slow),
        "weighing": weighing(own),
    }
    base = Membership(
        overprovisioning=own.whole("overprovisioning_factor", 140, least=100) / 100,
        weighted_priorities=own.flag("weighted_priority_health"),
    )
    hashes_names = own.flag("use_hostname_for_hashing")
    own.done()
    try:
        return Policy(**fields), base, hashes_names
    except ValueError as error:
        own.found.refuse(own.path, str(error), about_key=True)
        return usual, base, hashes_names


def _slow_start(block: Block) -> SlowStart | None:
    window = seconds(block, "slow_start_window", 0.0)
    fields = {"aggression": block.number("aggression", 1.0), "least": block.number("min_weight_percent", 10.0) / 100}
    block.done()
    try:
        return SlowStart(window_ms=int(window * 1_000), **fields)
    except ValueError as error:
        block.found.refuse(block.path, str(error), about_key=True)
        return None


def _dns(block: Block, kind: Kind) -> DnsSettings:
    usual = DnsSettings(empty_for=math.inf) if kind == "logical_dns" else DnsSettings()
    own = block.block("dns")
    if own is None:
        return usual
    names = (
        "refresh",
        "ttl_floor",
        "jitter",
        "failure_base",
        "failure_max",
        "empty_for",
        "stale_after",
        "initial_wait",
    )
    fields: dict[str, Any] = {
        name: seconds(own, name, getattr(usual, name), endless=True) for name in names if own.has(name)
    }
    fields |= {name: own.flag(name, default=getattr(usual, name)) for name in ("respect_ttl", "ready_any")}
    fields["family"] = Family(own.word("family", tuple(Family), Family.BOTH))
    own.aside(*names)
    own.done()
    try:
        return replace(usual, **fields)
    except ConfigError as error:
        for each in error.problems:
            own.refuse(each.path, each.rule)
        return usual


def _resolvers(block: Block) -> tuple[Address, ...]:
    found = []
    for text in block.texts("dns_resolvers"):
        taken = target(text if not is_numeric(text) else f"[{text}]:53" if ":" in text else f"{text}:53")
        if taken.address is None or not is_numeric(taken.address[0]):
            block.refuse("dns_resolvers", f"must be numeric addresses, not {text!r}")
        else:
            found.append(Address(*taken.address))
    return tuple(found)


def _control_plane(block: Block, *, needed: bool) -> ControlPlane | None:
    value = block.raw("control_plane")
    if value is None:
        if needed:
            block.found.refuse(block.at("control_plane"), "is needed by type: eds", "host:port", about_key=True)
        return None
    own = Block({"address": value} if isinstance(value, str) else value, block.at("control_plane"), block.found)
    found = ControlPlane(
        own.text("address", needed=True), own.flag("delta"), own.text("node_id"), own.text("node_cluster")
    )
    own.done()
    return found


def _outliers(block: Block) -> tuple[OutlierRules | None, str]:
    """(rules, None where outlier detection is off; the file of its events)."""
    value = block.raw("outliers")
    if value is None or value is False:
        return None, ""
    own = Block({} if value is True else value, block.at("outliers"), block.found)
    theirs = {name: each for name, each in value.items() if name not in _OWN} if isinstance(value, Mapping) else {}
    theirs = {name: in_words(each) if name in _DURATIONS else each for name, each in theirs.items()}
    read = envoy_outliers(Block({"max_ejection_percent": _EJECT_MOST, **theirs}, own.path, own.found))
    assert read is not None
    theirs = dict(zip(read._fields[:_ENVOYS], read[:_ENVOYS], strict=True))
    fields: dict[str, Any] = {
        name: kinds(own.word(name, tuple(each.value for each in kinds), getattr(NATIVE, name).value))
        for name, kinds in _ENUMS.items()
    }
    fields |= {name: own.whole(name, getattr(NATIVE, name), most=most) for name, most in _WHOLES.items()}
    fields |= {name: own.flag(name, default=getattr(NATIVE, name)) for name in ("latency", "keep_moved")}
    fields["latency_minimum_gap_us"] = int(seconds(own, "latency_minimum_gap", 0.05) * 1e6)
    fields["keep_removed_ms"] = int(seconds(own, "keep_removed", 60.0) * 1_000)
    words = own.texts("together")
    fields["together"] = tuple(Detector[each] for each in words if each in Detector.__members__)
    if len(fields["together"]) < len(words):
        own.refuse("together", f"must be names of detectors: {', '.join(Detector.__members__)}")
    log = own.text("event_log_path")
    return _sound(own, NATIVE._replace(**theirs, **fields)), log


_ENVOYS: Final = OutlierRules._fields.index("growth")
"""Fields that Envoy has."""


def _sound(block: Block, rules: OutlierRules) -> OutlierRules:
    if ceiling_ms(rules) < rules.base_ejection_ms:
        return rules  # said already
    try:
        return checked(rules)
    except ConfigError as error:
        for each in error.problems:
            block.refuse(each.path, each.rule, each.hint)
        return NATIVE
