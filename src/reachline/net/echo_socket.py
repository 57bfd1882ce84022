"""Sockets for echo requests: raw where we may, else the kernel's ping socket (net.ipv4.ping_group_range)."""

from __future__ import annotations

import socket
import struct
from typing import Final

from reachline.net import kernel

__all__ = ["forbidden", "open_socket"]

_PROTOCOLS: Final = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}
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
