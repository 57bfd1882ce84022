"""Data planes as far as a center can tell: streams of HDS, LRS and ALS that say what a test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
from envoy.service.accesslog.v3 import als_pb2
from envoy.service.health.v3 import hds_pb2
from envoy.service.load_stats.v3 import lrs_pb2
from google.protobuf import json_format

from reachline.testing.center import DOCUMENT, RunningCenter
from reachline.testing.wait import until
from reachline.wire import als, hds, lrs

Sync = Callable[[Any], None]
Center = Callable[..., Any]
NODE = {"id": "envoy-1", "cluster": "edge", "locality": {"zone": "az1"}, "user_agent_name": "envoy"}
CLUSTER = {"cluster_name": "payments", "load_report_interval": "1s"}


class Stream:
    """One stream of a data plane."""

    def __init__(self, call: Any, kind: Any, answer: Any) -> None:
        self._call = call
        self._kind = kind
        self._answer = answer

    async def say(self, **document: Any) -> None:
        await self.raw(json_format.ParseDict(document, self._kind()).SerializeToString())

    async def raw(self, data: bytes) -> None:
        """Lost where the center has ended the stream already: `ended` tells how."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._call.write(data)

    async def told(self) -> Any:
        return self._answer.FromString(await self._call.read())

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        """How the center ended it."""
        return await self._call.code(), await self._call.details()


@asynccontextmanager
async def stream(center: RunningCenter, method: str, token: str = "") -> AsyncIterator[Stream]:
    kind, answer = {
        hds.METHOD: (hds_pb2.HealthCheckRequestOrEndpointHealthResponse, hds_pb2.HealthCheckSpecifier),
        lrs.METHOD: (lrs_pb2.LoadStatsRequest, lrs_pb2.LoadStatsResponse),
        als.METHOD: (als_pb2.StreamAccessLogsMessage, als_pb2.StreamAccessLogsResponse),
    }[method]
    async with grpc.aio.insecure_channel(center.grpc[0]) as channel:
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        call: Any = channel.stream_stream(method)(metadata=metadata)
        try:
            yield Stream(call, kind, answer)
        finally:
            call.cancel()


def entry(line: str = "a", status: int = 200, took: float = 0.01, **common: Any) -> dict[str, Any]:
    host = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}.get(line, line)
    return {
        "common_properties": {
            "upstream_cluster": "payments",
            "upstream_remote_address": {"socket_address": {"address": host, "port_value": 443}},
            "time_to_first_upstream_rx_byte": f"{took}s",
            "duration": f"{took}s",
            **common,
        },
        "response": {"response_code": status},
    }


def load(sub_zone: str, ok: int = 0, errors: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "locality": {"sub_zone": sub_zone},
        "total_successful_requests": ok,
        "total_error_requests": errors,
        **more,
    }


async def plane(center: RunningCenter, by: str) -> Any:
    rows = (await center.json("/api/v1/evidence"))["planes"]
    return next((row for row in rows if row["by"] == by), {})


async def counted(center: RunningCenter, by: str, count: int) -> Any:
    async def are() -> Any:
        found = await plane(center, by)
        return found if found.get("counted", 0) >= count else None

    return await until(are, what=f"{count} calls by {by}")


async def outcomes(center: RunningCenter) -> dict[str, float]:
    return {
        name: await center.metric(f'reachline_outcomes_total{{result="{name}"}}')
        for name in ("ok", "failed", "late", "errors")
    }


def hello(method: str, node: dict[str, Any] = NODE) -> dict[str, Any]:
    match method:
        case hds.METHOD:
            asked = {"node": node, "capability": {"health_check_protocols": ["HTTP", "TCP"]}}
            return {"health_check_request": asked}
        case lrs.METHOD:
            return {"node": node}
        case _:
            return {"identifier": {"node": node}}


def verdicts(**healths: str) -> dict[str, Any]:
    host = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
    clusters = []
    for line, health in healths.items():
        endpoint = {"address": {"socket_address": {"address": host[line], "port_value": 443}}}
        rows = [{"endpoint": endpoint, "health_status": health}]
        clusters.append(
            {"cluster_name": f"payments/{line} tcp", "locality_endpoints_health": [{"endpoints_health": rows}]}
        )
    return {"endpoint_health_response": {"cluster_endpoints_health": clusters}}


PROBED = DOCUMENT.replace("clusters:", "probes: {tcp: 500ms, http: off}\nclusters:")
LOCKED = f"""{DOCUMENT}
agents: {{envoy-1: {{token: its-own-token}}, other: {{}}}}
center: {{grpc: '127.0.0.1:0', http: '127.0.0.1:0', journal: JOURNAL}}
"""
