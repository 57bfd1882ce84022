"""A control plane that says exactly what a test tells it to, over real gRPC, and keeps all it was asked."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import grpc.aio
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2, json_format

EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"


def endpoint(host, port=80, **fields):
    """One of `lb_endpoints`, as JSON."""
    return {"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}} | fields


def assigned(name, *endpoints, policy=None, **group):
    """A ClusterLoadAssignment's message of one locality."""
    document = {"cluster_name": name, "endpoints": [{"lb_endpoints": list(endpoints)} | group], "policy": policy or {}}
    return json_format.ParseDict(document, endpoint_pb2.ClusterLoadAssignment())


def boxed(message):
    """A message as an Any; bytes as they are, of the right type."""
    if isinstance(message, bytes):
        return any_pb2.Any(type_url=EDS, value=message)
    box = any_pb2.Any()
    box.Pack(message)
    return box


class Stream:
    """One client's stream, as the plane sees it."""

    def __init__(self, context, is_delta):
        self._context, self._is_delta = context, is_delta
        self.asked = asyncio.Queue()
        self.over = asyncio.Event()

    async def next(self):
        """The next request."""
        async with asyncio.timeout(20):
            return await self.asked.get()

    async def say(self, *messages, nonce, version="1", type_url=EDS):
        """A SotW response."""
        resources = [boxed(each) for each in messages]
        await self.raw(
            discovery_pb2.DiscoveryResponse(type_url=type_url, version_info=version, nonce=nonce, resources=resources)
        )

    async def tell(self, *messages, nonce, version="1", removed=(), ttl=None):
        """A delta response; a text in place of a message is a heartbeat of that name."""
        resources = []
        for each in messages:
            is_name = isinstance(each, str)
            made = discovery_pb2.Resource(name=each if is_name else each.cluster_name, version=version)
            if not is_name:
                made.resource.CopyFrom(boxed(each))
            if ttl is not None:
                made.ttl.FromMilliseconds(round(ttl * 1_000))
            resources.append(made)
        await self.raw(
            discovery_pb2.DeltaDiscoveryResponse(
                type_url=EDS, nonce=nonce, resources=resources, removed_resources=removed
            )
        )

    async def raw(self, message):
        """Any message, or bytes that are none."""
        await self._context.write(message if isinstance(message, bytes) else message.SerializeToString())

    def drop(self):
        """End the stream."""
        self.over.set()

    async def read(self):
        kind = discovery_pb2.DeltaDiscoveryRequest if self._is_delta else discovery_pb2.DiscoveryRequest
        while (data := await self._context.read()) is not grpc.aio.EOF:
            self.asked.put_nowait(kind.FromString(data))


class Plane:
    """All streams, in the order they came."""

    def __init__(self):
        self.port = 0
        self.coming = asyncio.Queue()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    async def stream(self):
        """The next stream that a client opens."""
        async with asyncio.timeout(20):
            return await self.coming.get()

    async def serve(self, context, is_delta):
        stream = Stream(context, is_delta)
        self.coming.put_nowait(stream)
        reading = asyncio.ensure_future(stream.read())
        try:
            await stream.over.wait()
        finally:
            reading.cancel()


@contextlib.asynccontextmanager
async def plane(port=0):
    """One on 127.0.0.1."""
    made = Plane()

    async def sotw(_, context):
        await made.serve(context, is_delta=False)

    async def delta(_, context):
        await made.serve(context, is_delta=True)

    handlers = {
        "StreamAggregatedResources": grpc.stream_stream_rpc_method_handler(sotw),
        "DeltaAggregatedResources": grpc.stream_stream_rpc_method_handler(delta),
    }
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    made.port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield made
    finally:
        await server.stop(0)
