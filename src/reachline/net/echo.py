"""ICMP echo: one socket for each (family, source, interface), replies matched by a token of 64 bits.

Requests of one turn leave in batches; the moments between a batch's first and last are known by their place in it. An echo
under way is a tuple, and a batch shares one clock and one deadline: at 18 times the rate of others an object each would be
half the cost.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from itertools import repeat
from select import EPOLLERR, EPOLLIN
from typing import Final

from reachline.model import Clock, Failure
from reachline.net import kernel, mmsg
from reachline.net.attempt import Home, Route
from reachline.net.clocks import STEP_NS
from reachline.net.echo_socket import open_socket
from reachline.net.post import BATCH, REPLIES, Batched, Buffers, Post, Reply, Single, raw_address
from reachline.net.result import Done
from reachline.net.wheel import NEVER, Wheel
from reachline.talk.icmp import IcmpProbe
from reachline.wire import icmp

__all__ = ["Echo", "Lot"]

_NUMBERS: Final = {socket.AF_INET: 4, socket.AF_INET6: 6}
_QUOTED: Final = 512
"""Bytes of a request that an error quotes; its token is at the beginning."""
_ANCILLARY: Final = 512
_MOST: Final = 8
"""Batches of replies taken a turn, foreign pings included: a millisecond or two."""
_LARGEST_BATCH: Final = 16_384
"""Bytes a batch may have: its requests leave within microseconds of each other."""
_EVEN_NS: Final = 1_000_000
"""A batch that took longer was interrupted, and nobody knows between which of its requests."""
_EXPIRIES: Final = 4
"""Batches looked at a turn whose time is up: 256 echoes at most, as many as of other attempts."""
_FULL: Final = frozenset((errno.EAGAIN, errno.EINTR, errno.ENOBUFS))
"""Nothing is wrong with the socket."""
_ERROR: Final = struct.Struct("=IBBBB")
"""The beginning of struct sock_extended_err."""
_KERNEL: Final = Clock.RX_STAMP

Key = tuple[int, str, str]
"""Family, source address, interface: what a socket is opened for."""
Start = tuple[Route, int]
"""One request that is due: its route, and how late it is."""
Ping = tuple[Start, int, "Flight"]
"""One echo under way: what was due, its place in its batch, and that."""


class Lot:
    """Requests of one size by one socket with one timeout: they can leave together. Written by its `Echo`."""

    __slots__ = ("batch", "key", "patience_ns", "size", "starts", "timeout_ns")

    def __init__(self, key: Key, size: int, timeout_ns: int, patience_ns: int) -> None:
        self.key, self.size, self.timeout_ns, self.patience_ns = key, size, timeout_ns, patience_ns
        self.batch = max(1, min(BATCH, _LARGEST_BATCH // size))
        self.starts: list[Start] = []
        """What is due."""


class Flight:
    """A batch that left together and is waited for together. Written by its `Echo`."""

    __slots__ = ("deadline", "dropped", "each", "mono", "offset", "opened", "overdue", "tokens", "wall")

    def __init__(self, opened: _Socket, tokens: list[int]) -> None:
        """To be made right before they leave."""
        self.opened, self.tokens = opened, tokens
        self.mono = self.wall = 0
        """When its first request left, by both clocks…"""
        self.each = 0
        """…and ns from one to the next."""
        self.deadline = 0
        self.overdue = False
        self.dropped = kernel.drops(opened.sock)
        """By then."""


class Echo:
    """The machine of ICMP attempts. Written by the engine's thread only."""

    __slots__ = (
        "_buffers", "_closed", "_done", "_home", "_ident", "_lots", "_muted", "_overdue", "_sockets", "_tokens",
        "finished", "flights", "touched", "until", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        home: Home,
        done: Done,
        *,
        overdue: Callable[[int], None],
        muted: AbstractSet[int],
        tokens: Callable[[int], list[int]],
    ) -> None:
        """`done` hears of each end, but not for the jobs `muted`; `overdue` of each timeout that passes. `tokens(n)` are n
        numbers of 64 bits that nobody can guess.
        """
        self._home, self._done, self._overdue, self._muted, self._tokens = home, done, overdue, muted, tokens
        self._ident = tokens(1)[0] & 0xFFFF
        self._buffers = Buffers()
        self._closed = False
        self._sockets: dict[Key, _Socket] = {}
        self._lots: dict[tuple[Key, int, int, int], Lot] = {}
        self.touched: list[Lot] = []
        """Those in which something is due: whoever adds the first to one puts it here."""
        self.finished = 0
        """Echoes that ended."""
        self.waiting: dict[int, Ping] = {}
        """Echoes under way by their tokens."""
        self.flights: Wheel[Flight] = Wheel()
        self.until = 0
        """When the newest timeout passes."""

    # -- out ------------------------------------------------------------------------------------------------------------

    def aimed(self, route: Route) -> Route:
        """The route with all that its requests have in common."""
        probe, job = route.job.probe, route.job
        assert isinstance(probe, IcmpProbe)
        size = icmp.PLAIN + probe.size
        key = ((route.family, job.source, job.interface), size, route.timeout_ns, route.patience_ns)
        if (lot := self._lots.get(key)) is None:
            lot = self._lots[key] = Lot(*key)
        return route._replace(lot=lot, raw=raw_address(route.family, route.address))

    def add(self, route: Route, lateness_us: int) -> None:
        """One request to be sent at the next `flush`."""
        lot = route.lot
        assert lot is not None
        if not lot.starts:
            self.touched.append(lot)
        lot.starts.append((route, lateness_us))

    def flush(self) -> None:
        """Send what was added."""
        while self.touched:
            lot = self.touched.pop()
            starts, lot.starts = lot.starts, []
            for begin in range(0, len(starts), lot.batch):
                self._send(lot, starts[begin : begin + lot.batch])

    def _send(self, lot: Lot, starts: list[Start]) -> None:
        """These leave one right after another. One that is refused does not keep the others back."""
        refused = 0
        while starts and not self._closed:
            opened = self._sockets.get(lot.key) or self._opened(lot.key, starts)
            if opened is None:
                return
            tokens = self._tokens(len(starts))
            opened.post.lay(starts, tokens, lot.size)
            try:
                went = self._leave(opened, lot, starts, tokens)
            except OSError as error:
                code, went = error.errno or 0, 0
                # The error that an earlier request came back with is told once to whoever sends next.
                if code == refused or kernel.failure_of(code) is Failure.AGENT:
                    self._refused(opened, starts[0], code)
                    code, went = 0, 1
                refused = code
            starts = starts[went:]

    def _leave(self, opened: _Socket, lot: Lot, starts: list[Start], tokens: list[int]) -> int:
        """How many went; OSError where none did."""
        clocks, flight = self._home.clocks, Flight(opened, tokens)
        flight.mono = mono = clocks.ns()
        went = opened.post.send()
        took = clocks.ns() - mono
        flight.wall = mono + clocks.offset
        del tokens[went:]
        if went > 1 and took <= _EVEN_NS:
            flight.each = took // went
        self.waiting.update(zip(tokens, zip(starts, range(went), repeat(flight)), strict=False))
        self._await(flight, mono + took + lot.timeout_ns)
        opened.flights += 1
        return went

    def _await(self, flight: Flight, deadline: int) -> None:
        flight.deadline = deadline
        self.flights.add(deadline, flight)
        if not flight.overdue and deadline > self.until:
            self.until = deadline

    def _opened(self, key: Key, starts: list[Start]) -> _Socket | None:
        """A new socket; None: there is none to be had, which these are told."""
        try:
            sock = open_socket(*key)
        except OSError as error:
            for start in starts:
                self._unsent(start, error.errno or 0)
            return None
        post = Batched(self._buffers, sock, self._ident) if mmsg.AVAILABLE else Single(sock, self._ident)
        opened = self._sockets[key] = _Socket(self, key, sock, post)
        self._home.watch(opened, sock.fileno(), EPOLLIN)
        return opened

    def _refused(self, opened: _Socket, start: Start, code: int) -> None:
        """One request was not taken. A socket bound to something that may be gone serves no further ones."""
        if code not in _FULL and any(opened.key[1:]):
            self._retire(opened)
        self._unsent(start, code)

    def _unsent(self, start: Start, code: int) -> None:
        note = "no permission for ICMP" if code in {errno.EPERM, errno.EACCES} else kernel.words_of(code)
        self._tell(start, kernel.failure_of(code), note, took=0, sent=0, lost=0)

    # -- back -----------------------------------------------------------------------------------------------------------

    def answered(self, replies: list[Reply]) -> None:
        """Replies came; those to nobody, or to echoes that are over, are passed over."""
        waiting, muted, done = self.waiting, self._muted, self._done
        offset, newest, wall, steady = self._home.clocks.offset, None, 0, False
        for token, stamp in replies:
            ping = waiting.pop(token, None)
            if ping is None:
                continue
            (route, lateness), place, flight = ping
            if flight is not newest:
                newest, wall = flight, flight.wall
                steady = -STEP_NS <= offset - wall + flight.mono <= STEP_NS
            if stamp is None or not steady:
                self._answered_unstamped(ping, stamp)
                continue
            took = (stamp - wall - place * flight.each) // 1_000
            # What leaves in one call is known to some microseconds, and loopback answers within them.
            took = took if took > 0 else 1
            job = route.job
            self.finished += 1
            if not muted or job.token not in muted:
                late = flight.overdue or took > route.timeout_us
                done(job.token, None, took, _KERNEL, late, 1, 0, 0, "", lateness, None)

    def _answered_unstamped(self, ping: Ping, stamp: int | None) -> None:
        start, place, flight = ping
        since = place * flight.each
        rtt, clock, took = self._home.clocks.measure(flight.mono + since, flight.wall + since, stamp)
        self._tell(start, None, "", took=took, overdue=flight.overdue, rtt=rtt, clock=clock)

    def refused(self, family: int, quoted: bytes, code: int) -> None:
        """A router or the target said why a request of ours goes nowhere."""
        token = icmp.token_of(family, quoted)
        ping = self.waiting.pop(token, None) if token is not None else None
        if ping is None:
            return
        failure = kernel.failure_of(code)
        # What a router refuses (ECONNREFUSED: "port unreachable") is for ICMP a way of not being reachable.
        failure = Failure.UNREACHABLE if failure in {Failure.REFUSED, Failure.AGENT} else failure
        self._failed(ping, failure, kernel.words_of(code))

    # -- time -----------------------------------------------------------------------------------------------------------

    def expire(self, now: int) -> None:
        """Pass timeouts, and give up what is beyond its patience."""
        for flight in self.flights.take(now, _EXPIRIES):
            flight.tokens = [token for token in flight.tokens if token in self.waiting]
            if flight.tokens and not flight.overdue:
                self._pass_timeout(flight, now)
                continue
            for token in flight.tokens:
                if (ping := self.waiting.pop(token, None)) is not None:
                    self._give_up(ping, flight)
            self._release(flight.opened)

    def _pass_timeout(self, flight: Flight, now: int) -> None:
        """Patience begins when we come by: where all of the machine stood still, answers are on their way still."""
        routes = [self.waiting[token][0][0] for token in flight.tokens]
        flight.overdue = True
        self._await(flight, now + routes[0].patience_ns)
        for route in routes:
            self._overdue(route.job.token)

    def _give_up(self, ping: Ping, flight: Flight) -> None:
        if kernel.drops(flight.opened.sock) == flight.dropped:
            self._failed(ping, Failure.TIMEOUT, "no answer")
        else:
            self._failed(ping, Failure.AGENT, "replies found no room in our receive buffer", lost=0)

    def _failed(self, ping: Ping, failure: Failure, note: str, *, lost: int = 1) -> None:
        start, place, flight = ping
        took = self._home.clocks.elapsed(flight.mono + place * flight.each)
        self._tell(start, failure, note, took=took, lost=lost, overdue=flight.overdue)

    def _tell(
        self,
        start: Start,
        failure: Failure | None,
        note: str,
        *,
        took: int,
        sent: int = 1,
        lost: int = 0,
        overdue: bool = False,
        rtt: int | None = None,
        clock: Clock = Clock.APP,
    ) -> None:
        route, lateness = start
        token = route.job.token
        self.finished += 1
        if token not in self._muted and not self._closed:
            late = overdue or took > route.timeout_us
            self._done(token, failure, rtt, clock, late, sent, lost, 0, note, lateness, None)

    # -- the end --------------------------------------------------------------------------------------------------------

    def _retire(self, opened: _Socket) -> None:
        """The next request opens another socket; this one stays for replies that are under way."""
        if self._sockets.get(opened.key) is opened:
            del self._sockets[opened.key]
            opened.flights += 1
            self._release(opened)

    def _release(self, opened: _Socket) -> None:
        """One batch of this socket is over."""
        opened.flights -= 1
        if not opened.flights and self._sockets.get(opened.key) is not opened and opened.sock.fileno() >= 0:
            self._home.unwatch(opened.sock.fileno())
            opened.sock.close()

    def dropped(self) -> int:
        """Replies that our own buffers had no room for."""
        return sum(kernel.drops(opened.sock) for opened in self._sockets.values())

    def cancel(self, jobs: AbstractSet[int]) -> None:
        """Forget the echoes of these jobs."""
        for token in [token for token, (start, _, _) in self.waiting.items() if start[0].job.token in jobs]:
            del self.waiting[token]

    def close(self) -> None:
        """Release every socket; nobody hears of what is under way."""
        self._closed = True
        flights = self.flights.take(NEVER, self.flights.size)
        for opened in {*self._sockets.values(), *(flight.opened for flight in flights)}:
            opened.sock.close()
        self._sockets.clear()
        self.touched.clear()
        self.waiting.clear()


class _Socket:
    """One socket under the engine's epoll. Written by its `Echo`."""

    __slots__ = ("_echo", "_number", "flights", "key", "post", "sock")

    def __init__(self, echo: Echo, key: Key, sock: socket.SocketType, post: Post) -> None:
        self._echo, self.key, self.sock, self.post = echo, key, sock, post
        self._number = _NUMBERS[socket.AddressFamily(key[0])]
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
