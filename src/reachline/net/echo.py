"""ICMP echo: one socket for each (family, source, interface), replies matched by a token of 64 bits.

Requests of one turn leave in batches; the moments between a batch's first and last are known by their place in it. An echo
under way is a tuple, those of one batch share one deadline: at 18 times the rate of others, an object each would be half
the cost. Raw where we may, else the kernel's ping socket (net.ipv4.ping_group_range); neither: AGENT, and no packet leaves.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Container
from select import EPOLLERR, EPOLLIN
from typing import Final, NamedTuple, Protocol

from reachline.model import Clock, Failure
from reachline.net import kernel, mmsg
from reachline.net.attempt import Home, Key, Route
from reachline.net.post import BATCH, REPLIES, SO_RXQ_OVFL, Batched, Buffers, Post, Request, Single
from reachline.net.wheel import NEVER, Wheel
from reachline.wire import icmp

__all__ = ["Echo", "Told", "forbidden"]

_PROTOCOLS: Final = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}
_NUMBERS: Final = {socket.AF_INET: 4, socket.AF_INET6: 6}
_FLAGS: Final = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_SOL_RAW: Final = 255
_ICMP_FILTER: Final = 1
_ONLY_REPLIES: Final = {
    socket.AF_INET: (_SOL_RAW, _ICMP_FILTER, struct.pack("=I", 0xFFFFFFFF & ~1)),
    socket.AF_INET6: (
        socket.IPPROTO_ICMPV6,
        _ICMP_FILTER,
        struct.pack("=8I", *([0xFFFFFFFF] * 4), 0xFFFFFFFD, *([0xFFFFFFFF] * 3)),
    ),
}
"""A raw socket then wakes for echo replies alone (type 0; type 129 is bit 1 of word 4): a set bit keeps a type out."""
_BUFFER: Final = 8 << 20
"""Bytes to receive into: replies to a burst of 10 000 lines wait there through a stall of ours."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
"""asm-generic/socket.h: beyond net.core.wmem_max and rmem_max, with CAP_NET_ADMIN."""
_QUOTED: Final = 512
"""Bytes of a request that an error quotes; its token is at the beginning."""
_ANCILLARY: Final = 512
_MOST: Final = 8
"""Batches of replies taken a turn, foreign pings included: a millisecond or two."""
_LARGEST_BATCH: Final = 16_384
"""Bytes a batch may have: its requests leave within microseconds of each other."""
_EVEN_NS: Final = 1_000_000
"""A batch that took longer was interrupted, and nobody knows between which of its requests."""
_EXPIRIES: Final = 64
"""Batches looked at a turn whose time is up."""
_FULL: Final = frozenset((errno.EAGAIN, errno.EINTR, errno.ENOBUFS))
"""Nothing is wrong with the socket."""
_ERROR: Final = struct.Struct("=IBBBB")
"""The beginning of struct sock_extended_err."""
_KERNEL: Final = Clock.RX_STAMP
_STEP_NS: Final = 1_000_000
"""As in `clocks`: by so much the wall clock may move while stamps are believed."""

Ping = tuple[Route, int, int, int, bool]
"""One echo under way: its route, how late it began, when (monotonic ns), wall minus monotonic clock then, whether overdue."""


class Told(Protocol):
    """How the engine hears of the end of an echo: scalars by position."""

    def __call__(  # noqa: PLR0917
        self,
        token: int,
        failure: Failure | None,
        rtt_us: int | None,
        clock: Clock,
        late: bool,
        sent: int,
        lost: int,
        note: str,
        lateness_us: int,
        /,
    ) -> None:
        """As `result.Done`, without what an echo never has."""


class _Flight(NamedTuple):
    """A batch that left together and is waited for together."""

    opened: _Socket
    tokens: list[int]
    deadline: int
    overdue: bool
    dropped: int
    """Of its socket, when it left."""


