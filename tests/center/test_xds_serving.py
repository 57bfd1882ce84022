"""ADS over real gRPC streams: who is told what, who is refused, and that one client's trouble is nobody else's."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest

pytest.importorskip("envoy.service.discovery.v3.discovery_pb2", reason="xds-protos is not installed")

from envoy.config.endpoint.v3 import endpoint_pb2
from google.protobuf import json_format

from reachline.center.published import Published
from reachline.center.xds.door import DELTA, SOTW, Closed
from reachline.center.xds.operators import is_troubled, row
from reachline.center.xds.resources import Audience, Cells, Kind, Resources
from reachline.center.xds.serving import Serving
from reachline.errors import RemoteProtocolError
from reachline.model import Health, Locality
from reachline.net import rpc
from reachline.net.ads import Ads
from reachline.testing.center import ADDRESSES, DOCUMENT, RunningCenter, dead, good
from reachline.testing.serving import serving
from reachline.testing.wait import until
from reachline.wire import xds
from reachline.wire.ads import CDS, EDS, DeltaRequest, Request, Response, Told
from reachline.wire.resources import EMPTY, Shelf, rendered

ENVOY = xds.Node(id="e1", user_agent="envoy", version="1.40.0", locality=Locality(zone="z1"))
GRPC = xds.Node(id="g1", user_agent="gRPC C-core osx")


LIVELY = {"grpc.keepalive_time_ms": 500}
"""Who is silent is asked at once; how long for an answer is waited is the port's own."""


async def nobody(*_: object) -> None:
    """No agent is let in."""


class Client:
    """A client's end of a stream, message by message."""

    def __init__(self, attached: rpc.Attached, node: xds.Node, *, delta: bool) -> None:
        self.attached, self.node, self.delta = attached, node, delta
        self.frames = attached.frames()

    async def says(self, request: Request | DeltaRequest) -> None:
        await self.attached.send(xds.encode(request, self.node), 10)

    async def asks(self, *names: str, type_url: str = EDS, is_first: bool = True, version: str = "") -> None:
        if self.delta:
            await self.says(DeltaRequest(type_url, names, is_first=is_first))
        else:
            await self.says(Request(type_url, names, version, is_first=is_first))

    async def hears(self) -> Response:
        async with asyncio.timeout(30):
            return (xds.decode_delta if self.delta else xds.decode)(await anext(self.frames))

    async def takes(self, *names: str, error: str = "") -> dict[str, str]:
        """The next answer, acknowledged (or refused)."""
        response = await self.hears()
        if self.delta:
            await self.says(DeltaRequest(response.type_url, nonce=response.nonce, error=error))
        else:
            await self.says(Request(response.type_url, names, response.version, response.nonce, error))
        return {one.name or _text(one.body).partition("=")[0]: _text(one.body) for one in response.parcels}


def _text(body: bytes) -> str:
    return body.decode(errors="replace")


class Served:
    """A control plane on a socket, whose resources the test publishes."""

    def __init__(self, socket: str, **options: object) -> None:
        self.socket = socket
        self.cells, self.counts = Cells(), Counter[tuple[str, str]]()
        self.serving = Serving(self.cells, clock=lambda: 0, counts=self.counts, **options)  # type: ignore[arg-type]
        self.now: Resources = EMPTY
        self.cells.asked = lambda _: self.publish()

    def publish(self, type_url: str = EDS, /, **bodies: str) -> None:
        self.now = self.now.replaced(
            rendered(type_url, name, f"{name}={body}".encode()) for name, body in bodies.items()
        )
        for audience in self.cells.audiences:
            self.cells.publish(audience, self.now)

    @asynccontextmanager
    async def client(self, node: xds.Node = ENVOY, *, delta: bool = False) -> AsyncIterator[Client]:
        attached = await rpc.attach(self.socket, timeout=30, method=DELTA if delta else SOTW)
        try:
            yield Client(attached, node, delta=delta)
        finally:
            await attached.close()


Serves = Callable[[Callable[[Served], Coroutine[None, None, None]]], None]


@pytest.fixture
def serves(tmp_path: Path, sync) -> Callable[..., None]:
    """Runs a test against a control plane; it ends with no stream and no task left."""

    def run(test: Callable[[Served], Coroutine[None, None, None]], **options: object) -> None:
        async def work() -> None:
            served = Served(f"unix:{tmp_path}/s", **options)
            services = {SOTW: served.serving.sotw, DELTA: served.serving.delta}
            server = await rpc.serve([served.socket], nobody, services=services, options=LIVELY)
            try:
                await test(served)
                await until(lambda: not served.serving.streams, what="every stream to end")
                assert not served.cells.audiences
            finally:
                await server.close(0)

        sync(work())

    return run


