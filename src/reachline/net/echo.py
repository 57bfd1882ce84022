"""ICMP echo: one socket for each (family, source, interface), replies matched by a token of 64 bits.

Raw where we may, else the kernel's ping socket (net.ipv4.ping_group_range); neither: AGENT, and no packet leaves.
"""

from __future__ import annotations

import errno
import socket
import struct
from select import EPOLLERR, EPOLLIN
from typing import Final

from reachline.errors import RemoteProtocolError
from reachline.model import Failure
from reachline.net import kernel
from reachline.net.attempt import Attempt, Home, Route
from reachline.talk.icmp import IcmpProbe
from reachline.wire import icmp

__all__ = ["Echo", "forbidden"]

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
_CHUNK: Final = 65_536
_ANCILLARY: Final = 512
_MOST: Final = 128
"""Packets taken a turn, foreign pings included."""
_ERROR: Final = struct.Struct("=IBBBB")
"""The beginning of struct sock_extended_err."""
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))

Key = tuple[int, str, str]


class Echo:
    """The machine of ICMP attempts. Written by the engine's thread only."""

    __slots__ = ("_ident", "_sequence", "_sockets", "_waiting", "home")

    def __init__(self, home: Home, ident: int) -> None:
        self.home = home
        self._ident = ident
        self._sequence = 0
        self._sockets: dict[Key, _Socket] = {}
        self._waiting: dict[int, Attempt] = {}

    def begin(self, attempt: Attempt, route: Route, token: int) -> None:
        """Send one request; the attempt is settled at once where that fails."""
        attempt.step = self._give_up
        attempt.key = token
        self._sequence += 1
        probe = route.job.probe
        assert isinstance(probe, IcmpProbe)
        packet = icmp.request(
            _NUMBERS[socket.AddressFamily(route.family)],
            ident=self._ident,
            sequence=self._sequence,
            token=token,
            size=probe.size,
        )
        key = (route.family, route.job.source, route.job.interface)
        try:
            opened = self._sockets.get(key) or self._open(key)
            attempt.began, attempt.wall = self.home.clocks.ns(), self.home.clocks.wall()
            opened.sock.sendto(packet, route.address)
        except OSError as error:
            self._unsent(attempt, key, error)
            return
        attempt.sent = 1
        self._waiting[token] = attempt

    def forget(self, attempt: Attempt) -> None:
        """The attempt is over."""
        self._waiting.pop(attempt.key, None)

    def answered(self, family: int, packet: bytes, at: int | None) -> None:
        """A packet came; foreign ones and ones for attempts that are over are passed over."""
        try:
            reply = icmp.reply(family, packet)
        except RemoteProtocolError:
            return
        attempt = self._waiting.get(reply.token) if reply else None
        if attempt is None:
            return
        attempt.rtt, attempt.clock, took = self.home.clocks.measure(attempt.began, attempt.wall, at)
        self.home.settle(attempt, None, took)

    def refused(self, family: int, quoted: bytes, code: int) -> None:
        """A router or the target said why a request of ours goes nowhere."""
        token = icmp.token_of(family, quoted)
        attempt = self._waiting.get(token) if token is not None else None
        if attempt is None:
            return
        attempt.lost = 1
        attempt.note = kernel.words_of(code)
        failure = kernel.failure_of(code)
        # What a router refuses (ECONNREFUSED: "port unreachable") is for ICMP a way of not being reachable.
        failure = Failure.UNREACHABLE if failure in {Failure.REFUSED, Failure.AGENT} else failure
        self.home.settle(attempt, failure, self.home.clocks.elapsed(attempt.began))

    def close(self) -> None:
        """Release every socket."""
        for opened in self._sockets.values():
            opened.sock.close()
        self._sockets.clear()
        self._waiting.clear()

    def _open(self, key: Key) -> _Socket:
        sock = open_socket(*key)
        opened = self._sockets[key] = _Socket(self, sock, key[0])
        self.home.watch(opened, sock.fileno(), EPOLLIN)
        return opened

    def _give_up(self, attempt: Attempt, events: int) -> None:
        del events
        attempt.lost = 1
        attempt.note = "no answer"
        self.home.settle(attempt, Failure.TIMEOUT, self.home.clocks.elapsed(attempt.began))

    def _unsent(self, attempt: Attempt, key: Key, error: OSError) -> None:
        code = error.errno or 0
        failure = kernel.failure_of(code)
        if failure is Failure.AGENT and code != errno.ENOBUFS and (opened := self._sockets.pop(key, None)):
            self.home.unwatch(opened.sock.fileno())
            opened.sock.close()  # its address or interface may be gone: the next attempt opens anew
        attempt.note = "no permission for ICMP" if code in {errno.EPERM, errno.EACCES} else kernel.words_of(code)
        self.home.settle(attempt, failure, 0)


class _Socket:
    """One socket under the engine's epoll."""

    __slots__ = ("_echo", "_family", "_raw", "sock")

    def __init__(self, echo: Echo, sock: socket.SocketType, family: int) -> None:
        self._echo = echo
        self._family = _NUMBERS[socket.AddressFamily(family)]
        self._raw = sock.type == socket.SOCK_RAW and family == socket.AF_INET
        self.sock = sock

    def ready(self, events: int) -> None:
        """Take replies, and errors that came back for requests."""
        if events & EPOLLERR:
            self._take_errors()
        for _ in range(_MOST):
            try:
                packet, ancillary, _, _ = self.sock.recvmsg(_CHUNK, _ANCILLARY)
            except OSError as error:
                if error.errno in _AGAIN:
                    return
                continue  # the pending error of a request, told in full by the error queue
            try:
                packet = icmp.without_ip(packet) if self._raw else packet
            except RemoteProtocolError:
                continue
            self._echo.answered(self._family, packet, kernel.stamp(ancillary))

    def _take_errors(self) -> None:
        for _ in range(_MOST):
            try:
                quoted, ancillary, _, _ = self.sock.recvmsg(_CHUNK, _ANCILLARY, socket.MSG_ERRQUEUE)
            except OSError:
                return
            for level, kind, raw in ancillary:
                if (level, kind) in kernel.RECVERR.values() and len(raw) >= _ERROR.size:
                    self._echo.refused(self._family, quoted, _ERROR.unpack_from(raw)[0])


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
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, kernel.SO_TIMESTAMPNS, 1)
        sock.setsockopt(*kernel.RECVERR[socket.AddressFamily(family)], 1)
        kernel.bind(sock, family, source, interface)
    except OSError:
        sock.close()
        raise
    return sock


def forbidden(family: int = 4) -> str:
    """Why this process may not send echo requests, in words with a hint; empty where it may."""
    try:
        open_socket(socket.AF_INET6 if family == 6 else socket.AF_INET, "", "").close()
    except PermissionError:
        return "no permission for ICMP: give CAP_NET_RAW, or set net.ipv4.ping_group_range to include this group"
    except OSError as error:
        return f"no ICMP here: {kernel.words_of(error.errno or 0)}"
    return ""
