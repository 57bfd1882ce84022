"""One client after the other: heard out, routed, connected by an outbound, and passed on until both sides are done.

What a client sent before its connection is made is kept, so that a second outbound can be tried when the first one fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Mapping
from typing import Final, NamedTuple

from reachline.doors.observatory.carrying import Carrying, Exit, Patience, Way
from reachline.doors.observatory.inbounds import Entry, Served
from reachline.doors.observatory.matching import Ip, Question
from reachline.model import Failure, Seconds
from reachline.net.resolve import Resolver
from reachline.passage.datagrams import Association
from reachline.passage.dialing import Dialed, Lost, dial
from reachline.passage.guide import Guide
from reachline.passage.routes import Routes
from reachline.passage.splice import Room, Splice
from reachline.passage.traffic import Traffic
from reachline.wire.entering import Asked, Entering, Form, no, yes

__all__ = ["Carrier", "Client"]

log: Final = logging.getLogger("reachline.passage")

_PIECE: Final = 16 << 10
"""Bytes of one read of a client's first words."""
_DIAL: Final[Seconds] = 16.0
"""For a connection by an outbound: Xray's own…"""
_FIRST: Final[Seconds] = 5.0
"""…and for the first of two that a balancer chooses: as long as an observer waits for its whole request."""
_MOST_LOOPS: Final = 8
"""Times that one connection is routed: loopback outbounds may lead in circles."""
_USUAL: Final = Patience()


class Client(NamedTuple):
    """One connection that came in."""

    sock: socket.socket
    served: Served
    address: tuple[str, int]
    local: tuple[str, int]


class _Refused(NamedTuple):
    """No connection: for a failure, or (None) because it is not to be. `answer` is sent as it is where there is one."""

    failure: Failure | None
    why: str
    answer: bytes = b""


