"""Datagrams of SOCKS5 clients: straight, by a real proxy, routed by rules; and what is not passed on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.passage.test_carried import carrying, tunnelled

from reachline.testing import proxies
from reachline.testing.wait import until
from reachline.wire import socks5

_ASK: Final = b"\x05\x01\x00\x05\x03\x00\x01" + bytes(6)
_INBOUND: Final = {"tag": "in", "protocol": "socks", "settings": {"udp": True}}


class _Heard(asyncio.DatagramProtocol):
    """Keeps what comes, and sends it back where it is to."""

    def __init__(self, *, echoes: bool) -> None:
        self.heard: list[bytes] = []
        self._echoes = echoes

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, peer: Any) -> None:
        self.heard.append(data)
        if self._echoes:
            self.transport.sendto(b"<" + data + b">", peer)

    @property
    def port(self) -> int:
        return int(self.transport.get_extra_info("sockname")[1])


@contextlib.asynccontextmanager
async def _datagrams(*, echoes: bool = False) -> AsyncIterator[_Heard]:
    transport, heard = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Heard(echoes=echoes), local_addr=("127.0.0.1", 0)
    )
    try:
        yield heard
    finally:
        transport.close()


class _Relay(NamedTuple):
    at: tuple[str, int]
    client: _Heard

    def say(self, host: str, port: int, content: bytes) -> None:
        self.client.transport.sendto(socks5.wrapping(host, port) + content, self.at)

    @property
    def contents(self) -> Iterator[bytes]:
        for each in self.client.heard:
            found = socks5.unwrapped(each)
            assert found is not None
            yield each[found[2] :]


@contextlib.asynccontextmanager
async def _relay(door: int) -> AsyncIterator[_Relay]:
    async with tunnelled(door, _ASK) as (reader, _), _datagrams() as client:
        assert await reader.readexactly(2) == b"\x05\x00"
        bound = socks5.unwrapped(b"\0\0" + (await reader.readexactly(10))[2:])
        assert bound is not None
        yield _Relay(bound[:2], client)


def test_datagrams_go_there_and_back() -> None:
    async def main() -> tuple[list[bytes], dict[str, Any]]:
        policy = {"system": {"statsInboundUplink": True, "statsInboundDownlink": True}}
        async with (
            _datagrams(echoes=True) as echo,
            carrying([{"protocol": "freedom"}], inbounds=[_INBOUND], policy=policy) as door,
        ):
            async with _relay(door.ports["in"]) as relay:
                relay.say("127.0.0.1", echo.port, b"one")
                relay.say("localhost", echo.port, b"two")
                await until(lambda: len(relay.client.heard) == 2, what="both answers")
                contents = sorted(relay.contents)
            await until(lambda: door.passage.connections == 0, what="the association to end with its connection")
            return contents, door.passage.stats()["inbound"]

    assert asyncio.run(main()) == ([b"<one>", b"<two>"], {"in": {"uplink": 6, "downlink": 10}})


@pytest.mark.real
def test_datagrams_go_by_a_real_proxy(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        with proxies.dante(tmp_path) as proxy:
            out = {"tag": "p", "protocol": "socks", "settings": {"address": "127.0.0.1", "port": proxy.port}}
            async with (
                _datagrams(echoes=True) as echo,
                carrying([out], inbounds=[_INBOUND]) as door,
                _relay(door.ports["in"]) as relay,
            ):
                relay.say("127.0.0.1", echo.port, b"one")
                await until(lambda: relay.client.heard, what="the answer")
                return list(relay.contents)

    assert asyncio.run(main()) == [b"<one>"]


def test_datagrams_without_an_answer_go_where_their_balancer_sends_connections_by_now() -> None:
    outbounds = [{"tag": f"p-{end}", "protocol": "freedom", "sendThrough": f"127.0.0.{end}"} for end in (2, 3)]
    rules = {"balancers": [{"tag": "b", "selector": ["p-"]}], "rules": [{"network": "udp", "balancerTag": "b"}]}

    async def main() -> list[str]:
        peers: list[str] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
            ear.bind(("127.0.0.1", 0))
            ear.setblocking(False)
            asyncio.get_running_loop().add_reader(ear, lambda: peers.append(ear.recvfrom(9)[1][0]))
            async with (
                carrying(outbounds, inbounds=[_INBOUND], routing=rules) as door,
                _relay(door.ports["in"]) as relay,
            ):
                door.running.override("b", "p-2")
                relay.say("127.0.0.1", ear.getsockname()[1], b"one")
                await until(lambda: peers, what="the first")
                door.running.override("b", "p-3")

                def moved() -> bool:
                    relay.say("127.0.0.1", ear.getsockname()[1], b"more")
                    return peers[-1] != peers[0]

                await until(moved, what="datagrams by the other outbound", within=60)
            asyncio.get_running_loop().remove_reader(ear)
        return [peers[0], peers[-1]]

    assert asyncio.run(main()) == ["127.0.0.2", "127.0.0.3"]


def test_rules_hold_for_datagrams_and_broken_ones_are_dropped() -> None:
    rules = {
        "rules": [{"network": "udp", "port": "1-9", "outboundTag": "none"}, {"network": "tcp", "outboundTag": "none"}]
    }
    outbounds = [{"tag": "out", "protocol": "freedom"}, {"tag": "none", "protocol": "blackhole"}]

    async def main() -> dict[str, int]:
        async with _datagrams(echoes=True) as echo, carrying(outbounds, inbounds=[_INBOUND], routing=rules) as door:
            async with _relay(door.ports["in"]) as relay, _datagrams() as stranger:
                for broken in (b"x", b"\0\0\1\1" + bytes(6), b"\0\0\0\x09" + bytes(9), b"\0\0\0\x03\x05a\r\nbc\0\x50"):
                    relay.client.transport.sendto(broken, relay.at)
                relay.say("127.0.0.1", 9, b"x")
                relay.say("127.0.0.1", echo.port, b"y")
                await until(lambda: relay.client.heard, what="the answer")
                stranger.transport.sendto(socks5.wrapping("127.0.0.1", echo.port) + b"z", relay.at)
                await until(
                    lambda: door.passage.events().get("strange_datagrams"), what="the stranger to be told apart"
                )
                assert list(relay.contents) == [b"<y>"]
                assert echo.heard == [b"y"]
            return door.passage.events()

    events = asyncio.run(main())

    assert events["bad_datagrams"] == 4
    assert events["dropped_datagrams"] == 1
