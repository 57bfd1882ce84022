"""Sockets that datagrams leave by, from an outbound's address and by its interface, or not at all."""

from __future__ import annotations

import socket
from typing import NamedTuple

from reachline.doors.observatory.carrying import Way
from reachline.net import kernel

__all__ = ["Path", "bound", "leaving"]


class Path(NamedTuple):
    """By which socket datagrams go to one target, where to, and what stands before them."""

    sock: socket.socket
    address: tuple[str, int]
    before: bytes = b""


def bound(host: str) -> socket.socket:
    """At an address of ours, by any port."""
    sock = _unbound(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.bind((host, 0))
    except OSError:
        sock.close()
        raise
    return sock


def leaving(family: int, way: Way) -> socket.socket:
    """As the outbound leaves; OSError where it cannot."""
    sock = _unbound(family)
    try:
        if way.source or way.interface:
            kernel.bind(sock, family, way.source, way.interface)
    except BaseException:
        sock.close()
        raise
    return sock


def _unbound(family: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    return sock