@pytest.mark.parametrize("delta", [False, True])
def test_a_client_is_told_what_it_asks_for_and_then_what_changes(serves, delta) -> None:
    async def test(served: Served) -> None:
        served.publish(a="1", b="1")
        async with served.client(delta=delta) as client:
            await client.asks("a")
            first = await client.takes("a")
            served.publish(b="2")
            served.publish(a="2")

            assert (first, await client.takes("a")) == ({"a": "a=1"}, {"a": "a=2"})

    serves(test)


def test_clients_are_told_by_their_kind_and_place(serves) -> None:
    async def test(served: Served) -> None:
        async with served.client() as one, served.client(GRPC) as other:
            await one.asks("a")
            await other.asks("a")
            await until(lambda: len(served.cells.audiences) == 2, what="two audiences")

            assert served.cells.audiences.keys() == {
                Audience(Kind.ENVOY, Locality(zone="z1")),
                Audience(Kind.GRPC, Locality()),
            }

    serves(test)


def test_who_refuses_one_cluster_keeps_getting_the_others_and_its_reason_is_shown(serves) -> None:
    async def test(served: Served) -> None:
        served.publish(CDS, a="1", b="1")
        async with served.client() as client:
            await client.asks(type_url=CDS)
            await client.takes()
            served.publish(CDS, a="2", b="bad")
            await client.takes(error="b: is bad")
            again = await client.takes()
            served.publish(CDS, a="3")
            later = await client.takes()
            (stream,) = served.serving.streams
            seen = row(stream, 0, is_settled=True)

            assert (again, later) == ({"a": "a=2", "b": "b=1"}, {"a": "a=3", "b": "b=1"})
            assert seen["types"][0]["refused"] == {"b": "b: is bad"}
            assert is_troubled(stream, 0)
            assert served.counts["xds_requests", "nack"] == 1

    serves(test)


def test_a_client_that_takes_nothing_costs_the_others_nothing_and_holds_one_state(serves) -> None:
    """Neither acknowledges nor reads, and every state is 200 kB: kept for it, they would be 20 MB."""
    large = "x" * 200_000

    async def test(served: Served) -> None:
        async with served.client() as stalled, served.client() as well:
            await stalled.asks("a")
            await well.asks("a")
            for number in range(100):
                served.publish(a=f"{number}{large}")
                while not (await well.takes("a")).get("a", "").startswith(f"a={number}x"):
                    pass
            await until(lambda: len(served.serving.streams) == 2, what="both streams")
            told = sorted(stream.told for stream in served.serving.streams)
            gc.collect()
            shelves = sum(isinstance(each, Shelf) and "a" in each.by_name for each in gc.get_objects())

            assert told[0] <= 1
            assert told[1] >= 100
            # The newest, what the stalled one was told, and the pairs whose differences are remembered.
            assert shelves <= 20

    serves(test)


def test_streams_end_cleanly_when_the_center_stops_and_nobody_new_is_served(serves) -> None:
    async def test(served: Served) -> None:
        served.publish(a="1")
        async with served.client() as client, served.client() as late:
            await client.asks("a")
            await client.takes("a")

            served.serving.close()
            with pytest.raises(StopAsyncIteration):
                await anext(client.frames)
            await late.asks("a")
            with pytest.raises(ConnectionError, match="the center stops"):
                await anext(late.frames)

    serves(test)


def held(served: Served) -> list[bool]:
    """Of each stream whether it waits until lines are judged."""
    streams = served.serving.streams
    return sorted(row(stream, 0, is_settled=served.serving.is_settled)["held"] for stream in streams)


def test_who_was_told_more_by_an_earlier_center_waits_and_who_is_new_does_not(serves) -> None:
    settled = Published(False)

    async def test(served: Served) -> None:
        served.publish(a="1")
        async with served.client() as back, served.client() as new, served.client(delta=True) as delta:
            running = asyncio.create_task(served.serving.run())
            await back.asks("a", version="of an earlier center")
            await delta.says(DeltaRequest(EDS, ("a",), versions={"a": "7"}, is_first=True))
            await new.asks("a")
            first = await new.takes("a")
            served.publish(a="2")
            second = await new.takes("a")
            await until(lambda: held(served) == [False, True, True], what="the center to have heard all three")
            told = [stream.told for stream in served.serving.streams if stream.is_returning]
            settled.replace(True)

            assert (first, second) == ({"a": "a=1"}, {"a": "a=2"})
            assert told == [0, 0]
            assert await back.takes("a") == await delta.takes() == {"a": "a=2"}
            await running

    serves(test, settled=settled)


