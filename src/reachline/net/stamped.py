"""A datagram socket whose arrivals carry the kernel's time, on our monotonic clock, and whose own losses are known.

Stamps are wall time; they are carried over by the two clocks' difference at the moment of reading. While that difference moves
(somebody sets the clock) the moment of reading is taken instead, which is late but never early. Refuses to know what is said.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

from reachline.net.kernel import SO_TIMESTAMPNS, stamp

__all__ = ["Address", "Arrival", "Stamped", "numeric", "parts", "shown"]

Address = tuple[str, int] | tuple[str, int, int, int]

_FLAGS: Final = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_SO_RXQ_OVFL: Final = 40
"""asm-generic/socket.h: how many datagrams the full queue of this socket cost so far, told beside those that came."""
_IP_PKTINFO: Final = 8
_IPV6_RECVPKTINFO, _IPV6_PKTINFO = 49, 50
"""linux/in.h, linux/in6.h: the address a datagram was sent to, so that the answer leaves from it."""
_COUNT: Final = struct.Struct("=I")
_INFO4: Final = struct.Struct("=i4s4s")
_INFO6: Final = struct.Struct("=16si")
_BUFFER: Final = 1 << 20
"""Bytes to receive into: five seconds of 500 datagrams a second, which take about 800 bytes each there."""
_ANCILLARY: Final = 256
_STEP_NS: Final = 1_000_000
"""The two clocks may part by this much between two looks (NTP slews 0.5 ms a second); beyond it one was set."""
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))
_NOBODY: Final = frozenset((errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH))
"""What routers and hosts said of datagrams sent before: no news of this one."""


class Arrival(NamedTuple):
    """One datagram. `at_us` is monotonic; `local` goes back into `send`, so that the answer leaves where it was asked."""

    data: bytes
    peer: Address
    at_us: int
    is_stamped: bool
    """The kernel says when it came; else `at_us` is when it was read, which may be much later."""
    local: tuple[int, int, bytes] | None


class Stamped:
    """One socket. Written by its loop's thread."""

    __slots__ = ("_apart", "_clock", "_sock", "_wall", "lost")

    def __init__(
        self,
        family: int,
        address: Address,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        """Bound to `address`; OSError where that cannot be had. `clock` is what arrivals are told by."""
        self._clock, self._wall = clock, wall
        self.lost = 0
        """Datagrams that our own queue had no room for, so far."""
        self._sock = socket.SocketType(family, _FLAGS)
        try:
            if family == socket.AF_INET6:
                self._sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                self._sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVPKTINFO, 1)
            else:
                self._sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            self._sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self._sock.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._sock.bind(address)
        except OSError:
            self._sock.close()
            raise
        self._apart = wall() - clock()

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def address(self) -> Address:
        """Where it is bound."""
        bound: Address = self._sock.getsockname()
        return bound

    def now_us(self) -> int:
        """The clock that arrivals are told by."""
        return self._clock() // 1_000

    def take(self, most: int, size: int) -> Iterator[Arrival]:
        """What is here, `most` datagrams at most, each cut at `size` bytes."""
        for _ in range(most):
            try:
                data, ancillary, _, peer = self._sock.recvmsg(size, _ANCILLARY)
            except OSError as error:
                if error.errno in _NOBODY:
                    continue
                if error.errno in _AGAIN:
                    return
                raise
            at_us, is_stamped = self._moment(stamp(ancillary))
            yield Arrival(data, peer, at_us, is_stamped, self._learn(ancillary))

    def send(self, data: bytes, peer: Address, local: tuple[int, int, bytes] | None = None) -> int:
        """0 where the kernel took it, else the errno: a datagram that did not leave is data."""
        try:
            if local is None:
                self._sock.sendto(data, peer)
            else:
                self._sock.sendmsg((data,), (local,), 0, peer)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def close(self) -> None:
        """Idempotent."""
        self._sock.close()

    def _moment(self, at: int | None) -> tuple[int, bool]:
        now, wall = self._clock(), self._wall()
        moved, self._apart = wall - now - self._apart, wall - now
        if at is None or not -_STEP_NS <= moved <= _STEP_NS or at > wall:
            return now // 1_000, False
        return (now - (wall - at)) // 1_000, True

    def _learn(self, ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int, bytes] | None:
        """Where it was sent to, as `sendmsg` wants it; the count of lost ones on the way."""
        local = None
        for level, kind, raw in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_RXQ_OVFL):
                self.lost = _COUNT.unpack_from(raw)[0]
            elif (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
                _, source, _ = _INFO4.unpack_from(raw)
                local = (socket.IPPROTO_IP, _IP_PKTINFO, _INFO4.pack(0, source, b""))
            elif (level, kind) == (socket.IPPROTO_IPV6, _IPV6_PKTINFO):
                local = (socket.IPPROTO_IPV6, _IPV6_PKTINFO, raw)
        return local


def numeric(host: str, port: int) -> tuple[int, Address] | None:
    """Family and socket address of a numeric host; None where it is a name."""
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=flags)[0]
    except (OSError, UnicodeError):
        return None
    return family, cast("Address", found)


def shown(address: Address) -> str:
    """`host:port`, IPv6 in brackets."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parts(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an empty host or port 0 where it is none."""
    try:
        found = urlsplit(f"udp://{address}")
        host, port = found.hostname or "", found.port or 0
    except ValueError:
        return "", 0
    return host, port
