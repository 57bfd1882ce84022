"""Connections carried by the running role: through real proxies, cut off by real failures, and by clients that behave badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest
import trustme

from reachline.doors.observatory.carrying import read_carrying
from reachline.observatory.running import Running
from reachline.passage.run import Options, Passage, run
from reachline.testing import proxies
from reachline.testing.parts import free_port, require
from reachline.testing.serving import serving
from reachline.testing.wait import until

_GREETING: Final = b"\x05\x01\x00"
_YES: Final = b"\x05\x00" + b"\x05\x00\x00\x01" + bytes(6)


class _Door(NamedTuple):
    passage: Passage
    ports: Mapping[str, int]
    running: Running


@contextlib.asynccontextmanager
async def carrying(
    outbounds: Sequence[Mapping[str, Any]],
    *,
    inbounds: Sequence[Mapping[str, Any]] = (),
    strict: bool = False,
    most: int | None = None,
    **more: object,
) -> AsyncIterator[_Door]:
    """The role with a document; without inbounds of its own it has one for SOCKS and HTTP."""
    entries = [{"listen": "127.0.0.1", "port": 0, **each} for each in inbounds or [{"tag": "in", "protocol": "socks"}]]
    document = {"inbounds": entries, "outbounds": outbounds, **more}
    carrying = read_carrying(json.dumps(document), load=lambda _: None, strict=strict)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    guide = Running(carrying.settings, Random(1))
    task = asyncio.create_task(
        run(
            carrying,
            guide,
            Options(grace=0, most=most),
            stop=stop,
            beside=(guide.run(),),
            ready=lambda *found: ready.set_result(found),
        )
    )
    try:
        done, _ = await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            task.result()
        started, passage = ready.result()
        yield _Door(passage, {tag: port for tag, (_, port) in started.inbounds}, guide)
    finally:
        stop.set()
        await task


def _request(host: str, port: int) -> bytes:
    return b"\x05\x01\x00\x03" + bytes((len(host),)) + host.encode() + struct.pack("!H", port)


@contextlib.asynccontextmanager
async def tunnelled(port: int, said: bytes = b"") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(said)
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def _tunnel(
    door: int, port: int, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with tunnelled(door, _GREETING + _request(host, port)) as (reader, writer):
        assert await reader.readexactly(len(_YES)) == _YES
        yield reader, writer


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write(b"<end>")


async def _web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    body = head.partition(b"\r\n")[0]
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()


def _socks(tag: str, port: int) -> dict[str, Any]:
    return {"tag": tag, "protocol": "socks", "settings": {"address": "127.0.0.1", "port": port}}


def _balanced(*, strategy: str = "roundRobin", **more: object) -> dict[str, Any]:
    """Everything to the balancer of what begins with `p`."""
    balancer = {"tag": "b", "selector": ["p"], "strategy": {"type": strategy}, **more}
    return {"balancers": [balancer], "rules": [{"network": "tcp", "balancerTag": "b"}]}


async def _curl(*options: str) -> str:
    command = (require("curl"), "-sS", "-m", "20", *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return out.decode()


@pytest.mark.real
@pytest.mark.parametrize("way", ["--socks5-hostname", "--socks5", "--socks4a", "-x", "-px"])
def test_curl_is_carried_in_every_protocol(way: str) -> None:
    async def main() -> str:
        async with serving(_web) as web, carrying([{"protocol": "freedom"}]) as door:
            options = ("-p", "-x") if way == "-px" else (way,)
            return await _curl(*options, f"127.0.0.1:{door.ports['in']}", f"http://127.0.0.1:{web.port}/x")

    assert asyncio.run(main()) == "GET /x HTTP/1.1"


@pytest.mark.real
@pytest.mark.parametrize("part", ["microsocks", "dante", "tinyproxy"])
def test_curl_is_carried_through_real_proxies(part: str, tmp_path: Path) -> None:
    user = {} if part == "dante" else {"user": "u", "password": "secret"}

    async def main() -> tuple[str, dict[str, int]]:
        with getattr(proxies, part)(tmp_path, **user) as proxy:
            server: dict[str, Any] = {"address": "127.0.0.1", "port": proxy.port}
            if user:
                server["users"] = [{"user": "u", "pass": "secret"}]
            out = {
                "tag": "p",
                "protocol": "http" if part == "tinyproxy" else "socks",
                "settings": {"servers": [server]},
            }
            async with serving(_web) as web, carrying([out]) as door:
                said = await _curl(
                    "--socks5-hostname", f"127.0.0.1:{door.ports['in']}", f"http://localhost:{web.port}/x"
                )
                return said, door.passage.events()

    said, events = asyncio.run(main())

    assert said == "GET /x HTTP/1.1"
    assert events["connections"] == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_a_proxy_behind_tls_is_spoken_to_in_tls(is_known: bool, tmp_path: Path) -> None:
    """One whose certificate nobody vouches for carries only what does not ask for it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + head.partition(b"\r\n")[0])
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()

    async def main() -> tuple[bytes, dict[str, int]]:
        async with serving(connect, tls=context) as service:
            settings = {"address": "127.0.0.1", "port": service.port}
            stream = {"security": "tls", "tlsSettings": {"allowInsecure": is_known}}
            out = {"tag": "p", "protocol": "http", "settings": settings, "streamSettings": stream}
            async with (
                carrying([out]) as door,
                tunnelled(door.ports["in"], _GREETING + _request("a.example", 443)) as (reader, writer),
            ):
                said = await reader.readexactly(4)
                if is_known:
                    first = await reader.readexactly(8 + 30)
                    sent = bytes(range(256)) * 4_000
                    writer.write(sent)
                    assert await reader.readexactly(len(sent)) == sent
                    said += first
                return said, door.passage.events()

    said, events = asyncio.run(main())

    assert said[:4] == (b"\x05\x00\x05\x00" if is_known else b"\x05\x00\x05\x01")
    assert not is_known or said.endswith(b"CONNECT a.example:443 HTTP/1.1")
    assert bool(events.get("failed_dials")) is not is_known