def refuses(_: rpc.Call, node: xds.Node) -> None:
    raise PermissionError(f"{node.id} shows no token")


@pytest.mark.parametrize(
    ("said", "why", "options"),
    [
        (Request(EDS, ("a",)), "must say who asks", {}),
        (Request("x.Secret", ("a",), is_first=True), "'x.Secret' is not served here", {}),
        (Request(EDS, ("a",), is_first=True), "e1 shows no token", {"admit": refuses}),
        (None, "DiscoveryRequest cannot be read", {}),
    ],
)
def test_who_cannot_be_served_is_told_why_and_counted(serves, said, why, options) -> None:
    async def test(served: Served) -> None:
        async with served.client() as client:
            await client.attached.send(b"\xff" if said is None else xds.encode(said, ENVOY), 10)
            with pytest.raises(RemoteProtocolError, match=why):
                await anext(client.frames)

        assert sum(count for (name, _), count in served.counts.items() if name == "xds_refused") == 1

    serves(test, **options)


def test_a_client_that_breaks_the_protocol_later_is_told_why_and_the_others_go_on(serves) -> None:
    async def test(served: Served) -> None:
        served.publish(a="1")
        async with served.client() as one, served.client() as other:
            for client in (one, other):
                await client.asks("a")
                await client.takes("a")

            await one.says(Request("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", ("s",)))
            with pytest.raises(RemoteProtocolError, match="secrets are not served here"):
                await anext(one.frames)
            served.publish(a="2")

            assert await other.takes("a") == {"a": "a=2"}

    serves(test)


def test_an_oversize_request_ends_its_stream_only(serves) -> None:
    large = xds.encode(Request(EDS, ("n" * 1_000,) * 9_000, is_first=True), ENVOY)

    async def test(served: Served) -> None:
        served.publish(a="1")
        async with served.client() as other, grpc.aio.insecure_channel(served.socket) as channel:
            await other.asks("a")
            await other.takes("a")
            call: Any = channel.stream_stream(SOTW)()
            await call.write(large)
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            served.publish(a="2")

            assert await other.takes("a") == {"a": "a=2"}

    serves(test)


def test_streams_beyond_the_bound_are_refused_until_one_ends(serves) -> None:
    async def test(served: Served) -> None:
        served.publish(a="1")
        async with served.client() as one:
            await one.asks("a")
            await one.takes("a")
            async with served.client() as two:
                await two.asks("a")
                with pytest.raises(ConnectionError, match="1 streams are open"):
                    await anext(two.frames)
        await until(lambda: not served.serving.streams, what="the first to be gone")
        async with served.client() as three:
            await three.asks("a")
            assert await three.takes("a") == {"a": "a=1"}

    serves(test, most=1)


def test_streams_that_have_not_said_who_they_are_take_room_too(serves) -> None:
    async def test(served: Served) -> None:
        opened, over = asyncio.Event(), asyncio.Event()

        async def silent() -> AsyncIterator[bytes]:
            opened.set()
            await over.wait()
            for nothing in ():
                yield nothing

        call = rpc.Call("peer", {})
        silence = asyncio.ensure_future(served.serving.sotw.hold(silent(), call, nobody))
        await opened.wait()
        with pytest.raises(ConnectionError, match="1 streams are open"):
            await served.serving.sotw.hold(silent(), call, nobody)

        over.set()
        with pytest.raises(RemoteProtocolError, match="no message within"):
            await silence
        served.publish(a="1")
        async with served.client() as client:
            await client.asks("a")
            assert await client.takes("a") == {"a": "a=1"}

    serves(test, most=1)


@pytest.mark.parametrize("error", [ConnectionError("it went"), ValueError("a fault of ours")])
def test_a_stream_whose_client_cannot_be_told_any_more_ends_with_the_reason(serves, error) -> None:
    async def test(served: Served) -> None:
        async def asks() -> AsyncIterator[bytes]:
            yield xds.encode(Request(EDS, ("a",), is_first=True), ENVOY)
            await asyncio.Event().wait()

        async def breaks(_: bytes) -> None:
            raise error

        served.publish(a="1")
        with pytest.raises(type(error), match=str(error)):
            async with asyncio.timeout(30):
                await served.serving.sotw.hold(asks(), rpc.Call("peer", {}), breaks)

    serves(test)


