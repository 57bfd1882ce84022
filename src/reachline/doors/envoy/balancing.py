"""`lb_policy`, `common_lb_config` and `load_balancing_policy` of a cluster as one policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from reachline.core.pick.maglev import TABLE_MOST, is_prime
from reachline.core.pick.orca import Weighing
from reachline.core.pick.policy import RING_MOST, Fallback, HashFunction, Policy, Selector, SlowStart, Subsets
from reachline.doors.envoy.fields import UINT64, Block

__all__ = ["Balancing", "balancing"]

_POLICIES: Final = (
    "ROUND_ROBIN", "LEAST_REQUEST", "RING_HASH", "RANDOM", "ORIGINAL_DST_LB", "MAGLEV", "CLUSTER_PROVIDED",
    "LOAD_BALANCING_POLICY_CONFIG",
)  # fmt: skip
_CONFIGS: Final = {
    "LEAST_REQUEST": "least_request_lb_config", "RING_HASH": "ring_hash_lb_config", "MAGLEV": "maglev_lb_config",
    "ROUND_ROBIN": "round_robin_lb_config",
}  # fmt: skip
_TYPE: Final = "type.googleapis.com/envoy.extensions.load_balancing_policies."
_EXTENSIONS: Final = {
    f"{_TYPE}round_robin.v3.RoundRobin": "ROUND_ROBIN",
    f"{_TYPE}least_request.v3.LeastRequest": "LEAST_REQUEST",
    f"{_TYPE}ring_hash.v3.RingHash": "RING_HASH",
    f"{_TYPE}maglev.v3.Maglev": "MAGLEV",
    f"{_TYPE}random.v3.Random": "RANDOM",
    f"{_TYPE}client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin": "CLIENT_SIDE_WEIGHTED_ROUND_ROBIN",
}
_UPDATE_LEAST_MS: Final = 100
"""Envoy's own."""
_PENALTY: Final = 0.0
"""Envoy's where none is written; gRPC's is 1."""
_HASHES: Final = {"XX_HASH": HashFunction.XX_HASH, "MURMUR_HASH_2": HashFunction.MURMUR_HASH_2}
_FALLBACKS: Final = ("NO_FALLBACK", "ANY_ENDPOINT", "DEFAULT_SUBSET")
_OWN_FALLBACKS: Final = ("NOT_DEFINED", *_FALLBACKS, "KEYS_SUBSET")
_FALLBACK: Final = {
    "NO_FALLBACK": Fallback.NONE, "ANY_ENDPOINT": Fallback.ANY, "DEFAULT_SUBSET": Fallback.DEFAULT,
    "NOT_DEFINED": Fallback.UNSAID, "KEYS_SUBSET": Fallback.KEYS,
}  # fmt: skip

_Fields = dict[str, Any]


class Balancing(NamedTuple):
    """A cluster's policy without what its endpoints say, and how it treats localities."""

    policy: Policy = Policy(hash_health=False)
    by_locality: bool = False
    zone_least: int | None = 6
    hash_hostnames: bool = False
    subsets: Subsets | None = None


def balancing(cluster: Block, common: Block | None) -> Balancing:
    """`common` is the cluster's `common_lb_config`, whose other fields are the caller's."""
    kind = cluster.word("lb_policy", _POLICIES, "ROUND_ROBIN")
    cluster.one_of((*_CONFIGS.values(), "original_dst_lb_config"))
    fields: _Fields = {"hash_health": False, "name": kind.lower()}
    found = Balancing(zone_least=6)
    if common is not None:
        fields["panic"] = int(common.percent("healthy_panic_threshold", 50.0) + 0.5)
        found = _localities(common, fields, found)
        found = _consistent(common.block("consistent_hashing_lb_config"), fields, found)
    extension = cluster.block("load_balancing_policy")
    inner = {name: cluster.block(name) for name in _CONFIGS.values()}
    for name, block in inner.items():
        if block is not None:
            read: _Fields = {}
            _READERS[next(each for each, config in _CONFIGS.items() if config == name)](block, read)
            block.done()
            # The block of another policy is without effect, in Envoy as here; its fields must be right all the same.
            if _CONFIGS.get(kind) == name and extension is None:
                fields |= _fitting(block, read)
    if extension is not None:
        found = _extended(extension, fields, found._replace(by_locality=False, zone_least=6))
    elif kind in {"ORIGINAL_DST_LB", "CLUSTER_PROVIDED"}:
        cluster.refuse("lb_policy", "is not supported here")
        fields["name"] = "round_robin"
    elif kind == "LOAD_BALANCING_POLICY_CONFIG":
        cluster.refuse("lb_policy", "needs load_balancing_policy")
        fields["name"] = "round_robin"
    subsets = _subsets(cluster.block("lb_subset_config"))
    return found._replace(policy=_made(cluster, fields), subsets=subsets)


def _made(block: Block, fields: _Fields) -> Policy:
    try:
        return Policy(**fields)
    except ValueError as error:
        block.found.refuse(block.path, str(error), about_key=True)
        return Policy(hash_health=False)