class Echo:
    """The machine of ICMP attempts. Written by the engine's thread only."""

    __slots__ = (
        "_buffers",
        "_home",
        "_ident",
        "_nonce",
        "_overdue",
        "_sockets",
        "_told",
        "_touched",
        "flights",
        "until",
        "waiting",
    )

    def __init__(self, home: Home, *, told: Told, overdue: Callable[[int], None], nonce: Callable[[], int]) -> None:
        """`nonce` gives the tokens, `told` hears of each end, `overdue` of the token of a job whose timeout passes."""
        self._home, self._told, self._overdue, self._nonce = home, told, overdue, nonce
        self._ident = nonce() & 0xFFFF
        self._buffers = Buffers()
        self._sockets: dict[Key, _Socket] = {}
        self._touched: list[_Socket] = []
        self.waiting: dict[int, Ping] = {}
        """Echoes under way by their tokens."""
        self.flights: Wheel[_Flight] = Wheel()
        self.until = 0
        """When the newest timeout passes."""

    # -- out ------------------------------------------------------------------------------------------------------------

    def add(self, route: Route, lateness_us: int) -> None:
        """One request to be sent at the next `flush`, or before."""
        aim = route.aim
        assert aim is not None
        opened = self._sockets.get(aim.key)
        if opened is None and (opened := self._opened(aim.key, route, lateness_us)) is None:
            return
        pending = opened.pending
        if not pending:
            self._touched.append(opened)
        pending.append((aim, self._nonce(), route, lateness_us))
        opened.bytes += aim.size
        if len(pending) == BATCH or opened.bytes >= _LARGEST_BATCH:
            self._send(opened)

    def flush(self) -> None:
        """Send what was added."""
        while self._touched:
            opened = self._touched.pop()
            if opened.pending:
                self._send(opened)

    def _opened(self, key: Key, route: Route, lateness_us: int) -> _Socket | None:
        try:
            sock = open_socket(*key)
        except OSError as error:
            self._unsent(route, lateness_us, error.errno or 0)
            return None
        post = Batched(self._buffers, sock, self._ident) if mmsg.AVAILABLE else Single(sock, self._ident)
        opened = self._sockets[key] = _Socket(self, key, sock, post)
        self._home.watch(opened, sock.fileno(), EPOLLIN)
        return opened

    def _send(self, opened: _Socket) -> None:
        batch, opened.pending, opened.bytes = opened.pending, [], 0
        clocks, post, refused = self._home.clocks, opened.post, 0
        while batch and opened.sock.fileno() >= 0:
            post.lay(batch)
            offset = clocks.wall() - clocks.ns()
            began = clocks.ns()
            try:
                went = post.send()
            except OSError as error:
                code = error.errno or 0
                # The error that an earlier request came back with is told once to whoever sends next.
                if code == refused or kernel.failure_of(code) is Failure.AGENT:
                    self._failed_to_leave(opened, batch.pop(0), code)
                    code = 0
                refused = code
                continue
            self._await(opened, batch[:went], began, clocks.ns() - began, offset)
            del batch[:went]

    def _await(self, opened: _Socket, sent: list[Request], began: int, took: int, offset: int) -> None:
        """These left one after another from `began` on, all within `took`."""
        each = took // len(sent) if took <= _EVEN_NS else 0
        tokens: list[int] = []
        waiting, last = self.waiting, sent[0][2]
        for _, token, route, lateness in sent:
            if route.timeout_ns != last.timeout_ns or route.patience_ns != last.patience_ns:
                self._take_off(opened, tokens, began + last.timeout_ns)
                tokens, last = [], route
            waiting[token] = (route, lateness, began, offset, False)
            tokens.append(token)
            began += each
        self._take_off(opened, tokens, began + last.timeout_ns)

    def _take_off(self, opened: _Socket, tokens: list[int], deadline: int) -> None:
        self.until = max(self.until, deadline)
        opened.flights += 1
        self.flights.add(deadline, _Flight(opened, tokens, deadline, False, opened.post.dropped))

    # -- back -----------------------------------------------------------------------------------------------------------

    def answered(self, replies: list[tuple[int, int | None]]) -> None:
        """Replies came; those to nobody, or to echoes that are over, are passed over."""
        clocks, waiting, told = self._home.clocks, self.waiting, self._told
        offset = clocks.wall() - clocks.ns()
        for token, stamp in replies:
            ping = waiting.pop(token, None)
            if ping is None:
                continue
            route, lateness, began, before, overdue = ping
            if stamp is None or not -_STEP_NS <= offset - before <= _STEP_NS:
                self._answered_unstamped(ping, stamp)
                continue
            # What left within one call is known to some microseconds: on loopback a reply may seem to come before that.
            took = max((stamp - began - before) // 1_000, 1)
            told(route.job.token, None, took, _KERNEL, overdue or took > route.timeout_us, 1, 0, "", lateness)

    def _answered_unstamped(self, ping: Ping, stamp: int | None) -> None:
        route, lateness, began, offset, overdue = ping
        rtt, clock, took = self._home.clocks.measure(began, began + offset, stamp)
        self._told(route.job.token, None, rtt, clock, overdue or took > route.timeout_us, 1, 0, "", lateness)

    def refused(self, family: int, quoted: bytes, code: int) -> None:
        """A router or the target said why a request of ours goes nowhere."""
        token = icmp.token_of(family, quoted)
        ping = self.waiting.pop(token, None) if token is not None else None
        if ping is None:
            return
        failure = kernel.failure_of(code)
        # What a router refuses (ECONNREFUSED: "port unreachable") is for ICMP a way of not being reachable.
        failure = Failure.UNREACHABLE if failure in {Failure.REFUSED, Failure.AGENT} else failure
        self._failed(ping, failure, lost=1, note=kernel.words_of(code))

    # -- time -----------------------------------------------------------------------------------------------------------

    def expire(self, now: int) -> None:
        """Pass timeouts, and give up what is beyond its patience."""
        for flight in self.flights.take(now, _EXPIRIES):
            tokens = [token for token in flight.tokens if token in self.waiting]
            if tokens and not flight.overdue:
                self._pass_timeout(flight, tokens)
                continue
            for token in tokens:
                self._give_up(flight, token)
            self._release(flight.opened, 1)

    def _pass_timeout(self, flight: _Flight, tokens: list[int]) -> None:
        patience = self.waiting[tokens[0]][0].patience_ns
        deadline = flight.deadline + patience
        self.flights.add(deadline, flight._replace(tokens=tokens, deadline=deadline, overdue=True))
        for token in tokens:
            if (ping := self.waiting.get(token)) is not None:
                self.waiting[token] = (*ping[:4], True)
                self._overdue(ping[0].job.token)

    def _give_up(self, flight: _Flight, token: int) -> None:
        ping = self.waiting.pop(token, None)
        if ping is None:
            return
        if flight.opened.post.dropped != flight.dropped:
            self._failed(ping, Failure.AGENT, lost=0, note="replies found no room in our receive buffer")
        else:
            self._failed(ping, Failure.TIMEOUT, lost=1, note="no answer")

    def _failed(self, ping: Ping, failure: Failure, *, lost: int, note: str) -> None:
        route, lateness, began, _, overdue = ping
        late = overdue or self._home.clocks.elapsed(began) > route.timeout_us
        self._told(route.job.token, failure, None, Clock.APP, late, 1, lost, note, lateness)

    # -- unsent ---------------------------------------------------------------------------------------------------------

    def _failed_to_leave(self, opened: _Socket, request: Request, code: int) -> None:
        """One request was not taken. A socket bound to something that may be gone serves no further ones."""
        if code not in _FULL and any(opened.key[1:]):
            self._retire(opened)
        self._unsent(request[2], request[3], code)

    def _unsent(self, route: Route, lateness_us: int, code: int) -> None:
        note = "no permission for ICMP" if code in {errno.EPERM, errno.EACCES} else kernel.words_of(code)
        self._told(route.job.token, kernel.failure_of(code), None, Clock.APP, False, 0, 0, note, lateness_us)

    def _retire(self, opened: _Socket) -> None:
        """The next request opens another socket; this one stays for replies that are under way."""
        if self._sockets.get(opened.key) is opened:
            del self._sockets[opened.key]
            self._release(opened, 0)

    def _release(self, opened: _Socket, flights: int) -> None:
        """So many batches of this socket are over."""
        opened.flights -= flights
        if not opened.flights and self._sockets.get(opened.key) is not opened:
            self._home.unwatch(opened.sock.fileno())
            opened.sock.close()

    # -- the end --------------------------------------------------------------------------------------------------------

    def cancel(self, tokens: Container[int]) -> None:
        """Forget the echoes of these jobs."""
        for token in [token for token, ping in self.waiting.items() if ping[0].job.token in tokens]:
            del self.waiting[token]

    def close(self) -> None:
        """Release every socket."""
        flights = self.flights.take(NEVER, self.flights.size)
        for opened in {*self._sockets.values(), *(flight.opened for flight in flights)}:
            opened.sock.close()
        self._sockets.clear()
        self._touched.clear()
        self.waiting.clear()


class _Socket:
    """One socket under the engine's epoll, and what waits to be sent by it. Written by its `Echo`."""

    __slots__ = ("_echo", "_number", "bytes", "flights", "key", "pending", "post", "sock")

    def __init__(self, echo: Echo, key: Key, sock: socket.SocketType, post: Post) -> None:
        self._echo, self.key, self.sock, self.post = echo, key, sock, post
        self._number = _NUMBERS[socket.AddressFamily(key[0])]
        self.pending: list[Request] = []
        self.bytes = 0
        """Of what is pending."""
        self.flights = 0
        """Batches that are waited for."""

    def ready(self, events: int) -> None:
        """Take replies, and errors that came back for requests."""
        if events & EPOLLERR:
            self._take_errors()
        for _ in range(_MOST):
            try:
                replies = self.post.replies()
            except OSError as error:
                if error.errno in _FULL:
                    return
                continue  # the pending error of a request, told in full by the error queue
            self._echo.answered(replies)
            if len(replies) < REPLIES or self.sock.fileno() < 0:
                return

    def _take_errors(self) -> None:
        for _ in range(_MOST):
            try:
                quoted, ancillary, _, _ = self.sock.recvmsg(_QUOTED, _ANCILLARY, socket.MSG_ERRQUEUE)
            except OSError:
                return
            for level, kind, raw in ancillary:
                if (level, kind) in kernel.RECVERR.values() and len(raw) >= _ERROR.size:
                    self._echo.refused(self._number, quoted, _ERROR.unpack_from(raw)[0])


def open_socket(family: int, source: str, interface: str) -> socket.SocketType:
    """A socket for echo requests, raw or the kernel's ping socket; OSError where neither may be."""
    protocol = _PROTOCOLS[socket.AddressFamily(family)]
    try:
        sock = socket.SocketType(family, socket.SOCK_RAW | _FLAGS, protocol)
    except PermissionError:
        sock = socket.SocketType(family, socket.SOCK_DGRAM | _FLAGS, protocol)
    try:
        if sock.type == socket.SOCK_RAW:
            sock.setsockopt(*_ONLY_REPLIES[socket.AddressFamily(family)])
        _enlarge(sock)
        sock.setsockopt(socket.SOL_SOCKET, kernel.SO_TIMESTAMPNS, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        sock.setsockopt(*kernel.RECVERR[family], 1)
        kernel.bind(sock, family, source, interface)
    except OSError:
        sock.close()
        raise
    return sock


def _enlarge(sock: socket.SocketType) -> None:
    """Room both ways: all of it where we may, else as much as the machine lets everybody have."""
    for forced, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, _BUFFER)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, _BUFFER)


def forbidden(family: int = 4) -> str:
    """Why this process may not send echo requests, in words with a hint; empty where it may."""
    try:
        open_socket(socket.AF_INET6 if family == 6 else socket.AF_INET, "", "").close()
    except PermissionError:
        return "no permission for ICMP: give CAP_NET_RAW, or set net.ipv4.ping_group_range to include this group"
    except OSError as error:
        return f"no ICMP here: {kernel.words_of(error.errno or 0)}"
    return ""