@pytest.mark.parametrize(("then", "ending"), [((), "OK"), ((b"\xff",), "INVALID_ARGUMENT")])
def test_who_ends_its_half_or_speaks_wrongly_at_once_is_told_its_answer_and_the_end(serves, then, ending) -> None:
    """While the first answer is on its way: ended then, gRPC would say nothing and keep the call."""

    async def test(served: Served) -> None:
        served.publish(a="1")
        async with grpc.aio.insecure_channel(served.socket) as channel, asyncio.timeout(30):
            call: Any = channel.stream_stream(SOTW)()
            for message in (xds.encode(Request(EDS, ("a",), is_first=True), ENVOY), *then):
                await call.write(message)
            await call.done_writing()

            told = 0
            with suppress(grpc.aio.AioRpcError):
                while await call.read() is not grpc.aio.EOF:
                    told += 1
            assert (told, (await call.code()).name) == (1, ending)

    serves(test)


def test_a_stream_whose_audience_cannot_be_told_anything_ends_and_takes_no_room(serves) -> None:
    async def test(served: Served) -> None:
        def breaks(_: Audience) -> None:
            raise ValueError("a fault of ours")

        async def asks() -> AsyncIterator[bytes]:
            yield xds.encode(Request(EDS, ("a",), is_first=True), ENVOY)

        served.cells.asked = breaks
        with pytest.raises(ValueError, match="a fault of ours"):
            await served.serving.sotw.hold(asks(), rpc.Call("peer", {}), nobody)

        assert not served.serving.streams

    serves(test, most=1)


def test_thousands_of_names_that_do_not_exist_are_answered_by_silence_and_found_when_they_come(serves) -> None:
    async def test(served: Served) -> None:
        names = tuple(f"c{number}" for number in range(5_000))
        async with served.client() as client:
            await client.asks(*names)
            await until(lambda: served.serving.streams, what="the stream")
            served.publish(c4999="1", other="1")

            assert await client.takes(*names) == {"c4999": "c4999=1"}

    serves(test)


def test_a_center_without_the_extra_says_so_to_who_asks(tmp_path, sync) -> None:
    async def work() -> None:
        closed = Closed("xDS needs the extra `xds`")
        server = await rpc.serve([f"unix:{tmp_path}/s"], nobody, services=closed.services)
        attached = await rpc.attach(f"unix:{tmp_path}/s", timeout=30, method=SOTW)
        await attached.send(xds.encode(Request(CDS, (), is_first=True), ENVOY), 10)

        with pytest.raises(RemoteProtocolError, match="needs the extra `xds`"):
            await anext(attached.frames())

        assert closed.page()["reason"] == "xDS needs the extra `xds`"
        await attached.close()
        await server.close(0)

    sync(work())


def test_a_client_behind_a_dead_wire_is_let_go(serves, tmp_path) -> None:
    """Half-open: the wire takes bytes and brings none; the keepalive of the port notices."""

    async def test(served: Served) -> None:
        served.publish(a="1")
        async with wire(served.socket.removeprefix("unix:"), f"{tmp_path}/w") as cut:
            attached = await rpc.attach(f"unix:{tmp_path}/w", timeout=30, method=SOTW)
            client = Client(attached, ENVOY, delta=False)
            await client.asks("a")
            await client.takes("a")
            await until(lambda: served.counts["xds_requests", "ack"], what="its ACK")

            cut.set()
            await until(lambda: not served.serving.streams, within=30, what="the stream to be given up")
            await attached.close()

    serves(test)


@asynccontextmanager
async def wire(to: str, at: str) -> AsyncIterator[asyncio.Event]:
    """A relay between two sockets that swallows everything once it is cut, and closes nothing."""
    cut = asyncio.Event()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if not cut.is_set():
                writer.write(data)

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(to)
        both = [asyncio.create_task(relay(reader, back)), asyncio.create_task(relay(there, writer))]
        try:
            await asyncio.wait(both)
        finally:
            back.transport.abort()
            for task in both:
                task.cancel()

    async with serving(accepted, at=at):
        yield cut
    Path(at).unlink()


