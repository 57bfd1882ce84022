"""How echo requests leave a socket and replies are taken from it: in batches where the C library can, else one by one.

Both ways say the same of the same packets. Neither knows who waits for a token.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Final, Protocol

from reachline.errors import RemoteProtocolError
from reachline.net import kernel, mmsg
from reachline.net.attempt import Route, SockAddr
from reachline.wire import icmp

__all__ = ["BATCH", "REPLIES", "Batched", "Buffers", "Post", "Reply", "Single", "raw_address"]

BATCH: Final = 64
"""Requests handed over in one call: all that begin in a turn. A tenth cheaper than 16 at a time, and only where so many are due
within a millisecond.
"""
REPLIES: Final = 64
"""Replies taken in one call."""
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))
_NS: Final = 1_000_000_000
_CHUNK: Final = 65_536
_ANCILLARY: Final = 512
_NO_OPTIONS: Final = 0x45
"""First byte of an IPv4 header of 20 bytes."""
_NO_HEADER: Final = bytes((_NO_OPTIONS,)) + bytes(19)
"""Stands in a slot where the kernel keeps the header for itself."""
_KEPT: Final = 96
"""Bytes of header and message that are looked at: the longest header of IPv4 is 60, then 16."""
_SLOT: Final = struct.Struct("=QiiqqB19xBB6xQ60x")
"""A reply in its slot: length, level, kind and two words of the stamp; the header's first byte; type, code, token."""
_SOCKADDR: Final = {socket.AF_INET: struct.Struct("=HH4s8x"), socket.AF_INET6: struct.Struct("=HHI16sI")}
"""struct sockaddr_in and sockaddr_in6; ICMP has no port."""
_swap: Final = socket.htons
_NUMBERS: Final = {socket.AF_INET: 4, socket.AF_INET6: 6}

Reply = tuple[int, int | None]
"""The token that came back, and the kernel's stamp."""


class Post(Protocol):
    """One socket's traffic."""

    def lay(self, starts: Sequence[tuple[Route, int]], tokens: Sequence[int], size: int) -> None:
        """Make requests of `size` bytes with these tokens, at most BATCH, ready to be sent by these routes."""

    def send(self) -> int:
        """How many of those that are ready went; OSError where the first one did not. They are to be laid anew then."""

    def replies(self) -> list[Reply]:
        """What has come, of at most REPLIES packets; OSError where nothing waits (EAGAIN), or the socket has one to tell.

        One cut short may be among them, with a token that nobody waits for.
        """


class Buffers:
    """Memory for batches, made when first used and shared by all sockets of one thread, one batch at a time."""

    __slots__ = ("_incoming", "_outgoing")

    def __init__(self) -> None:
        self._outgoing: dict[int, mmsg.Outgoing] = {}
        self._incoming: dict[bool, mmsg.Incoming] = {}

    def outgoing(self, family: int) -> mmsg.Outgoing:
        """For requests of this family."""
        if (made := self._outgoing.get(family)) is None:
            address = _SOCKADDR[socket.AddressFamily(family)].size
            made = self._outgoing[family] = mmsg.Outgoing(BATCH, address=address, head=icmp.HEAD.size)
        return made

    def incoming(self, *, with_header: bool) -> mmsg.Incoming:
        """For replies, as raw IPv4 sockets see them or without their IP header."""
        if (made := self._incoming.get(with_header)) is None:
            fill = b"" if with_header else _NO_HEADER
            made = self._incoming[with_header] = mmsg.Incoming(REPLIES, data=_KEPT - len(fill), fill=fill)
        return made


