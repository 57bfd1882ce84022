"""A control plane: state of the world over ADS, whatever it is told to say. It remembers what was refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import grpc.aio
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2, json_format
from tests.proxy.world import Loop

from reachline.wire.ads import CDS, EDS, LDS, RDS

for _name in (
    "filters.http.router.v3.router", "filters.network.http_connection_manager.v3.http_connection_manager",
    "upstreams.http.v3.http_protocol_options", "transport_sockets.tls.v3.tls",
):  # fmt: skip
    import_module(f"envoy.extensions.{_name}_pb2")  # what a typed_config holds
KINDS = {
    CDS: cluster_pb2.Cluster, EDS: endpoint_pb2.ClusterLoadAssignment, LDS: listener_pb2.Listener,
    RDS: route_pb2.RouteConfiguration,
}  # fmt: skip
SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"


class Plane:
    """Written from the test's thread by `say`."""

    def __init__(self, loop: Loop) -> None:
        self.refused: list[str] = []
        self.nodes: list[str] = []
        self._loop = loop
        self._said: dict[str, tuple[int, list[dict[str, Any]]]] = {kind: (0, []) for kind in KINDS}
        self._streams: set[asyncio.Event] = set()
        self._server: Any = None
        self.port: int = loop.do(self._start())

    async def _start(self) -> int:
        self._server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=discovery_pb2.DiscoveryRequest.FromString,
            response_serializer=discovery_pb2.DiscoveryResponse.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"StreamAggregatedResources": handler}),)
        )
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return int(port)

    def say(self, kind: str, *resources: dict[str, Any]) -> None:
        async def change() -> None:
            self._said[kind] = (self._said[kind][0] + 1, list(resources))
            for stirred in self._streams:
                stirred.set()

        self._loop.do(change())

    def close(self) -> None:
        self._loop.do(self._server.stop(0))

    async def _stream(self, requests: AsyncIterator[Any], _: Any) -> AsyncIterator[Any]:
        wanted: dict[str, tuple[str, ...]] = {}
        sent: dict[str, tuple[int, tuple[str, ...]]] = {}
        stirred = asyncio.Event()
        self._streams.add(stirred)
        reading = asyncio.create_task(self._read(requests, wanted, stirred))
        try:
            while True:
                for kind in [each for each in (CDS, EDS, LDS, RDS) if each in wanted]:
                    version, resources = self._said[kind]
                    if version and sent.get(kind) != (version, wanted[kind]):
                        sent[kind] = (version, wanted[kind])
                        yield _response(kind, version, resources)
                await stirred.wait()
                stirred.clear()
        finally:
            reading.cancel()
            self._streams.discard(stirred)

    async def _read(
        self, requests: AsyncIterator[Any], wanted: dict[str, tuple[str, ...]], stirred: asyncio.Event
    ) -> None:
        async for request in requests:
            if request.HasField("node"):
                self.nodes.append(request.node.id)
            if request.HasField("error_detail"):
                self.refused.append(request.error_detail.message)
            wanted[request.type_url] = tuple(request.resource_names)
            stirred.set()


def _response(kind: str, version: int, resources: list[dict[str, Any]]) -> Any:
    said = []
    for each in resources:
        message = json_format.ParseDict(each, KINDS[kind]())
        said.append(any_pb2.Any(type_url=kind, value=message.SerializeToString()))
    return discovery_pb2.DiscoveryResponse(
        type_url=kind, version_info=str(version), nonce=f"{kind}{version}", resources=said
    )