@pytest.mark.real
def test_accounts_are_asked_for_and_route() -> None:
    accounts = {"auth": "password", "accounts": [{"user": "a", "pass": "1"}, {"user": "b", "pass": "2"}]}
    rules = {"rules": [{"user": ["a"], "outboundTag": "none"}]}

    async def main() -> list[str]:
        inbound = {"tag": "in", "protocol": "socks", "settings": accounts}
        outbounds: list[dict[str, Any]] = [
            {"protocol": "freedom"},
            {"tag": "none", "protocol": "blackhole", "settings": {"response": {"type": "http"}}},
        ]
        async with serving(_web) as web, carrying(outbounds, inbounds=[inbound], routing=rules) as door:
            url = f"http://127.0.0.1:{web.port}/x"
            ways = [f"socks5h://{login}127.0.0.1:{door.ports['in']}" for login in ("b:2@", "a:1@", "a:2@", "")]
            return [await _curl("-o", "-", "-w", "%{http_code}", "-x", way, url) for way in ways]

    assert asyncio.run(main()) == ["GET /x HTTP/1.1200", "403", "000", "000"]


def test_a_forward_goes_to_its_address_alone() -> None:
    async def main() -> bytes:
        async with serving(_echo) as echo:
            inbound = {"tag": "f", "protocol": "dokodemo-door", "settings": {"address": "127.0.0.1", "port": echo.port}}
            async with (
                carrying([{"protocol": "freedom"}], inbounds=[inbound]) as door,
                tunnelled(door.ports["f"], b"hello") as (reader, writer),
            ):
                writer.write_eof()
                return await reader.read()

    assert asyncio.run(main()) == b"hello<end>"


def test_each_direction_ends_alone_and_nothing_is_lost() -> None:
    sent = Random(1).randbytes(3 << 20)

    async def main() -> bytes:
        async with (
            serving(_echo) as echo,
            carrying([{"protocol": "freedom"}], policy={"levels": {"0": {"downlinkOnly": 60}}}) as door,
            _tunnel(door.ports["in"], echo.port) as (reader, writer),
        ):
            reading = asyncio.create_task(reader.read())
            writer.write(sent)
            await writer.drain()
            writer.write_eof()
            said = await reading
            await until(lambda: door.passage.connections == 0, what="the connection to end")
            return said

    assert asyncio.run(main()) == sent + b"<end>"


def test_who_takes_nothing_holds_the_other_side_up() -> None:
    """As much as sockets and one read hold is taken of the sender, and no more."""
    most = 64 << 20

    async def main() -> int:
        taken = 0

        async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal taken
            while taken < most:
                writer.write(bytes(1 << 16))
                await writer.drain()
                taken += 1 << 16

        async with serving(pour) as source, carrying([{"protocol": "freedom"}]) as door:
            with socket.create_connection(("127.0.0.1", door.ports["in"])) as sock:
                sock.setblocking(False)
                await asyncio.get_running_loop().sock_sendall(sock, _GREETING + _request("127.0.0.1", source.port))
                before = -1

                def stands_still() -> bool:
                    nonlocal before
                    stands, before = taken == before, taken
                    return stands and taken > 0

                await until(stands_still, every=0.3, what="the sender to be held up")
                return taken

    assert asyncio.run(main()) < most


def test_a_failed_dial_is_tried_once_more_by_another() -> None:
    async def main() -> tuple[list[bytes], dict[str, int]]:
        dead = free_port()
        async with serving(_echo) as echo:
            outbounds = [
                {"tag": "d", "protocol": "blackhole"},
                _socks("p1", dead),
                {"tag": "p2", "protocol": "freedom"},
            ]
            async with carrying(outbounds, routing=_balanced()) as door:
                said = []
                for _ in range(4):
                    async with _tunnel(door.ports["in"], echo.port) as (reader, writer):
                        writer.write(b"x")
                        said.append(await reader.readexactly(1))
                return said, door.passage.events()

    said, events = asyncio.run(main())

    assert said == [b"x"] * 4
    assert events["retries"] == events["failed_dials"] > 0


