"""Load reports (LRS): how many calls a data plane made to each locality and endpoint. Messages ⇄ values; needs the extra `xds`.

Envoy reports each endpoint, gRPC each locality. No latency is in it; `metrics` are what endpoints say of themselves (ORCA).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from reachline.wire.telling import Teller, locality_of, microseconds, read, teller_of

try:
    from envoy.service.load_stats.v3 import lrs_pb2
except ImportError as missing:
    raise ImportError(
        f"xDS needs the extra `xds`: pip install 'reachline[xds]' (no module {missing.name})"
    ) from missing

from reachline.errors import RemoteProtocolError
from reachline.model import Locality

__all__ = ["METHOD", "MOST_LOADS", "Load", "Metric", "Report", "Spot", "decode", "encode"]

METHOD: Final = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
MOST_LOADS: Final = 20_000
"""Localities and endpoints of one report, as of an HDS report."""
_MOST_METRICS: Final = 32
"""Of one locality or endpoint; the others are left."""
_LONGEST_NAME: Final = 64


class Metric(NamedTuple):
    """What endpoints said of themselves with their answers: a sum over so many of them."""

    name: str
    answers: int
    total: float


class Load(NamedTuple):
    """Calls that ended in one interval; `issued` began in it. Each count is one of its own interval, never a running total."""

    ok: int
    errors: int
    """5xx, or a gRPC status that is the server's fault; also calls that reached nobody."""
    issued: int = 0
    metrics: tuple[Metric, ...] = ()


class Spot(NamedTuple):
    """One locality of one cluster, and of its endpoints those that were named."""

    cluster: str
    locality: Locality
    load: Load
    endpoints: tuple[tuple[str, int, Load], ...] = ()
    """Address, port, and the part of `load` that went there."""


class Report(NamedTuple):
    """One message. `teller` is known from the first of a stream on, and may be said again."""

    teller: Teller | None
    spots: tuple[Spot, ...]
    interval_us: int = 0
    """The longest of the clusters' intervals."""


def decode(data: bytes) -> Report:
    """A load report; RemoteProtocolError where it cannot be read or is beyond all bounds."""
    message = read(lrs_pb2.LoadStatsRequest, data)
    count = sum(
        1 + len(one.upstream_endpoint_stats) for each in message.cluster_stats for one in each.upstream_locality_stats
    )
    if count > MOST_LOADS:
        raise RemoteProtocolError(f"a report on {count} localities and endpoints, at most {MOST_LOADS} are taken")
    return Report(
        teller_of(message.node) if message.HasField("node") else None,
        tuple(_spot(each.cluster_name, one) for each in message.cluster_stats for one in each.upstream_locality_stats),
        max((microseconds(each.load_report_interval) for each in message.cluster_stats), default=0),
    )


def encode(interval_ms: int) -> bytes:
    """The answer to the first message: of all clusters, each endpoint, this often."""
    message = lrs_pb2.LoadStatsResponse(send_all_clusters=True, report_endpoint_granularity=True)
    message.load_reporting_interval.FromMilliseconds(interval_ms)
    return bytes(message.SerializeToString())


def _spot(cluster: str, one: Any) -> Spot:
    return Spot(
        cluster, locality_of(one.locality), _load(one), tuple(_endpoint(each) for each in one.upstream_endpoint_stats)
    )


def _endpoint(one: Any) -> tuple[str, int, Load]:
    at = one.address.socket_address
    return at.address, at.port_value, _load(one)


def _load(one: Any) -> Load:
    metrics = tuple(_metrics(one.load_metric_stats)) if one.load_metric_stats else ()
    return Load(one.total_successful_requests, one.total_error_requests, one.total_issued_requests, metrics)


def _metrics(stats: Iterable[Any]) -> Iterable[Metric]:
    for one, _ in zip(stats, range(_MOST_METRICS), strict=False):
        name, answers, total = one.metric_name, one.num_requests_finished_with_metric, one.total_metric_value
        if 1 <= len(name) <= _LONGEST_NAME and name.isprintable() and answers and math.isfinite(total):
            yield Metric(name, answers, total)