def _localities(block: Block, fields: _Fields, found: Balancing) -> Balancing:
    """`zone_aware_lb_config` or `locality_weighted_lb_config`."""
    block.one_of(("zone_aware_lb_config", "locality_weighted_lb_config"))
    weighted, zoned = block.block("locality_weighted_lb_config"), block.block("zone_aware_lb_config")
    if weighted is not None:
        weighted.done()
        return found._replace(by_locality=True, zone_least=None)
    if zoned is None:
        return found
    enabled = zoned.percent("routing_enabled", 100.0)
    if 0 < enabled < 100:
        zoned.refuse("routing_enabled", "only 0 and 100 are supported here")
    least = zoned.whole("min_cluster_size", 6, most=UINT64)
    fields["fail_in_panic"] = zoned.flag("fail_traffic_on_panic")
    zoned.word("locality_basis", ("HEALTHY_HOSTS_NUM", "HEALTHY_HOSTS_WEIGHT"), "HEALTHY_HOSTS_NUM")
    zoned.unsupported({"force_local_zone": "", "force_locality_direct_routing": ""})
    zoned.done()
    return found._replace(zone_least=least if enabled else None)


def _consistent(block: Block | None, fields: _Fields, found: Balancing) -> Balancing:
    if block is None:
        return found
    by_name = block.flag("use_hostname_for_hashing")
    fields["balance_factor"] = block.whole("hash_balance_factor", 0, least=100)
    block.unsupported({"hash_policy": "a call's key is made of HashPolicy values"})
    block.done()
    return found._replace(hash_hostnames=by_name)


def _round_robin(block: Block, fields: _Fields) -> None:
    _slow_start(block, fields)


def _least_request(block: Block, fields: _Fields) -> None:
    _slow_start(block, fields)
    fields["choices"] = block.whole("choice_count", 2, least=2)
    fields["bias"] = _runtime(block, "active_request_bias", 1.0, least=0.0)


def _least_request_extended(block: Block, fields: _Fields) -> None:
    _least_request(block, fields)
    scan = block.word("selection_method", ("N_CHOICES", "FULL_SCAN"), "N_CHOICES") == "FULL_SCAN"
    block.unsupported({"enable_full_scan": "write selection_method: FULL_SCAN"})
    fields["full_scan"] = scan


def _ring(block: Block, fields: _Fields) -> None:
    words = tuple(_HASHES)
    _ring_sizes(block, fields)
    fields["hash_function"] = _HASHES[block.word("hash_function", words, "XX_HASH")]


def _ring_extended(block: Block, fields: _Fields) -> None:
    word = block.word("hash_function", ("DEFAULT_HASH", *_HASHES), "DEFAULT_HASH")
    fields["hash_function"] = _HASHES.get(word, HashFunction.XX_HASH)
    _ring_sizes(block, fields)


def _ring_sizes(block: Block, fields: _Fields) -> None:
    fields["ring_least"] = block.whole("minimum_ring_size", 1_024, least=1, most=RING_MOST)
    fields["ring_most"] = block.whole("maximum_ring_size", RING_MOST, most=RING_MOST)


def _maglev(block: Block, fields: _Fields) -> None:
    fields["table_size"] = block.whole("table_size", 65_537, most=TABLE_MOST)


def _fitting(block: Block, fields: _Fields) -> _Fields:
    """The fields, once they fit one another; where they do not, that is told and the defaults count."""
    least, most, size = fields.get("ring_least", 1), fields.get("ring_most", 1), fields.get("table_size", 2)
    if least > most:
        name = "maximum_ring_size" if block.has("maximum_ring_size") else "minimum_ring_size"
        block.refuse(name, f"must not be below minimum_ring_size ({least})")
        return {}
    if not is_prime(size):
        block.refuse("table_size", "must be a prime number", "65537 is one")
        return {}
    return fields


def _random(block: Block, fields: _Fields) -> None:
    del block, fields


def _reported(block: Block, fields: _Fields) -> None:
    """Weights by the loads that endpoints report with their answers."""
    _slow_start(block, fields)
    usual = Weighing()
    fields["weighing"] = Weighing(
        blackout_ms=block.ms("blackout_period", usual.blackout_ms, least=0) or 0,
        expiry_ms=block.ms("weight_expiration_period", usual.expiry_ms, least=0) or 0,
        update_ms=max(block.ms("weight_update_period", usual.update_ms, least=0) or 0, _UPDATE_LEAST_MS),
        penalty=block.number("error_utilization_penalty", _PENALTY),
        named=block.texts("metric_names_for_computing_utilization"),
    )
    if block.flag("enable_oob_load_report"):
        block.refuse("enable_oob_load_report", "is not supported here", "reports with answers are")
    block.aside("oob_reporting_period")