@pytest.mark.parametrize("strategy", ["random", "roundRobin", "leastPing", "leastLoad"])
def test_where_nobody_is_well_nothing_leaks_to_the_first_outbound(strategy: str) -> None:
    reached = 0

    async def count(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        nonlocal reached
        reached += 1

    async def main() -> list[bytes]:
        dead = free_port()
        observatory = {
            "subjectSelector": ["p"],
            "probeURL": f"http://127.0.0.1:{dead}/",
            "probeInterval": "1s",
            "enableConcurrency": True,
        }
        outbounds = [{"tag": "direct", "protocol": "freedom"}, _socks("p1", dead), _socks("p2", dead)]
        async with (
            serving(count) as target,
            carrying(outbounds, routing=_balanced(strategy=strategy), observatory=observatory) as door,
        ):
            said = []
            for _ in range(6):
                async with tunnelled(door.ports["in"], _GREETING + _request("127.0.0.1", target.port)) as (reader, _):
                    said.append(await reader.read())
            return said

    said = asyncio.run(main())

    assert reached == 0
    assert all(each[:2] == b"\x05\x00" and each[3:4] != b"\x00" for each in said), said


def test_a_rule_that_names_nobody_drops_the_connection() -> None:
    async def main() -> bytes:
        async with (
            serving(_echo) as echo,
            carrying([{"protocol": "freedom"}], routing={"rules": [{"network": "tcp", "outboundTag": "gone"}]}) as door,
            tunnelled(door.ports["in"], _GREETING + _request("127.0.0.1", echo.port)) as (reader, _),
        ):
            return await reader.read()

    assert asyncio.run(main())[2:4] == b"\x05\x02"


def test_why_a_target_is_not_reached_is_told() -> None:
    async def main() -> list[bytes]:
        async with carrying([{"protocol": "freedom"}]) as door:
            said = []
            for host in ("127.0.0.1", "no-such-name.invalid"):
                async with tunnelled(door.ports["in"], _GREETING + _request(host, free_port())) as (reader, _):
                    said.append((await reader.read())[2:4])
            return said

    assert asyncio.run(main()) == [b"\x05\x05", b"\x05\x04"]


def test_silent_clients_are_let_go() -> None:
    """Those who never ask, and those whose connection says nothing any more."""
    policy = {"levels": {"0": {"handshake": 1, "connIdle": 1}}}

    async def main() -> dict[str, int]:
        async with serving(_echo) as echo, carrying([{"protocol": "freedom"}], policy=policy) as door:
            async with (
                tunnelled(door.ports["in"], b"\x05") as (slow, _),
                _tunnel(door.ports["in"], echo.port) as (idle, _),
            ):
                assert await slow.read() == b""
                assert await idle.read() == b""
            await until(lambda: door.passage.connections == 0, what="all connections to end")
            return door.passage.events()

    events = asyncio.run(main())

    assert (events["slow_handshakes"], events["idle"]) == (1, 1)


def test_connections_are_bounded_and_wrong_ones_leave_nothing() -> None:
    async def main() -> dict[str, int]:
        async with carrying([{"protocol": "freedom"}], most=8) as door, contextlib.AsyncExitStack() as stack:
            for _ in range(8):
                await stack.enter_async_context(tunnelled(door.ports["in"]))
            await until(lambda: door.passage.connections == 8, what="all of them to be taken")
            async with tunnelled(door.ports["in"]) as (reader, _):
                assert await reader.read() == b""
            await stack.aclose()
            await until(lambda: door.passage.connections == 0, what="all of them to be gone")
            for said in (b"\x16\x03\x01\x02", b"\x06\x06", b"GET / HTTP/1.1\r\n\r\n", b"A" * 40_000):
                async with tunnelled(door.ports["in"], said) as (reader, _):
                    with contextlib.suppress(ConnectionError):
                        await reader.read()
            await until(lambda: door.passage.connections == 0, what="all of them to be gone")
            return door.passage.events()

    events = asyncio.run(main())

    assert events["too_many"] == 1
    assert events["bad_handshakes"] == 4


def test_a_cut_connection_is_told_as_a_cut() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()

    async def main() -> None:
        async with (
            serving(reset) as target,
            carrying([{"protocol": "freedom"}]) as door,
            _tunnel(door.ports["in"], target.port) as (reader, writer),
        ):
            writer.write(b"x")
            with pytest.raises(ConnectionResetError):
                await reader.read()

    asyncio.run(main())


def test_bytes_are_counted_where_the_policy_asks() -> None:
    policy = {"system": {"statsInboundUplink": True, "statsOutboundDownlink": True}}

    async def main() -> dict[str, dict[str, dict[str, int]]]:
        async with serving(_echo) as echo, carrying([{"tag": "out", "protocol": "freedom"}], policy=policy) as door:
            async with _tunnel(door.ports["in"], echo.port) as (reader, writer):
                writer.write(b"abc")
                writer.write_eof()
                assert await reader.read() == b"abc<end>"
            await until(lambda: door.passage.connections == 0, what="the connection to end")
            return door.passage.stats()

    assert asyncio.run(main()) == {"inbound": {"in": {"uplink": 3}}, "outbound": {"out": {"downlink": 8}}}
