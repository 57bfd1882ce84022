"""Interfaces, their addresses, and which of them the kernel's routes take. Linux only; knows nothing of lines."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

__all__ = ["addresses_of", "gateway", "index_of", "taken"]

_SIOCGIFADDR: Final = 0x8915
_REQUEST: Final = struct.Struct("=16s4x4s16x")
"""struct ifreq with a sockaddr_in: name, then family and port, address."""
_IPV6: Final = Path("/proc/net/if_inet6")
_ROUTES: Final = Path("/proc/net/route")
_ROUTES6: Final = Path("/proc/net/ipv6_route")
_UP, _GATEWAY = 1, 2
"""RTF_UP, RTF_GATEWAY (linux/route.h)."""
_MOST: Final = 16_384
"""Rows that are read of a table, some 30 ms: whoever has more is a router."""


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
    # The kernel tells routes by ascending destination: a router's whole table need not be read for its default ones.
    for row in takewhile(lambda row: int(row[1], 16) == 0, _rows(routes)):
        _, _, hop, flags, _, _, metric, mask = row[:8]
        if int(flags, 16) & _GATEWAY and int(mask, 16) == 0:
            found.append((int(metric), str(_ipv4(hop))))
    return min(found, default=(0, ""))[1]


def _rows(table: Path) -> Iterator[list[str]]:
    """The table's rows as words, without its headline; none where it cannot be read."""
    with contextlib.suppress(OSError), table.open() as lines:
        yield from (words for line in islice(lines, 1, _MOST) if len(words := line.split()) >= 8)


def _ipv4(word: str) -> ipaddress.IPv4Address:
    """The kernel writes addresses as numbers in the machine's own order of bytes."""
    return ipaddress.IPv4Address(int(word, 16).to_bytes(4, sys.byteorder))


def taken(addresses: Iterable[str], *, routes: Path = _ROUTES, routes6: Path = _ROUTES6) -> frozenset[str]:
    """The interfaces by which the kernel's main routes reach these addresses; `lo` for this machine's own loopback.

    Rules by mark or source are not looked at: a line that has them names its interface.
    """
    table = dict[_Network, tuple[int, str]]()
    for network, metric, interface in (*_routes4(routes), *_routes6(routes6)):
        table[network] = min(table.get(network, (metric, interface)), (metric, interface))
    prefixes = {version: sorted({way[1] for way in table if way[0] == version}, reverse=True) for version in (4, 6)}
    found = (_by(ipaddress.ip_address(address), table, prefixes) for address in addresses)
    return frozenset(filter(None, found))


_Network = tuple[int, int, int]
"""Version, length of the prefix, and its bits."""


def _routes4(routes: Path) -> Iterator[tuple[_Network, int, str]]:
    for row in _rows(routes):
        if int(row[3], 16) & _UP:
            prefix = int(row[7], 16).bit_count()
            yield (4, prefix, int(_ipv4(row[1])) >> 32 - prefix), int(row[6]), row[0]


def _routes6(routes: Path) -> Iterator[tuple[_Network, int, str]]:
    """Its table has no headline: target, length, source, length, hop, metric, counts, flags, interface."""
    with contextlib.suppress(OSError), routes.open() as lines:
        for row in map(str.split, islice(lines, _MOST)):
            if len(row) == 10 and int(row[8], 16) & _UP:
                prefix = int(row[1], 16)
                yield (6, prefix, int(row[0], 16) >> 128 - prefix), int(row[5], 16), row[9]


def _by(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
    table: Mapping[_Network, tuple[int, str]],
    prefixes: Mapping[int, Sequence[int]],
) -> str:
    """The interface of the longest prefix that the address has; empty where no route does."""
    if address.is_loopback:
        return "lo"
    bits, version = int(address), address.version
    for prefix in prefixes[version]:
        if way := table.get((version, prefix, bits >> address.max_prefixlen - prefix)):
            return way[1]
    return ""
