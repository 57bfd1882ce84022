"""The addresses of an interface. Linux only; knows nothing of lines."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Final

__all__ = ["addresses_of", "index_of"]

_SIOCGIFADDR: Final = 0x8915
_REQUEST: Final = struct.Struct("=16s4x4s16x")
"""struct ifreq with a sockaddr_in: name, then family and port, address."""
_IPV6: Final = Path("/proc/net/if_inet6")


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
