"""What it costs a center to hear data planes: calls of an access log, a load report, an Envoy's verdicts. Part of `xds`.

From a message's bytes to sums and readings, on one core, without the stream that carries it and the ledger behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

from envoy.service.accesslog.v3 import als_pb2
from envoy.service.health.v3 import hds_pb2
from envoy.service.load_stats.v3 import lrs_pb2
from google.protobuf import json_format
from tests.center.steered import Center

from reachline.center.owner import Owner
from reachline.center.xds.planes import By, Planes
from reachline.center.xds.verdicts import Verdicts, asking
from reachline.doors import reach
from reachline.model import Health, Locality
from reachline.testing.bench import Figure, measured
from reachline.wire import als, hds, lrs
from reachline.wire.telling import Teller

LINES = 1_000
CALLS = 43
"""Entries of one message: Envoy sends its buffer at 16 KiB."""
MESSAGES = 400
NODE = Teller("envoy-1", user_agent="envoy")


def at(number: int) -> dict[str, Any]:
    return {"socket_address": {"address": f"10.0.{number >> 8}.{number & 255}", "port_value": 443}}


def entry(number: int) -> dict[str, Any]:
    """As Envoy 1.40 sends one of a small GET: 370 bytes or so."""
    here = {"socket_address": {"address": "10.9.8.7", "port_value": 43_194}}
    moments = ("last_rx_byte", "first_upstream_tx_byte", "last_upstream_tx_byte", "first_upstream_rx_byte")
    moments += ("last_upstream_rx_byte", "first_downstream_tx_byte", "last_downstream_tx_byte")
    id_ = "84cf0a8b-6bc5-4816-8909-71fe406716f4"
    common = {
        **{f"time_to_{name}": f"0.00{place + 1}287995s" for place, name in enumerate(moments)},
        "downstream_remote_address": here, "downstream_local_address": here, "downstream_direct_remote_address": here,
        "start_time": "2026-11-30T21:44:19.670605Z", "upstream_remote_address": at(number), "upstream_local_address": here,
        "upstream_cluster": "shop", "response_flags": {}, "duration": "0.009786139s", "upstream_request_attempt_count": 1,
        "stream_id": id_, "downstream_wire_bytes_sent": 166, "downstream_wire_bytes_received": 85,
        "upstream_wire_bytes_sent": 162, "upstream_wire_bytes_received": 187, "access_log_type": "DownstreamEnd",
    }  # fmt: skip
    request = {
        "request_method": "GET", "scheme": "https", "authority": "shop.example.net:8443", "path": "/orders/4711/items?page=2",
        "user_agent": "curl/8.5.0", "request_id": id_, "request_headers_bytes": 157, "upstream_header_bytes_sent": 144,
    }  # fmt: skip
    response = {"response_code": 200, "response_headers_bytes": 139, "response_code_details": "via_upstream"}
    return {"common_properties": common, "protocol_version": "HTTP11", "request": request, "response": response}


def of(kind: Any, document: dict[str, Any]) -> bytes:
    return bytes(json_format.ParseDict(document, kind()).SerializeToString())


def evidence_figures() -> list[Figure]:
    rows = ", ".join(f'n{number}: "tcp://{at(number)["socket_address"]["address"]}:443"' for number in range(LINES))
    center = Center(f"clusters: {{shop: {{lines: {{{rows}}}}}}}", Health.HEALTHY)

    async def run() -> list[Figure]:
        # Nothing is posted: sums are made and left.
        planes = Planes(owner=cast(Owner, None), board=center.board)
        log, report = planes.joined(NODE, By.ALS, "peer"), planes.joined(NODE, By.LRS, "peer")
        entries = [entry(number % LINES) for number in range(CALLS)]
        logged = of(als_pb2.StreamAccessLogsMessage, {"http_logs": {"log_entry": entries}})
        spots = [{"locality": {"sub_zone": f"n{number}"}, "total_successful_requests": 9} for number in range(LINES)]
        load = of(
            lrs_pb2.LoadStatsRequest, {"cluster_stats": [{"cluster_name": "shop", "upstream_locality_stats": spots}]}
        )
        told, verdicts = _verdicts(center, planes)

        def calls() -> float:
            return MESSAGES * CALLS / _spent(lambda: [_log(planes, log, logged) for _ in range(MESSAGES)])

        def loads() -> float:
            found = 1e3 * _spent(lambda: planes.loads(report, lrs.decode(load).spots, at_ms=0, interval_us=1_000_000))
            report.sums.take()
            return found

        def heard() -> float:
            center.now_ms += 10_000

            def take() -> None:
                slices, _ = verdicts.sort(cast(hds.Told, hds.decode(told)).verdicts, center.now_ms)
                for said in slices:
                    verdicts.take(said, center.now_ms)

            return 1e3 * _spent(take)

        return [
            measured(f"calls of an access log, {len(logged) // CALLS} B each", "calls/s", calls),
            measured(f"a load report on {LINES} localities", "ms", loads),
            measured(f"an Envoy's verdicts on {LINES} lines", "ms", heard),
        ]

    return asyncio.run(run())


def _log(planes: Planes, plane: Any, data: bytes) -> None:
    found = als.decode(data)
    planes.calls(plane, found.calls, found.skipped)
    plane.sums.take()


def _verdicts(center: Center, planes: Planes) -> tuple[bytes, Verdicts]:
    """A report of an Envoy that probes every line, and what takes it."""
    plan = reach.plan(center.document, agent="envoy-1", locality=Locality(), number=1)
    asked, verdicts = asking(plan, planes.places().addresses()), Verdicts()
    verdicts.ask(asked, 0)
    rows = [
        {
            "cluster_name": ask.name,
            "locality_endpoints_health": [
                {"endpoints_health": [{"endpoint": {"address": at(number)}, "health_status": 1}]}
            ],
        }
        for number, ask in enumerate(asked.asks)
    ]
    said = {"endpoint_health_response": {"cluster_endpoints_health": rows}}
    return of(hds_pb2.HealthCheckRequestOrEndpointHealthResponse, said), verdicts


def _spent(work: Callable[[], object]) -> float:
    """Seconds of this process's processor time."""
    began = time.process_time()
    work()
    return time.process_time() - began
