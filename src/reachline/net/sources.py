"""Which of our own addresses a target may be reached from: those beside the one that the route takes. Sends nothing.

An interface may carry many addresses. Those of the same network on the same interface as the route's own choice leave by the
same way and are answered by it; any other may be somebody's service address, or of another provider's network.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

__all__ = ["Address", "addresses", "beside", "chosen", "groups"]

_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_DONE, _ERROR = 3, 2
_REQUEST_DUMP: Final = 0x301
"""NLM_F_REQUEST | NLM_F_DUMP."""
_HEADER: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port."""
_ADDRESS: Final = struct.Struct("=BBBBI")
"""struct ifaddrmsg: family, prefix length, flags, scope, interface."""
_ATTRIBUTE: Final = struct.Struct("=HH")
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_PASSING: Final = 0x01 | 0x08 | 0x20 | 0x40
"""Flags of IPv6 addresses: temporary (gone within days), duplicate, deprecated, tentative."""
_SECONDARY: Final = 0x01
"""The same bit says of an IPv4 address that it is not the first of its network, which is nothing against it."""
_ROOM: Final = 1 << 16
_DISCARD: Final = 9


class Address(NamedTuple):
    """One of our own addresses."""

    address: str
    prefix: int
    interface: int

    @property
    def network(self) -> tuple[int, str]:
        """Interface and network: addresses with the same are beside each other."""
        return self.interface, str(ipaddress.ip_network((self.address, self.prefix), strict=False))


def addresses() -> tuple[Address, ...]:
    """All our addresses of global scope that are here to stay, as the kernel lists them; empty where it does not tell."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(1.0)
        body = _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        sock.send(_HEADER.pack(_HEADER.size + len(body), _RTM_GETADDR, _REQUEST_DUMP, 1, 0) + body)
        return tuple(_dump(sock))
    return ()


def chosen(target: str) -> str:
    """The address that the route to a numeric target takes; empty where there is no route."""
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect((target, _DISCARD))
        return str(sock.getsockname()[0]).partition("%")[0]
    return ""


def groups(known: Iterable[Address]) -> dict[str, tuple[str, ...]]:
    """For each address that is not alone in its network: itself, and then those beside it."""
    networks: dict[tuple[int, str], list[str]] = {}
    for each in known:
        if not _is_lone(each):
            networks.setdefault(each.network, []).append(each.address)
    return {
        own: (own, *(other for other in members if other != own))
        for members in networks.values()
        for own in members
        if len(members) > 1
    }


def beside(target: str, grouped: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The addresses from which a numeric target may be reached, the route's own choice first.

    Empty where that is the only one, or there is no route: the route decides then.
    """
    return grouped.get(chosen(target), ())


def _is_lone(address: Address) -> bool:
    return address.prefix == (128 if ":" in address.address else 32)


def _dump(sock: socket.socket) -> Iterator[Address]:
    while True:
        data, at = sock.recv(_ROOM), 0
        while at + _HEADER.size <= len(data):
            length, kind, *_ = _HEADER.unpack_from(data, at)
            if kind in (_DONE, _ERROR) or length < _HEADER.size:
                return
            if kind == _RTM_NEWADDR and (found := _read(data[at + _HEADER.size : at + length])):
                yield found
            at += (length + 3) & ~3


def _read(body: bytes) -> Address | None:
    """One row of the list; None for what is local to a link or a host, or about to go."""
    if len(body) < _ADDRESS.size:
        return None
    family, prefix, flags, scope, interface = _ADDRESS.unpack_from(body)
    attributes = dict(_attributes(body[_ADDRESS.size :]))
    raw = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
    if len(wide := attributes.get(_IFA_FLAGS, b"")) == 4:
        flags = int.from_bytes(wide, sys.byteorder)
    bad = _PASSING & ~_SECONDARY if family == socket.AF_INET else _PASSING
    if scope or flags & bad or not raw or len(raw) not in (4, 16):
        return None
    return Address(str(ipaddress.ip_address(raw)), prefix, interface)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