class Carrier:
    """Written by its loop."""

    def __init__(self, carrying: Carrying, guide: Guide, traffic: Traffic, resolver: Resolver) -> None:
        self.splices: Final[set[Splice]] = set()
        self._carrying = carrying
        self._guide: Final = guide
        self._traffic: Final = traffic
        self._resolver: Final = resolver
        self.routes: Final = Routes(lambda: self._carrying.router, guide, resolver)
        self._room: Final = Room(asyncio.get_running_loop())
        self._tags: Final[dict[Splice, tuple[str, str]]] = {}

    def swap(self, carrying: Carrying) -> None:
        """Connections that are routed from now on go by this; those that are made stay."""
        self._carrying = carrying
        self._traffic.counted = carrying.counted

    async def serve(self, client: Client) -> None:
        """From its first byte until its bytes are passed on; owns the socket until then."""
        events = self._traffic.events
        try:
            asked = await self._heard(client)
            if asked is None:
                client.sock.close()
                return
            if asked.form is Form.ASSOCIATE:
                await self._associated(client, asked)
                return
            found = await self._connected(client, asked)
            if isinstance(found, _Refused):
                events["refused"] += 1
                log.info(
                    "connection_refused", extra={"inbound": client.served.tag, "port": asked.port, "why": found.why}
                )
                await self._told(client, _no(asked.form, found))
                client.sock.close()
                return
            await self._pass(client, asked, *found)
        except (OSError, TimeoutError):
            events["client_gone"] += 1
            client.sock.close()
        except Exception:
            # One client's trouble is not everybody's: what we did not foresee ends this connection, and is told.
            events["errors"] += 1
            log.exception("connection_failed", extra={"inbound": client.served.tag})
            client.sock.close()
        except BaseException:
            client.sock.close()
            raise

    async def _heard(self, client: Client) -> Asked | None:
        """What the client asks for; None: nothing that is served, or nothing in time."""
        served = client.served
        if served.entry is Entry.FORWARD:
            host, port = served.target or ("", 0)
            return Asked(Form.RAW, host, port or client.local[1], "", b"")
        loop = asyncio.get_running_loop()
        entering = Entering(served.accounts, takes_socks=served.entry is Entry.MIXED, takes_udp=served.has_udp)
        events = self._traffic.events
        try:
            async with asyncio.timeout(self._patience(served).handshake):
                while entering.asked is None and not entering.refusal:
                    data = await loop.sock_recv(client.sock, _PIECE)
                    if not data:
                        events["gone_while_asking"] += 1
                        return None
                    if answer := entering.received(data):
                        await loop.sock_sendall(client.sock, answer)
        except TimeoutError:
            events["slow_handshakes"] += 1
            return None
        if entering.refusal:
            events["bad_handshakes"] += 1
            log.info(
                "client_refused", extra={"inbound": served.tag, "client": client.address[0], "why": entering.refusal}
            )
        return entering.asked

    async def _connected(self, client: Client, asked: Asked) -> tuple[Dialed, Way] | _Refused:
        """Routed, again where an outbound leads back, and dialed."""
        inbound = client.served.tag
        for _ in range(_MOST_LOOPS):
            way, balancer = await self._routed(client, asked, inbound)
            if way is None:
                return _Refused(None, f"balancer {balancer!r} has nobody" if balancer else "its rule names no outbound")
            match way.exit:
                case Exit.LOOPS:
                    inbound = way.inbound
                case Exit.DROPS:
                    return _Refused(None, f"outbound {way.tag!r} drops it", way.answer)
                case Exit.CANNOT:
                    return _Refused(Failure.PROXY, f"outbound {way.tag!r} {way.why}")
                case Exit.GOES:
                    return await self._dialed(way, balancer, asked)
        return _Refused(None, "is led in a circle by loopback outbounds")

    async def _associated(self, client: Client, asked: Asked) -> None:
        """Datagrams, for as long as the client keeps its connection."""

        async def routed(host: str, port: int, current: Way | None) -> Way | None:
            to = asked._replace(host=host, port=port)
            inbound = client.served.tag
            for _ in range(_MOST_LOOPS):
                way, _ = await self._routed(client, to, inbound, current)
                if way is None or way.exit is not Exit.LOOPS:
                    return way
                inbound = way.inbound
            return None

        with contextlib.closing(client.sock):
            association = Association(
                client.sock,
                client.local[0],
                client.address[0],
                routed=routed,
                resolver=self._resolver,
                events=self._traffic.events,
                idle=self._patience(client.served).idle,
            )
            self._traffic.events["associations"] += 1
            host, port = association.address
            await self._told(client, yes(asked.form, client.served.udp_host or host, port))
            await association.run()
            self._traffic.add(client.served.tag, "", association.sent, association.heard)

    async def _routed(
        self, client: Client, asked: Asked, inbound: str, current: Way | None = None
    ) -> tuple[Way | None, str]:
        """The outbound, and the balancer that chose it; `current` where it may be that one. Nobody's rule: the first outbound, as the
        document has it.
        """
        rule = await self.routes.directed(_question(client, asked, inbound))
        if rule is None:
            return self._carrying.default, ""
        if not rule.balancer:
            return self._way(rule.outbound), ""
        if current is not None and self._guide.keeps(rule.balancer, current.tag):
            return self._way(current.tag), rule.balancer
        tag = self._guide.pick(rule.balancer, frozenset())
        return (None if tag is None else self._way(tag)), rule.balancer

    def _way(self, tag: str) -> Way | None:
        """Strict balancers may choose the first outbound though it has no tag."""
        return self._carrying.ways.get(tag) or (self._carrying.default if not tag else None)

    async def _dialed(self, way: Way, balancer: str, asked: Asked) -> tuple[Dialed, Way] | _Refused:
        """By the outbound; where a balancer chose it and it fails, once more by another."""
        lost = await self._try(way, asked, _FIRST if balancer else _DIAL)
        if isinstance(lost, Dialed):
            return lost, way
        if balancer:
            other = self._guide.pick(balancer, frozenset((way.tag,)))
            second = None if other is None else self._way(other)
            if second is not None and second.exit is Exit.GOES:
                self._traffic.events["retries"] += 1
                again = await self._try(second, asked, _DIAL)
                if isinstance(again, Dialed):
                    return again, second
                lost = again
        return _Refused(lost.failure, lost.words)

    async def _try(self, way: Way, asked: Asked, timeout: Seconds) -> Dialed | Lost:
        found = await dial(way, asked.host, asked.port, resolver=self._resolver, timeout=timeout)
        if isinstance(found, Dialed):
            self._guide.called(way.tag, True)
        else:
            self._traffic.events["failed_dials"] += 1
            if found.is_its_own:
                self._guide.called(way.tag, False)
        return found

    async def _pass(self, client: Client, asked: Asked, dialed: Dialed, way: Way) -> None:
        try:
            await self._told(client, yes(asked.form))
        except BaseException:
            dialed.sock.close()
            raise
        splice = Splice(
            self._room,
            client.sock,
            dialed.sock,
            patience=self._patience(client.served),
            ended=self._ended,
            first=asked.first,
            greeting=dialed.greeting,
            limit=asked.body,
        )
        self._tags[splice] = client.served.tag, way.tag
        self.splices.add(splice)
        splice.begin()

    async def _told(self, client: Client, answer: bytes) -> None:
        if answer:
            async with asyncio.timeout(self._patience(client.served).handshake):
                await asyncio.get_running_loop().sock_sendall(client.sock, answer)

    def _patience(self, served: Served) -> Patience:
        found: Mapping[int, Patience] = self._carrying.patience
        return found.get(served.level, _USUAL)

    def _ended(self, splice: Splice, is_broken: bool) -> None:
        self._count(splice)
        self.splices.discard(splice)
        del self._tags[splice]
        self._traffic.events["broken" if is_broken else "done"] += 1

    def _count(self, splice: Splice) -> None:
        self._traffic.add(*self._tags[splice], *splice.fresh())

    def sweep(self, now: Seconds) -> None:
        """Count what was passed on, and end what has been silent for too long."""
        for splice in tuple(self.splices):
            self._count(splice)
            if not splice.look(now):
                self._traffic.events["idle"] += 1
                splice.end()

    def close(self) -> None:
        """End everything at once."""
        for splice in tuple(self.splices):
            splice.end(is_broken=True)


def _no(form: Form, refused: _Refused) -> bytes:
    """An answer that a document wants is the target's, as far as the client can tell: of SOCKS it comes behind a yes."""
    if not refused.answer:
        return no(form, refused.failure)
    return (yes(form) if form in {Form.SOCKS5, Form.SOCKS4} else b"") + refused.answer


def _question(client: Client, asked: Asked, inbound: str) -> Question:
    address: Ip | None = None
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(asked.host)
    return Question(
        port=asked.port,
        domain="" if address is not None else asked.host,
        addresses=None if address is None else (address,),
        inbound=inbound,
        network="udp" if asked.form is Form.ASSOCIATE else "tcp",
        source=ipaddress.ip_address(client.address[0].partition("%")[0]),
        source_port=client.address[1],
        local=ipaddress.ip_address(client.local[0].partition("%")[0]),
        local_port=client.local[1],
        user=asked.user,
    )
