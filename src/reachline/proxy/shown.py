"""What the admin shows, as Envoy's users know it: clusters, the document, figures by Envoy's names. Values to texts; changes nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import resource
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from reachline.doors.envoy.chain import Chain, HttpManager
from reachline.doors.envoy.regexes import Expression
from reachline.doors.envoy.routes import RouteConfig
from reachline.doors.envoy.secured import Certificate
from reachline.doors.envoy.shown import Flag, Host, show
from reachline.members import Address
from reachline.proxy.backend import Backend
from reachline.proxy.doorway import Doorway
from reachline.proxy.front import Front
from reachline.proxy.tcp import TcpFront
from reachline.upstream.roll import Row

__all__ = ["clusters", "clusters_text", "config", "figures", "filtered", "memory", "prometheus"]

_WORDS: Final = {
    Flag.FAILED_CHECK: "/failed_active_hc", Flag.EJECTED: "/failed_outlier_check", Flag.DEGRADED: "/degraded_active_hc",
    Flag.REMOVED: "/pending_dynamic_removal", Flag.PENDING: "/pending_active_hc", Flag.EXCLUDED: "/excluded_via_immediate_hc_fail",
    Flag.TIMED_OUT: "/active_hc_timeout",
}  # fmt: skip
_UPSTREAM: Final = (
    "upstream_cx_total", "upstream_cx_connect_fail", "upstream_cx_connect_timeout", "upstream_cx_overflow",
    "upstream_cx_none_healthy", "upstream_rq_total", "upstream_rq_timeout", "upstream_rq_per_try_timeout", "upstream_rq_retry",
    "upstream_rq_retry_limit_exceeded", "upstream_rq_retry_overflow", "upstream_rq_pending_total", "upstream_rq_pending_overflow",
)  # fmt: skip
"""Shown also while they are 0."""
_DOWNSTREAM: Final = (
    "downstream_cx_total", "downstream_cx_destroy", "downstream_cx_destroy_remote", "downstream_cx_idle_timeout",
    "downstream_cx_protocol_error", "downstream_cx_rx_bytes_total", "downstream_cx_tx_bytes_total", "downstream_rq_idle_timeout",
    "downstream_rq_timeout", "downstream_rq_max_duration_reached",
)  # fmt: skip
_GAUGES: Final = re.compile(
    r"_active$|membership_(?:total|healthy|degraded|excluded)$|^server\.|ejections_active$|buffered$|_open$"
)
_LABELS: Final = (
    (re.compile(r"cluster\.(?P<envoy_cluster_name>.+?)\.(?P<name>(?:upstream|membership|outlier_detection|health_check|lb|circuit|update|retry).*)"), "cluster_"),
    (re.compile(r"http\.(?P<envoy_http_conn_manager_prefix>.+?)\.(?P<name>downstream.*)"), "http_"),
    (re.compile(r"tcp\.(?P<envoy_tcp_prefix>.+?)\.(?P<name>(?:downstream|idle|max).*)"), "tcp_"),
    (re.compile(r"listener\.(?P<envoy_listener_address>.+?)\.(?P<name>(?:downstream|ssl|no_filter).*)"), "listener_"),
)  # fmt: skip
_CODE: Final = re.compile(r"(.*_rq)_(\d{3})$")
_CLASS: Final = re.compile(r"(.*_rq)_(\dxx)$")


def _flags(row: Row) -> frozenset[Flag]:
    why, check = row.why, row.check
    found = {
        Flag.FAILED_CHECK: why.failed_check,
        Flag.EJECTED: why.ejected,
        Flag.DEGRADED: check is not None and check.degraded,
        Flag.REMOVED: row.is_leaving,
        Flag.PENDING: check is not None and check.pending,
        Flag.EXCLUDED: why.excluded and check is not None and check.excluded,
        Flag.TIMED_OUT: check is not None and check.timed_out,
    }
    return frozenset(flag for flag, is_so in found.items() if is_so)


def clusters(backends: Mapping[str, Backend]) -> dict[str, object]:
    """`/clusters?format=json`."""
    hosts = {
        name: [
            Host(
                row.member.address,
                _flags(row),
                row.member.health,
                row.member.weight,
                row.member.priority,
                row.member.locality,
                row.member.hostname,
            )
            for row in backend.kept.rows()
        ]
        for name, backend in backends.items()
    }
    document = show(hosts)
    statuses = document["cluster_statuses"]
    assert isinstance(statuses, list)
    for status in statuses:
        backend = backends[status["name"]]
        for host in status["host_statuses"]:
            place = host["address"]["socket_address"]
            key = str(Address(place["address"], place["port_value"]))
            host["stats"] = [
                {"name": each, "value": str(value), **({"type": "GAUGE"} if each.endswith("active") else {})}
                for each, value in _endpoint(backend, key).items()
            ]
    return document


def _endpoint(backend: Backend, key: str) -> dict[str, int]:
    counts = backend.endpoints.get(key, Counter())
    told = backend.kept.explain(key)
    return {
        "cx_active": backend.pool.open_to(key),
        "cx_connect_fail": counts["cx_connect_fail"],
        "rq_active": told[0].active if told else 0,
        "rq_error": counts["rq_error"],
        "rq_success": counts["rq_success"],
        "rq_timeout": counts["rq_timeout"],
        "rq_total": counts["rq_success"] + counts["rq_error"] + counts["rq_timeout"],
    }


def clusters_text(backends: Mapping[str, Backend]) -> str:
    """`/clusters`."""
    return "".join(f"{name}::{line}\n" for name, backend in backends.items() for line in _cluster_lines(name, backend))


def _cluster_lines(name: str, backend: Backend) -> Iterator[str]:
    yield f"observability_name::{name}"
    usual, high = backend.cluster.thresholds, backend.cluster.high_thresholds
    for word, limits in (("default", usual), ("high", high)):
        for field in ("max_connections", "max_pending_requests", "max_requests", "max_retries"):
            yield f"{word}_priority::{field}::{getattr(limits, field)}"
    yield "added_via_api::false"
    for row in backend.kept.rows():
        member = row.member
        flags = "".join(_WORDS[each] for each in Flag if each in _flags(row)) or "healthy"
        said: dict[str, object] = {
            **_endpoint(backend, row.key),
            "hostname": member.hostname,
            "health_flags": flags,
            "weight": member.weight,
            "region": member.locality.region,
            "zone": member.locality.zone,
            "sub_zone": member.locality.sub_zone,
            "canary": "false",
            "priority": member.priority,
        }
        for key, value in said.items():
            yield f"{row.key}::{key}::{value}"


def config(
    chain: Chain, backends: Mapping[str, Backend], doorways: Sequence[Doorway], routes: Mapping[str, RouteConfig]
) -> dict[str, object]:
    """`/config_dump`: the document as it was understood, and what came from elsewhere, in our words; private keys are left out."""
    fixed = {each.name for each in chain.listeners}
    moving = [_plain(each.listener) for each in doorways if each.listener.name not in fixed]
    heard = [
        {"cluster": _plain(each.cluster), "upstream": _plain(each.upstream)}
        for name, each in backends.items()
        if name not in chain.settings.clusters
    ]
    listeners = [_plain(each) for each in chain.listeners]
    clusters = [
        {"cluster": _plain(each), "upstream": _plain(chain.upstreams.get(name))}
        for name, each in chain.settings.clusters.items()
    ]
    return {
        "configs": [
            {"@type": "reachline/BootstrapDump", "node": _plain(chain.node), "admin": _plain(chain.admin)},
            {"@type": "reachline/ClustersDump", "static_clusters": clusters, "dynamic_clusters": heard},
            {"@type": "reachline/ListenersDump", "static_listeners": listeners, "dynamic_listeners": moving},
            {"@type": "reachline/RoutesDump", "dynamic_route_configs": [_plain(each) for each in routes.values()]},
        ]
    }


def _plain(value: object) -> object:
    if isinstance(value, Certificate):
        return {"chain": _plain(value.chain), "key": "[redacted]"}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {str(key): _plain(each) for key, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Expression):
        return value.pattern
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def figures(
    backends: Mapping[str, Backend], doorways: Sequence[Doorway], *, is_live: bool, began: float
) -> dict[str, int]:
    """Counters and gauges by Envoy's names, in their order."""
    found: dict[str, int] = {
        "server.live": int(is_live),
        "server.uptime": int(asyncio.get_running_loop().time() - began),
        "server.total_connections": 0,
    }
    for name, backend in backends.items():
        start = f"cluster.{name}."
        found |= {f"{start}{key}": backend.counts[key] for key in (*_UPSTREAM, *backend.counts)}
        found |= {f"{start}http2.{key}": value for key, value in backend.pool.http2.items()}
        found |= {f"{start}{key}": value for key, value in backend.kept.metrics().items()}
        found |= _by_code(f"{start}upstream_rq", backend.codes)
        found[f"{start}upstream_cx_active"] = backend.pool.connections + backend.tunnels
        found[f"{start}upstream_rq_active"] = backend.active
        found[f"{start}upstream_rq_pending_active"] = backend.pool.pending
    for doorway in doorways:
        for key, value in doorway.counts.items():
            found[f"listener.{_address(doorway)}.{key}"] = value
        for handling in doorway.handlings:
            _add_serving(found, handling.serving)
    return dict(sorted(found.items()))


