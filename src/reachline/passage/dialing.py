"""A connection made by an outbound: its name resolved, its address or its first proxy connected to, its proxies asked.

A failure is a value, and says whether the outbound itself is at fault: only that is evidence against it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from reachline.doors.observatory.carrying import Way
from reachline.model import Failure, Seconds
from reachline.net import kernel
from reachline.net.resolve import Answer, Resolver
from reachline.net.tls import Contexts, words_of
from reachline.passage.sealed import sealed
from reachline.talk.hop import Hop, HopTalk
from reachline.talk.secure import is_address

__all__ = ["Dialed", "Lost", "dial", "resolve"]

_PIECE: Final = 4 << 10
"""Bytes of one read of a proxy's answer."""
_NEXT: Final[Seconds] = 3.0
"""For one address of several: a SYN that is lost is sent again after one second, and after two more."""
_ANY: Final = 0
_CONTEXTS: Final = Contexts()
"""Kept for the process: a context that holds the system's roots takes milliseconds to make."""
_OWN: Final = frozenset((Failure.AGENT, Failure.PROXY))


class Dialed(NamedTuple):
    """The connection, and what the other side said already."""

    sock: socket.socket
    greeting: bytes = b""


class Lost(NamedTuple):
    """Why there is none. `is_its_own`: the outbound is at fault, not what lies behind it."""

    failure: Failure
    words: str
    is_its_own: bool = False


async def resolve(resolver: Resolver, host: str, family: int) -> Answer:
    """What a name means, by the cache; that it could not be found is asked anew once it is old, for somebody waits for it."""
    found = resolver.cached(host, family)
    if found is not None and (found.addresses or found.until > time.monotonic()):
        return found
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    resolver.ask(host, family, lambda answer: None if future.done() else future.set_result(answer))
    return await future


async def dial(way: Way, host: str, port: int, *, resolver: Resolver, timeout: Seconds) -> Dialed | Lost:
    """A connection to `host:port` by this outbound, within `timeout`."""
    first = way.hops[0].endpoint if way.hops else None
    to, at = (host, port) if first is None else (first.host, first.port)
    try:
        async with asyncio.timeout(timeout):
            addresses = await _addresses(way, to, resolver)
            if isinstance(addresses, Lost):
                return addresses
            made = await _connected(way, addresses, at)
            if isinstance(made, Lost):
                return made
            return await _through(way, made, host, port)
    except TimeoutError:
        # Silence of an address is anybody's; a proxy that was reached and says nothing is at fault, or what lies behind it is.
        return Lost(Failure.TIMEOUT, f"no answer within {timeout:g} s", is_its_own=bool(way.hops))


async def _addresses(way: Way, host: str, resolver: Resolver) -> tuple[str, ...] | Lost:
    if is_address(host):
        return (host,)
    found: list[str] = []
    error = ""
    for family in (way.families if not way.hops else ()) or (_ANY,):
        answer = await resolve(resolver, host, family)
        found += answer.addresses
        error = error or answer.error
    return tuple(found) or Lost(Failure.RESOLVE, f"{host}: {error}", is_its_own=bool(way.hops))


async def _connected(way: Way, addresses: Sequence[str], port: int) -> socket.socket | Lost:
    """To the first address that answers; the next one is tried when one failed, or has been silent for long."""
    lost = Lost(Failure.UNREACHABLE, "no address", is_its_own=False)
    for number, address in enumerate(addresses):
        is_last = number == len(addresses) - 1
        try:
            async with asyncio.timeout(None if is_last else _NEXT):
                return await _one(way, address, port)
        except TimeoutError:
            lost = Lost(Failure.TIMEOUT, f"{address}: no answer", is_its_own=bool(way.hops))
        except OSError as error:
            failure = kernel.failure_of(error.errno or 0)
            words = f"{address}: {kernel.words_of(error.errno or 0)}"
            # Unreachable from an address or a device of its own is that one's fault; refused is always the target's.
            is_bound = failure is Failure.UNREACHABLE and bool(way.source or way.interface)
            lost = Lost(failure, words, is_its_own=bool(way.hops) or failure is Failure.AGENT or is_bound)
    return lost


async def _one(way: Way, address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if way.source or way.interface:
            kernel.bind(sock, family, way.source, way.interface)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _through(way: Way, sock: socket.socket, host: str, port: int) -> Dialed | Lost:
    """Past each proxy in turn: it is asked for the next one, the last for the target. Takes the socket for good."""
    held: socket.socket | None = sock
    rest, spoken_to = b"", ""
    try:
        for number, hop in enumerate(way.hops):
            spoken_to = str(hop)
            if hop.secure is not None:
                raw, held = held, None  # whoever shakes hands owns it
                assert raw is not None
                held = await sealed(raw, _CONTEXTS.of(hop.secure, verify=hop.secure.verify), hop.secure)
            assert held is not None
            is_last = number == len(way.hops) - 1
            behind = (host, port) if is_last else _address_of(way.hops[number + 1])
            talk = hop.talk(*behind)
            await _talked(talk, held, rest)
            failure = talk.closed()
            if failure is not None:
                held.close()
                is_its_own = failure in _OWN or not is_last
                return Lost(failure, f"proxy {hop}: {talk.note or failure.name.lower()}", is_its_own=is_its_own)
            rest = talk.rest
    except OSError as error:
        if held is not None:
            held.close()
        if isinstance(error, TimeoutError) and error.errno is None:
            raise
        words = words_of(error) if isinstance(error, ssl.SSLError) else kernel.words_of(error.errno or 0)
        return Lost(Failure.PROXY, f"proxy {spoken_to}: {words}", is_its_own=True)
    except BaseException:
        if held is not None:
            held.close()
        raise
    assert held is not None
    return Dialed(held, rest)


def _address_of(hop: Hop) -> tuple[str, int]:
    return hop.endpoint.host, hop.endpoint.port


async def _talked(talk: HopTalk, sock: socket.socket, early: bytes) -> None:
    """Until the proxy said yes or no, or went."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, talk.begin())
    data = early
    while True:
        if data:
            answer = talk.received(data)
            if answer is None:
                return
            if answer:
                await loop.sock_sendall(sock, answer)
        data = await loop.sock_recv(sock, _PIECE)
        if not data:
            return