_READERS: Final[Mapping[str, Callable[[Block, _Fields], None]]] = {
    "ROUND_ROBIN": _round_robin, "LEAST_REQUEST": _least_request, "RING_HASH": _ring, "MAGLEV": _maglev,
}  # fmt: skip
_EXTENDED: Final[Mapping[str, Callable[[Block, _Fields], None]]] = {
    "ROUND_ROBIN": _round_robin, "LEAST_REQUEST": _least_request_extended, "RING_HASH": _ring_extended,
    "MAGLEV": _maglev, "RANDOM": _random, "CLIENT_SIDE_WEIGHTED_ROUND_ROBIN": _reported,
}  # fmt: skip


def _slow_start(block: Block, fields: _Fields) -> None:
    slow = block.block("slow_start_config")
    if slow is None:
        return
    window = slow.ms("slow_start_window", 0, least=0)
    aggression = _runtime(slow, "aggression", 1.0, least=None)
    least = slow.percent("min_weight_percent", 10.0) / 100
    slow.done()
    if window:
        fields["slow_start"] = SlowStart(window_ms=window, aggression=aggression, least=least)


def _runtime(block: Block, name: str, default: float, *, least: float | None) -> float:
    """A RuntimeDouble's default value: there is no runtime here. `least` None: above 0."""
    own = block.block(name)
    if own is None:
        return default
    value = own.number("default_value", 0.0)
    own.aside("runtime_key")
    own.done()
    is_fit = 0 < value < float("inf") if least is None else least <= value < float("inf")
    if not is_fit:
        own.refuse("default_value", "must be above 0" if least is None else f"must be {least:g} or more")
    return value if is_fit else default


def _extended(block: Block, fields: _Fields, found: Balancing) -> Balancing:
    """The first policy of the list that is known here, as Envoy takes the first that it knows."""
    policies = block.blocks("policies")
    block.done()
    passed = []
    for each in policies:
        typed = each.block("typed_extension_config")
        each.done()
        config = None if typed is None else typed.block("typed_config")
        if typed is None or config is None:
            each.found.refuse(each.path, "must have a typed_extension_config with a typed_config", about_key=True)
            return found
        typed.text("name", needed=True)
        typed.done()
        type_url = config.text("@type")
        if type_url in _EXTENSIONS:
            return _policy_of(_EXTENSIONS[type_url], config, fields, found)
        passed.append(type_url.removeprefix(_TYPE) or "a policy without @type")
    rule = f"holds no policy that is supported here: {', '.join(passed) or 'it is empty'}"
    hint = f"known here: {', '.join(url.removeprefix(_TYPE) for url in _EXTENSIONS)}"
    block.found.refuse(block.path, rule, hint, about_key=True)
    return found


def _policy_of(kind: str, config: Block, fields: _Fields, found: Balancing) -> Balancing:
    fields["name"] = kind.lower()
    own: _Fields = {}
    _EXTENDED[kind](config, own)
    fields |= _fitting(config, own)
    if kind in {"RING_HASH", "MAGLEV"}:
        found = _consistent(config.block("consistent_hashing_lb_config"), fields, found)
        weighted = config.block("locality_weighted_lb_config")
        if weighted is not None:
            weighted.done()
            found = found._replace(by_locality=True)
        config.unsupported(
            {
                "use_hostname_for_hashing": "write it in consistent_hashing_lb_config",
                "hash_balance_factor": "write it in consistent_hashing_lb_config",
            }
        )
    else:
        localities = config.block("locality_lb_config")
        if localities is not None:
            found = _localities(localities, fields, found)
            localities.done()
    config.done()
    return found


def _subsets(block: Block | None) -> Subsets | None:
    if block is None:
        return None
    fallback = _FALLBACK[block.word("fallback_policy", _FALLBACKS, "NO_FALLBACK")]
    default = _texts(block, "default_subset")
    selectors = tuple(_selector(each) for each in block.blocks("subset_selectors"))
    panic_any = block.flag("panic_mode_any")
    block.unsupported(
        {
            "locality_weight_aware": "", "scale_locality_weight": "", "list_as_any": "",
            "metadata_fallback_policy": "a call names one set of metadata",
        }
    )  # fmt: skip
    block.done()
    return Subsets(selectors=selectors, fallback=fallback, default=default, panic_any=panic_any) if selectors else None


def _selector(block: Block) -> Selector:
    keys, fewer = frozenset(block.texts("keys")), frozenset(block.texts("fallback_keys_subset"))
    fallback = _FALLBACK[block.word("fallback_policy", _OWN_FALLBACKS, "NOT_DEFINED")]
    block.unsupported({"single_host_per_subset": ""})
    block.done()
    if fallback is Fallback.KEYS and not (fewer and fewer < keys):
        block.refuse("fallback_keys_subset", "must name some of the keys, not all of them")
    return Selector(keys=keys, fallback=fallback, fallback_keys=fewer)


def _texts(block: Block, name: str) -> dict[str, str]:
    value = block.raw(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        block.refuse(name, "must be texts by key: metadata here is texts")
        return {}
    return {str(key): str(each) for key, each in value.items()}
