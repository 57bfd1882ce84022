"""Datagrams of one client: bounded whatever it sends, tried again where something could not be had, and never by another way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from reachline.doors.observatory.carrying import Exit, Way
from reachline.model import Endpoint
from reachline.net.resolve import Resolver
from reachline.passage.datagrams import Association, Routed
from reachline.talk.hop import Hop, Scheme
from reachline.testing.serving import serving
from reachline.testing.wait import until
from reachline.wire import socks5

_STRAIGHT: Final = Way("out", Exit.GOES)


class _Client(NamedTuple):
    at: tuple[str, int]
    sock: socket.socket
    events: Counter[str]
    association: Association

    def say(self, host: str, port: int, content: bytes) -> None:
        self.sock.sendto(socks5.wrapping(host, port) + content, self.at)


@contextlib.asynccontextmanager
async def _client(routed: Routed, *, again: float = 0.0) -> AsyncIterator[_Client]:
    held, control = socket.socketpair()
    events: Counter[str] = Counter()
    resolver = Resolver()
    with held, control, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        control.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        association = Association(
            control, "127.0.0.1", "127.0.0.1", routed=routed, resolver=resolver, events=events, idle=300, again=again
        )
        running = asyncio.create_task(association.run())
        try:
            yield _Client(association.address, sock, events, association)
        finally:
            held.close()
            await running
            resolver.close()


@contextlib.contextmanager
def _ear() -> Iterator[tuple[int, list[bytes]]]:
    """The port of a socket, and what it hears."""
    heard: list[bytes] = []
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        loop.add_reader(sock, lambda: heard.append(sock.recv(1 << 16)))
        try:
            yield sock.getsockname()[1], heard
        finally:
            loop.remove_reader(sock)


def _has_dropped(client: _Client, number: int) -> bool:
    return client.events["dropped_datagrams"] >= number


def _open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _never(_: str, __: int, ___: Way | None) -> Way | None:
    await asyncio.Event().wait()
    return None


def test_targets_that_are_being_routed_are_bounded() -> None:
    begun = 0

    async def never(host: str, port: int, current: Way | None) -> Way | None:
        nonlocal begun
        begun += 1
        return await _never(host, port, current)

    async def main() -> Counter[str]:
        async with _client(never) as client:
            for number in range(400):
                client.say(f"n{number}.example", 53, b"x")
                if not number % 50:
                    await asyncio.sleep(0)  # within the receive buffer
            await until(lambda: begun + client.events["dropped_datagrams"] == 400)
            return client.events

    assert asyncio.run(main())["dropped_datagrams"] == 400 - 256
    assert begun == 256


def test_what_waits_is_bounded_in_bytes() -> None:
    async def main() -> int:
        async with _client(_never) as client:
            for number in range(40):
                client.say(f"n{number}.example", 53, bytes(60_000))
                await asyncio.sleep(0)
            client.say("last.example", 53, bytes(60_000))
            await until(lambda: client.events["dropped_datagrams"] == 41 - (1 << 20) // 60_000)
            return client.events["dropped_datagrams"]

    assert asyncio.run(main()) > 0


def test_a_target_that_could_not_be_had_is_tried_again() -> None:
    ways: list[Way | None] = [None, _STRAIGHT]

    async def routed(_: str, __: int, ___: Way | None) -> Way | None:
        return ways.pop(0)

    async def main() -> list[bytes]:
        with _ear() as (port, heard):
            async with _client(routed) as client:
                client.say("127.0.0.1", port, b"one")
                await until(lambda: client.events["dropped_datagrams"])
                client.say("127.0.0.1", port, b"two")
                await until(lambda: heard)
                return heard

    assert asyncio.run(main()) == [b"two"]


def test_what_could_not_be_had_is_not_asked_for_by_every_datagram() -> None:
    asked = 0

    async def routed(_: str, __: int, ___: Way | None) -> Way | None:
        nonlocal asked
        asked += 1
        return None

    async def main() -> None:
        async with _client(routed, again=300) as client:
            for number in range(5):
                client.say("127.0.0.1", 9, b"x")
                await until(partial(_has_dropped, client, number + 1))

    asyncio.run(main())

    assert asked == 1


def test_without_its_interface_nothing_leaves_by_another() -> None:
    async def routed(_: str, __: int, ___: Way | None) -> Way | None:
        return _STRAIGHT._replace(interface="nosuch0")

    async def main() -> list[bytes]:
        with _ear() as (port, heard), _ear() as (other, heard_too):
            async with _client(routed) as client:
                for number, to in enumerate((port, other, port, other)):
                    client.say("127.0.0.1", to, b"x")
                    await until(partial(_has_dropped, client, number + 1))
                return heard + heard_too

    assert asyncio.run(main()) == []


def test_two_names_of_one_address_are_heard_while_one_of_them_is_known() -> None:
    async def routed(_: str, __: int, ___: Way | None) -> Way | None:
        return _STRAIGHT

    async def main() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo:
            echo.bind(("127.0.0.1", 0))
            echo.setblocking(False)
            loop, port = asyncio.get_running_loop(), echo.getsockname()[1]
            async with _client(routed) as client:
                client.say("localhost", port, b"a")
                await loop.sock_recvfrom(echo, 9)
                client.say("127.0.0.1", port, b"b")
                _, peer = await loop.sock_recvfrom(echo, 9)
                for number in range(255):  # the name, known longest, goes
                    client.say("127.0.0.1", 1 + number, b"x")
                    if not number % 50:
                        await asyncio.sleep(0)
                await until(lambda: client.association.sent == 257)
                echo.sendto(b"there", peer)
                return (await loop.sock_recv(client.sock, 1 << 10))[10:]

    assert asyncio.run(main()) == b"there"


def _by_proxy(port: int) -> Way:
    endpoint = Endpoint(scheme=Scheme.SOCKS5H.value, host="127.0.0.1", port=port, family=4)
    return Way("p", Exit.GOES, (Hop(scheme=Scheme.SOCKS5H, endpoint=endpoint),))


def test_a_proxy_that_went_and_came_back_is_asked_again() -> None:
    ends: list[asyncio.Event] = []

    async def main() -> list[bytes]:
        with _ear() as (relay, heard):

            async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readexactly(3)
                writer.write(b"\x05\x00")
                await reader.readexactly(10)
                writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01" + relay.to_bytes(2))
                ends.append(asyncio.Event())
                await ends[-1].wait()

            async with serving(proxy) as service:

                async def routed(_: str, __: int, ___: Way | None) -> Way | None:
                    return _by_proxy(service.port)

                async with _client(routed, again=300) as client:
                    client.say("a.example", 53, b"one")
                    await until(lambda: heard)
                    ends[0].set()
                    await until(lambda: client.events["relays_gone"])
                    client.say("a.example", 53, b"two")
                    await until(lambda: len(heard) == 2)
                    ends[1].set()
                    return [each[-3:] for each in heard]

    assert asyncio.run(main()) == [b"one", b"two"]
    assert len(ends) == 2


def test_a_proxy_that_says_no_leaves_nothing_open() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"\x05\x00")
        await reader.readexactly(10)
        writer.write(b"\x05\x07\x00\x01" + bytes(6))

    async def main() -> tuple[int, int]:
        async with serving(refuse) as service:

            async def routed(_: str, __: int, ___: Way | None) -> Way | None:
                return _by_proxy(service.port)

            async with _client(routed) as client:
                before = _open()
                for number in range(20):
                    client.say(f"n{number}.example", 53, b"x")
                    await until(partial(_has_dropped, client, number + 1))
                await until(lambda: _open() <= before, what="the proxy's own ends to close")
                return before, _open()

    before, after = asyncio.run(main())

    assert after <= before


def test_a_target_by_which_nothing_comes_back_goes_by_its_new_outbound() -> None:
    asked: list[Way | None] = []
    elsewhere = _STRAIGHT._replace(tag="other", source="127.0.0.2")

    async def routed(_: str, __: int, current: Way | None) -> Way | None:
        asked.append(current)
        return _STRAIGHT if current is None else elsewhere

    async def main() -> tuple[str, str]:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
            ear.bind(("127.0.0.1", 0))
            ear.setblocking(False)
            async with _client(routed) as client:
                client.say("127.0.0.1", ear.getsockname()[1], b"one")
                _, first = await loop.sock_recvfrom(ear, 9)
                client.say("127.0.0.1", ear.getsockname()[1], b"two")
                await loop.sock_recvfrom(ear, 9)  # by the old one: nothing is lost
                await until(lambda: client.events["moved_targets"])
                client.say("127.0.0.1", ear.getsockname()[1], b"three")
                _, last = await loop.sock_recvfrom(ear, 9)
                return first[0], last[0]

    assert asyncio.run(main()) == ("127.0.0.1", "127.0.0.2")
    assert asked[:2] == [None, _STRAIGHT]


@pytest.mark.parametrize(
    "other", [_STRAIGHT._replace(interface="nosuch0"), _STRAIGHT._replace(hops=2 * _by_proxy(1).hops)]
)
def test_a_target_stays_where_its_new_outbound_cannot_be_had(other: Way) -> None:
    async def routed(_: str, __: int, current: Way | None) -> Way | None:
        return _STRAIGHT if current is None else other

    async def main() -> None:
        with _ear() as (port, heard):
            async with _client(routed) as client:
                for number in range(3):
                    client.say("127.0.0.1", port, b"x")
                    await until(lambda number=number: len(heard) > number)  # type: ignore[misc]
                assert client.events["moved_targets"] == 0

    asyncio.run(main())


def test_a_target_that_answers_is_not_asked_about() -> None:
    asked = 0

    async def routed(_: str, __: int, ___: Way | None) -> Way | None:
        nonlocal asked
        asked += 1
        return _STRAIGHT

    async def main() -> None:
        with _ear() as (port, heard):
            async with _client(routed, again=300) as client:
                for number in range(5):
                    client.say("127.0.0.1", port, b"x")
                    await until(lambda number=number: len(heard) > number)  # type: ignore[misc]

    asyncio.run(main())

    assert asked == 1
