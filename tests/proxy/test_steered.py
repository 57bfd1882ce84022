"""Our center steers our proxy, as it steers an Envoy: listener, route, cluster and weights come from there, and traffic obeys."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
import trustme
from tests.proxy.world import WITHIN, Endpoint, Loop, ask, body, get, running, status
from tests.proxy.world import until as received

from reachline.cli.bootstraps import Way, envoy
from reachline.testing.center import dead, good, running_center
from reachline.testing.parts import free_port
from reachline.testing.wait import eventually, until

pytestmark = pytest.mark.e2e

DOCUMENT = """
preset: quick_recovery
judge: {{tick: 500ms, heartbeat: 500ms}}
patience: {{lone_failed: 2}}
window: {{max_age: 3s}}
clusters:
  shop:
    lines: {{one: "http://127.0.0.1:{one}", two: "http://127.0.0.1:{two}"}}
    listen: 127.0.0.1:{listen}
center: {{grpc: "127.0.0.1:{center}", http: "127.0.0.1:0", journal: JOURNAL}}
"""
WELL = {f"shop/{name}": good(fresh_ok=40) for name in ("one", "two")}


def test_calls_leave_a_line_that_the_center_took_out_and_go_on_without_a_center(
    loop: Loop, endpoint: Endpoint, another: Endpoint, tmp_path: Path
) -> None:
    listen, center_port = free_port(), free_port()
    text = DOCUMENT.format(one=endpoint.port, two=another.port, listen=listen, center=center_port)
    given = envoy(Way(node="the-proxy", center=f"127.0.0.1:{center_port}"), admin="127.0.0.1:1", als=True)
    given["admin"]["address"]["socket_address"]["port_value"] = 0

    def shares() -> Counter[bytes]:
        return Counter(body(ask(listen, get("/x"))) for _ in range(20))

    async def steer() -> None:
        async with running_center(tmp_path, text) as center, center.agent() as agent:
            stack = ExitStack()
            # In a thread: the proxy waits for what the center, in this one, says.
            proxy = await asyncio.to_thread(stack.enter_context, running(loop, given))
            try:
                await agent.reported(WELL)
                await asyncio.to_thread(eventually, lambda: listen in _ports(proxy.admin("/listeners")))
                assert set(await asyncio.to_thread(shares)) == {b"one", b"two"}

                async def is_out() -> bool:
                    await agent.reported(WELL | {"shop/two": dead()})
                    return set(await asyncio.to_thread(shares)) == {b"one"}

                await until(is_out, within=30, every=0.25, what="no call takes the dead line")
                (stream,) = (await center.json("/api/v1/xds"))["streams"]
                assert stream["node"] == "the-proxy"
                assert sum(each["nacks"] for each in stream["types"]) == 0
                center.stop.set()
                assert set(await asyncio.to_thread(shares)) == {b"one"}
                assert status(await asyncio.to_thread(ask, listen, get("/404"))) == 404
            finally:
                await asyncio.to_thread(stack.close)

    asyncio.run(steer())


SECURED = """
preset: quick_recovery
judge: {{tick: 500ms, heartbeat: 500ms}}
patience: {{lone_failed: 2}}
window: {{max_age: 3s}}
clusters:
  shop:
    lines: {{one: "http://127.0.0.1:{one}", two: "https://127.0.0.1:{two}", three: "https://localhost:{three}"}}
    listen: 127.0.0.1:{listen}
  pipe:
    lines: {{four: "tls://127.0.0.1:{two}"}}
    listen: 127.0.0.1:{pipe}