class Batched:
    """By sendmmsg and recvmmsg."""

    __slots__ = (
        "_address",
        "_alone",
        "_base",
        "_fd",
        "_first",
        "_ident",
        "_in",
        "_number",
        "_out",
        "_pack",
        "_ready",
        "_sequence",
        "_sock",
        "_wanted",
    )

    def __init__(self, buffers: Buffers, sock: socket.SocketType, ident: int) -> None:
        family, self._number = int(sock.family), _NUMBERS[socket.AddressFamily(sock.family)]
        self._sock, self._fd = sock, sock.fileno()
        self._out = buffers.outgoing(family)
        self._in = buffers.incoming(with_header=_has_header(sock))
        self._first, self._wanted = icmp.TYPES[self._number]
        self._ident = socket.htons(ident & 0xFFFF)
        # The internet checksum is a sum modulo 65 535 in either byte order, and a token is its four words modulo that.
        self._base = int.from_bytes(bytes((self._first, 0)), sys.byteorder) + self._ident
        self._pack = struct.Struct(f"={_SOCKADDR[socket.AddressFamily(family)].size}s{icmp.HEAD.format[1:]}").pack_into
        self._sequence = self._ready = 0
        self._alone = b""
        self._address: SockAddr = ("", 0)

    def lay(self, starts: Sequence[tuple[Route, int]], tokens: Sequence[int], size: int) -> None:
        out, pack, kind, ident, base = self._out, self._pack, self._first, self._ident, self._base
        slots, width, at, sequence = out.slots, out.width, 0, self._sequence
        for (route, _), token in zip(starts, tokens, strict=True):
            sequence = sequence + 1 & 0xFFFF
            swapped = _swap(sequence)
            pack(slots, at, route.raw, kind, 0, 0xFFFF - (base + swapped + token) % 0xFFFF, ident, swapped, token)
            at += width
        self._sequence, self._ready = sequence, len(starts)
        if self._ready == 1:
            self._address = starts[0][0].address
            self._alone = bytes(slots[width - icmp.HEAD.size : width]).ljust(size, b"\0")
        else:
            out.resize(self._ready, size)

    def send(self) -> int:
        if self._ready > 1:
            return self._out.send(self._fd, self._ready)
        # One alone leaves by the shortest way: with all caches cold a batch of one is 15 us further from the wire.
        self._sock.sendto(self._alone, self._address)
        return 1

    def replies(self) -> list[Reply]:
        into, wanted, stamped = self._in, self._wanted, kernel.SO_TIMESTAMPNS
        came = into.receive(self._fd)
        found: list[Reply] = [
            (token, seconds * _NS + nanos if kind == stamped else None)
            for _, _, kind, seconds, nanos, header, what, code, token in _SLOT.iter_unpack(
                memoryview(into.slots)[: came * into.width]
            )
            if what == wanted and not code and header == _NO_OPTIONS
        ]
        if len(found) < came:
            found += self._with_options(came)
        return found

    def _with_options(self, came: int) -> list[Reply]:
        """Replies whose IP header is longer than the plain one."""
        found: list[Reply] = []
        width = self._in.width
        for begin in range(0, came * width, width):
            slot = self._in.slots[begin : begin + width]
            if slot[mmsg.CONTROL] == _NO_OPTIONS:
                continue
            reply = _reply(self._number, bytes(slot[mmsg.CONTROL :]), with_header=True)
            if reply is not None:
                _, _, kind, seconds, nanos, *_ = _SLOT.unpack(slot)
                found.append((reply, seconds * _NS + nanos if kind == kernel.SO_TIMESTAMPNS else None))
        return found


class Single:
    """By sendto and recvmsg, wherever batches cannot be."""

    __slots__ = ("_ident", "_number", "_ready", "_sequence", "_sock", "_with_header")

    def __init__(self, sock: socket.SocketType, ident: int) -> None:
        self._sock, self._ident = sock, ident
        self._number = _NUMBERS[socket.AddressFamily(sock.family)]
        self._with_header = _has_header(sock)
        self._sequence = 0
        self._ready: list[tuple[bytes, SockAddr]] = []

    def lay(self, starts: Sequence[tuple[Route, int]], tokens: Sequence[int], size: int) -> None:
        pairs = zip(starts, tokens, strict=True)
        self._ready = [(self._packet(size, token), route.address) for (route, _), token in pairs]

    def send(self) -> int:
        for sent, (packet, address) in enumerate(self._ready):
            try:
                self._sock.sendto(packet, address)
            except OSError:
                if not sent:
                    raise
                return sent
        return len(self._ready)

    def _packet(self, size: int, token: int) -> bytes:
        self._sequence = self._sequence + 1 & 0xFFFF
        return icmp.request(
            self._number, ident=self._ident, sequence=self._sequence, token=token, size=size - icmp.PLAIN
        )

    def replies(self) -> list[Reply]:
        found = self._next()
        for _ in range(REPLIES - 1):
            try:
                found += self._next()
            except OSError:
                break
        return found

    def _next(self) -> list[Reply]:
        packet, ancillary, _, _ = self._sock.recvmsg(_CHUNK, _ANCILLARY)
        token = _reply(self._number, packet, with_header=self._with_header)
        return [] if token is None else [(token, kernel.stamp(ancillary))]


def raw_address(family: int, address: SockAddr) -> bytes:
    """A numeric address as the kernel takes it."""
    made = _SOCKADDR[socket.AddressFamily(family)]
    host = socket.inet_pton(family, address[0].partition("%")[0])
    if len(address) == 2:
        return made.pack(family, 0, host)
    return made.pack(family, 0, socket.htonl(address[2]), host, address[3])


def _has_header(sock: socket.SocketType) -> bool:
    return sock.type == socket.SOCK_RAW and sock.family == socket.AF_INET


def _reply(number: int, packet: bytes, *, with_header: bool) -> int | None:
    """The token of an echo reply; None where the packet is anything else."""
    try:
        reply = icmp.reply(number, icmp.without_ip(packet) if with_header else packet)
    except RemoteProtocolError:
        return None
    return reply.token if reply else None
