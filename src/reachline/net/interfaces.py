"""Interfaces, their addresses, and which of them the kernel's routes take. Linux only; knows nothing of lines."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["addresses_of", "gateway", "index_of", "taken"]

_SIOCGIFADDR: Final = 0x8915
_REQUEST: Final = struct.Struct("=16s4x4s16x")
"""struct ifreq with a sockaddr_in: name, then family and port, address."""
_IPV6: Final = Path("/proc/net/if_inet6")
_ROUTES: Final = Path("/proc/net/route")
_ROUTES6: Final = Path("/proc/net/ipv6_route")
_UP, _GATEWAY = 1, 2
"""RTF_UP, RTF_GATEWAY (linux/route.h)."""


def index_of(interface: str) -> int:
    """The interface's number; 0 where there is none of that name."""
    with contextlib.suppress(OSError):
        return socket.if_nametoindex(interface)
    return 0


def addresses_of(interface: str) -> frozenset[str]:
    """Its first IPv4 address and all its IPv6 addresses; empty where it has none."""
    found = set()
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFADDR, _REQUEST.pack(interface.encode()[:15], b""))
        found.add(str(ipaddress.IPv4Address(_REQUEST.unpack(answer)[1])))
    with contextlib.suppress(OSError):
        rows = (row.split() for row in _IPV6.read_text().splitlines())
        found |= {str(ipaddress.IPv6Address(bytes.fromhex(row[0]))) for row in rows if row[-1:] == [interface]}
    return frozenset(found)


def gateway(routes: Path = _ROUTES) -> str:
    """The IPv4 address of the default gateway with the lowest metric; empty where there is none."""
    found = []
    for row in _rows(routes):
        _, target, hop, flags, _, _, metric, mask = row[:8]
        if int(flags, 16) & _GATEWAY and int(target, 16) == int(mask, 16) == 0:
            found.append((int(metric), str(_ipv4(hop))))
    return min(found, default=(0, ""))[1]


def _rows(table: Path) -> list[list[str]]:
    """The table's rows as words, without its headline; empty where it cannot be read."""
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return []
    return [words for line in lines if len(words := line.split()) >= 8]


def _ipv4(word: str) -> ipaddress.IPv4Address:
    """The kernel writes addresses as numbers in the machine's own order of bytes."""
    return ipaddress.IPv4Address(int(word, 16).to_bytes(4, sys.byteorder))


def taken(addresses: Iterable[str], *, routes: Path = _ROUTES, routes6: Path = _ROUTES6) -> frozenset[str]:
    """The interfaces by which the kernel's main routes reach these addresses; `lo` for this machine's own loopback.

    Rules by mark or source are not looked at: a line that has them names its interface.
    """
    table = [*_routes4(routes), *_routes6(routes6)]
    found = (_by(ipaddress.ip_address(address), table) for address in addresses)
    return frozenset(filter(None, found))


class _Way(NamedTuple):
    """One route, the better the greater."""

    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    metric: int
    interface: str


def _routes4(routes: Path) -> list[_Way]:
    return [
        _Way(ipaddress.IPv4Network((_ipv4(row[1]), str(_ipv4(row[7])))), int(row[6]), row[0])
        for row in _rows(routes)
        if int(row[3], 16) & _UP
    ]


def _routes6(routes: Path) -> list[_Way]:
    """Its table has no headline: target, length, source, length, hop, metric, counts, flags, interface."""
    try:
        rows = [line.split() for line in routes.read_text().splitlines()]
    except OSError:
        return []
    return [
        _Way(ipaddress.IPv6Network((bytes.fromhex(row[0]), int(row[1], 16))), int(row[5], 16), row[9])
        for row in rows
        if len(row) == 10 and int(row[8], 16) & _UP
    ]


def _by(address: ipaddress.IPv4Address | ipaddress.IPv6Address, table: Sequence[_Way]) -> str:
    if address.is_loopback:
        return "lo"
    ways = [way for way in table if address in way.network]
    best = max(ways, key=lambda way: (way.network.prefixlen, -way.metric), default=None)
    return best.interface if best else ""