xds: {{ca: {ca}}}
center: {{grpc: "127.0.0.1:{center}", http: "127.0.0.1:0", journal: JOURNAL}}
"""
LINES = ("shop/one", "shop/two", "shop/three", "pipe/four")


def test_lines_of_http_https_and_tls_carry_by_their_weights_and_none_fails_when_one_dies(
    loop: Loop, far_loop: Loop, endpoint: Endpoint, tmp_path: Path
) -> None:
    authority, ca = trustme.CA(), tmp_path / "ca.pem"
    ca.write_bytes(authority.cert_pem.bytes())

    def secured(name: str, answer: bytes) -> Endpoint:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        return Endpoint(far_loop, answer, ssl=context)

    two, three = secured("127.0.0.1", b"two"), secured("localhost", b"three")
    listen, pipe, center_port = free_port(), free_port(), free_port()
    text = SECURED.format(
        one=endpoint.port, two=two.port, three=three.port, listen=listen, pipe=pipe, center=center_port, ca=ca
    )
    given = envoy(Way(node="the-proxy", center=f"127.0.0.1:{center_port}"), admin="127.0.0.1:1", als=True)
    given["admin"]["address"]["socket_address"]["port_value"] = 0
    statuses: Counter[int] = Counter()

    def shares(port: int, times: int) -> Counter[bytes]:
        found = [ask(port, get("/x")) for _ in range(times)]
        statuses.update(map(status, found))
        return Counter(map(body, found))

    async def steer() -> None:
        async with running_center(tmp_path, text) as center, center.agent() as agent:
            stack = ExitStack()
            proxy = await asyncio.to_thread(stack.enter_context, running(loop, given))
            try:
                well = dict.fromkeys(LINES, good(fresh_ok=40))
                await agent.reported(well)
                await asyncio.to_thread(eventually, lambda: {listen, pipe} <= _ports(proxy.admin("/listeners")))
                found = await asyncio.to_thread(shares, listen, 60)
                # Three of equal weight, dealt in turn.
                assert set(found) == {b"one", b"two", b"three"}
                assert all(abs(each - 20) <= 2 for each in found.values()), found
                assert await asyncio.to_thread(_piped, pipe) == b"two"

                # It really dies: until the center knows, calls that meet it are tried elsewhere.
                await asyncio.to_thread(two.close)

                async def is_out() -> bool:
                    await agent.reported(well | {"shop/two": dead()})
                    return set(await asyncio.to_thread(shares, listen, 20)) == {b"one", b"three"}

                await until(is_out, within=30, every=0.25, what="no call takes the dead line")
                (stream,) = (await center.json("/api/v1/xds"))["streams"]
                assert sum(each["nacks"] for each in stream["types"]) == 0
            finally:
                await asyncio.to_thread(stack.close)

    asyncio.run(steer())
    three.close()
    assert set(statuses) == {200}


def _piped(port: int) -> bytes:
    """What is answered through a listener that passes bytes on; its endpoint ends no connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN) as client:
        client.sendall(get("/x"))
        return body(received(client, b"two"))


def _ports(listeners: bytes) -> set[int]:
    return {int(each.rpartition(b":")[2]) for each in body(listeners).split()}


CALLS = """
preset: quick_recovery
judge: {{tick: 500ms, heartbeat: 500ms}}
clusters:
  calls:
    lines: {{one: "grpc://127.0.0.1:{one}", two: "grpc://127.0.0.1:{two}"}}
    listen: 127.0.0.1:{listen}
center: {{grpc: "127.0.0.1:{center}", http: "127.0.0.1:0", journal: JOURNAL}}
"""


def test_lines_of_grpc_carry_calls(loop: Loop, tmp_path: Path) -> None:
    def serving(name: bytes) -> tuple[grpc.Server, int]:
        server = grpc.server(ThreadPoolExecutor(2))
        say = grpc.unary_unary_rpc_method_handler(lambda _asked, _context: name)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", {"Name": say}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return server, port

    (one, one_port), (two, two_port) = serving(b"one"), serving(b"two")
    listen, center_port = free_port(), free_port()
    text = CALLS.format(one=one_port, two=two_port, listen=listen, center=center_port)
    given = envoy(Way(node="the-proxy", center=f"127.0.0.1:{center_port}"), admin="127.0.0.1:1")
    given["admin"]["address"]["socket_address"]["port_value"] = 0

    def shares() -> Counter[bytes]:
        with grpc.insecure_channel(f"127.0.0.1:{listen}") as channel:
            call = channel.unary_unary("/t/Name")
            return Counter(call(b"", timeout=WITHIN) for _ in range(40))

    async def steer() -> None:
        async with running_center(tmp_path, text) as center, center.agent() as agent:
            stack = ExitStack()
            proxy = await asyncio.to_thread(stack.enter_context, running(loop, given))
            try:
                await agent.reported({f"calls/{name}": good(fresh_ok=40) for name in ("one", "two")})
                await asyncio.to_thread(eventually, lambda: listen in _ports(proxy.admin("/listeners")))
                assert set(await asyncio.to_thread(shares)) == {b"one", b"two"}
                (stream,) = (await center.json("/api/v1/xds"))["streams"]
                assert sum(each["nacks"] for each in stream["types"]) == 0
            finally:
                await asyncio.to_thread(stack.close)

    asyncio.run(steer())
    for server in (one, two):
        server.stop(0).wait(WITHIN)