def _add_serving(found: dict[str, int], serving: object) -> None:
    if isinstance(serving, Front) and isinstance(serving.manager, HttpManager):
        start = f"http.{serving.manager.stat_prefix}."
        said = {key: serving.counts[key] for key in (*_DOWNSTREAM, *serving.counts)}
        said |= _by_code("downstream_rq", serving.codes)
        for key, value in serving.http2.items():
            found[f"http2.{key}"] = found.get(f"http2.{key}", 0) + value
        active = sum(len(each.exchanges) for each in serving.connections)
        said["downstream_rq_total"], said["downstream_rq_active"] = serving.codes.total() + active, active
        said["downstream_cx_active"] = len(serving.connections)
        found["server.total_connections"] += len(serving.connections)
    elif isinstance(serving, TcpFront):
        start = f"tcp.{serving.settings.stat_prefix}."
        said = {**serving.counts, "downstream_cx_active": len(serving.tunnels)}
        found["server.total_connections"] += len(serving.tunnels)
    else:
        return
    for key, value in said.items():
        # Counters are the manager's, which several chains may share a prefix of; figures of now are each chain's own.
        is_shared = isinstance(serving, Front) and key in serving.counts
        found[start + key] = value if is_shared else found.get(start + key, 0) + value


def _by_code(start: str, codes: Mapping[int, int]) -> dict[str, int]:
    known = {code: count for code, count in codes.items() if code}
    found = {f"{start}_{code}": count for code, count in known.items()} if start.endswith("upstream_rq") else {}
    for hundred in range(1, 6):
        count = sum(each for code, each in known.items() if code // 100 == hundred)
        if count or not start.startswith("cluster"):
            found[f"{start}_{hundred}xx"] = count
    found[f"{start}_completed"] = sum(known.values())
    return found


def _address(doorway: Doorway) -> str:
    return str(doorway.listener.address).replace(":", "_") if doorway.listener.address.port else doorway.listener.name


def filtered(found: Mapping[str, int], query: Mapping[str, str]) -> dict[str, int] | None:
    """What `filter` and `usedonly` leave; None where the expression is none."""
    try:
        wanted = re.compile(query.get("filter", ""))
    except re.error:
        return None
    used = "usedonly" in query
    return {name: value for name, value in found.items() if wanted.search(name) and (value or not used)}


def prometheus(found: Mapping[str, int]) -> str:
    """The figures in Prometheus' text format, by the names and labels that Envoy gives them."""
    families: dict[str, list[str]] = {}
    for full, value in found.items():
        name, labels = _family(full)
        text = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
        families.setdefault(name, []).append(f"{name}{{{text}}} {value}\n")
    out = []
    for name in sorted(families):
        kind = "gauge" if _GAUGES.search(name.removeprefix("envoy_").replace("server_", "server.", 1)) else "counter"
        out.append(f"# TYPE {name} {kind}\n" + "".join(families[name]))
    return "".join(out)


def _family(full: str) -> tuple[str, dict[str, str]]:
    labels: dict[str, str] = {}
    name, start = full, ""
    for pattern, prefix in _LABELS:
        match = pattern.fullmatch(full)
        if match is not None:
            labels = match.groupdict()
            name, start = labels.pop("name"), prefix
            break
    if (code := _CODE.fullmatch(name)) is not None:
        name, labels = code[1], {"envoy_response_code": code[2], **labels}
    elif (group := _CLASS.fullmatch(name)) is not None:
        name, labels = f"{group[1]}_xx", {"envoy_response_code_class": group[2][0], **labels}
    return re.sub(r"[^a-zA-Z0-9_]", "_", f"envoy_{start}{name}"), labels


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def memory() -> dict[str, str]:
    """`/memory`: what the kernel says this process has had at most."""
    return {"allocated": str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)}