def test_a_center_shows_who_follows_it_and_what_was_refused(center, sync) -> None:
    async def work() -> None:
        async with center() as running:
            attached = await rpc.attach(running.grpc[0], timeout=30, method=SOTW)
            client = Client(attached, ENVOY, delta=False)
            await client.asks(type_url=CDS)
            await client.takes(error="payments: no")
            await client.asks("payments", is_first=False)
            await client.hears()

            document = await running.json("/api/v1/xds")
            (stream,) = document["streams"]
            (cluster, endpoints) = stream["types"]
            metrics = (await running.client.get("/metrics")).text

            assert document["served"]
            assert document["troubled"] == 1
            assert document["audiences"][0]["resources"] == {"Cluster": 1, "ClusterLoadAssignment": 1}
            assert (stream["node"], stream["kind"], stream["release"]) == ("e1", "envoy", "envoy 1.40.0")
            assert (cluster["type"], cluster["wildcard"], cluster["refused"]) == (
                "Cluster",
                True,
                {"payments": "payments: no"},
            )
            assert (endpoints["names"], endpoints["waiting"], endpoints["current"]) == (["payments"], True, False)
            assert (await running.json("/api/v1/xds?node=other"))["streams"] == []
            assert len((await running.json("/api/v1/xds?trouble=1"))["streams"]) == 1
            assert 'reachline_xds_streams{client="envoy"} 1.0' in metrics
            assert 'reachline_xds_requests_total{kind="nack"} 1' in metrics
            await attached.close()

    sync(work())


def test_a_center_with_a_token_serves_only_who_shows_it(center, sync) -> None:
    async def work() -> None:
        text = f"{DOCUMENT}\n{ADDRESSES.removesuffix('}')}, token: geheim}}"
        async with center(text) as running, grpc.aio.insecure_channel(running.grpc[0]) as channel:
            first = xds.encode(Request(CDS, (), is_first=True), ENVOY)
            for token, code in (("falsch", grpc.StatusCode.UNAUTHENTICATED), ("geheim", None)):
                call: Any = channel.stream_stream(SOTW)(metadata=(("authorization", f"Bearer {token}"),))
                await call.write(first)
                if code is None:
                    assert xds.decode(await call.read()).type_url == CDS
                    call.cancel()
                else:
                    assert await call.code() is code
                    assert "e1" in await call.details()

    sync(work())


def test_after_a_restart_without_a_journal_who_knows_more_is_told_first_what_was_judged(center, sync) -> None:
    """A dead line that an earlier center had taken out must not come back for the time that a new one needs to find it dead."""

    async def work() -> None:
        async with center() as running, running.agent() as agent:
            attached = await rpc.attach(running.grpc[0], timeout=30, method=SOTW)
            client = Client(attached, ENVOY, delta=False)
            await client.asks("payments", version="of an earlier center")
            await until(lambda: streams(running), what="the stream")
            (held,) = await streams(running)

            async def judged() -> bool:
                await agent.report({"payments/a": good(), "payments/b": good(), "payments/c": dead()})
                return bool((await running.json("/api/v1/xds"))["settled"])

            await until(judged, every=0.2, what="every line to be judged")
            first = xds.assignment((await client.hears()).parcels[0]).value

            assert (held["held"], held["told"]) == (True, 0)
            assert isinstance(first, xds.Assignment)
            healths = {member.locality.sub_zone: member.health for member in first.membership.members}
            assert healths == {"a": Health.HEALTHY, "b": Health.HEALTHY, "c": Health.UNHEALTHY}
            await attached.close()

    async def streams(running: RunningCenter) -> list[Any]:
        found: list[Any] = (await running.json("/api/v1/xds"))["streams"]
        return found

    sync(work())


@pytest.mark.parametrize("delta", [False, True])
def test_our_own_client_follows_our_own_center(serves, delta) -> None:
    def assigned(port: int) -> bytes:
        address = {"socket_address": {"address": "10.0.0.1", "port_value": port}}
        document = {"cluster_name": "a", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]}
        return bytes(json_format.ParseDict(document, endpoint_pb2.ClusterLoadAssignment()).SerializeToString())

    async def test(served: Served) -> None:
        def publish(port: int) -> None:
            served.now = served.now.replaced([rendered(EDS, "a", assigned(port))])
            served.publish()

        ports: list[int] = []

        def listener(told: Told | None) -> None:
            if told is not None and isinstance(told.value, xds.Assignment):
                ports.extend(member.address.port for member in told.value.membership.members)

        publish(1)
        client = Ads(served.socket, node=xds.Node(id="sdk"), rng=Random(1), delta=delta)
        running = asyncio.create_task(client.run())
        client.subscribe(EDS, "a", listener)
        await until(lambda: ports == [1], what="the first")
        publish(2)
        await until(lambda: ports == [1, 2], what="the second")
        (stream,) = served.serving.streams

        assert stream.audience.kind is Kind.OWN
        assert client.trouble == ""
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    serves(test)
