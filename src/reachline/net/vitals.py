"""What Linux tells of this host: processors, interfaces, sockets, optics. Reads; judges nothing. Elsewhere all of it is absent."""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from reachline.wire import optics

__all__ = ["Core", "Host", "Nic", "host", "light"]

_PROC: Final = Path("/proc")
_NICS: Final = Path("/sys/class/net")
_SIOCETHTOOL: Final = 0x8946
_GET_INFO, _GET_MEMORY = 0x42, 0x43
"""ETHTOOL_GMODULEINFO, ETHTOOL_GMODULEEEPROM (linux/ethtool.h)."""
_REQUEST: Final = struct.Struct("=16sQ16x")
"""struct ifreq: the interface's name, and where its data is."""
_INFO: Final = struct.Struct("=III32x")
_MEMORY: Final = struct.Struct("=IIII")
_MOST: Final = 1_024
"""Bytes of a module's memory that are read: what SFF-8636 has with all its pages is 640."""
_SOFTIRQ, _STEAL, _GUEST = 6, 7, 8
"""Columns of a processor in /proc/stat; guests' time stands in user time too."""


class Core(NamedTuple):
    """One processor's time since the start, in ticks."""

    softirq: int
    steal: int
    total: int


class Nic(NamedTuple):
    """One interface's counters since it came."""

    packets: int
    drops: int
    errors: int
    carrier: int


class Host(NamedTuple):
    """All counters of one moment."""

    cores: Mapping[str, Core] = {}
    nics: Mapping[str, Nic] = {}
    backlog: int = 0
    """Packets that the kernel had no room for between interface and protocol."""
    segments: int = 0
    again: int = 0
    """TCP segments sent, and sent again."""
    full: int = 0
    """Datagrams that found their socket's buffer full."""


def host(interfaces: Iterable[str], *, proc: Path = _PROC, nics: Path = _NICS) -> Host:
    """The counters as they are now, of these interfaces; what is not told is 0 or absent."""
    snmp = _tables(_text(proc / "net/snmp")) | _flat(_text(proc / "net/snmp6"))
    return Host(
        cores=_cores(_text(proc / "stat")),
        nics={name: nic for name in interfaces if (nic := _nic(nics / name)) is not None},
        backlog=_backlog(_text(proc / "net/softnet_stat")),
        segments=snmp.get("TcpOutSegs", 0),
        again=snmp.get("TcpRetransSegs", 0),
        full=snmp.get("UdpRcvbufErrors", 0) + snmp.get("Udp6RcvbufErrors", 0),
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _cores(text: str) -> dict[str, Core]:
    found = {}
    for line in text.splitlines():
        name, *numbers = line.split() or ("",)
        if name.startswith("cpu") and name != "cpu" and len(numbers) >= _GUEST:
            ticks = [int(number) for number in numbers[:_GUEST]]
            found[name] = Core(ticks[_SOFTIRQ], ticks[_STEAL], sum(ticks))
    return found


def _nic(directory: Path) -> Nic | None:
    counters = directory / "statistics"
    if not counters.is_dir():
        return None
    return Nic(
        packets=_sum(counters, "rx_packets", "tx_packets"),
        drops=_sum(counters, "rx_dropped", "tx_dropped", "rx_missed_errors"),
        errors=_sum(counters, "rx_errors", "tx_errors"),
        carrier=_sum(directory, "carrier_changes"),
    )


def _sum(directory: Path, *names: str) -> int:
    words = [_text(directory / name).strip() for name in names]
    return sum(int(word) for word in words if word.isdigit())


def _backlog(text: str) -> int:
    """The second column of every processor, in hexadecimal."""
    return sum(int(words[1], 16) for line in text.splitlines() if len(words := line.split()) > 1)


def _tables(text: str) -> dict[str, int]:
    """Two lines each: `Tcp: NAME NAME` and `Tcp: 1 2`."""
    found = dict[str, int]()
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        head, *columns = names.split()
        numbers = values.split()[1:]
        found |= {f"{head.rstrip(':')}{name}": int(number) for name, number in zip(columns, numbers, strict=False)}
    return found


def _flat(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2}


def light(interface: str) -> optics.Light | None:
    """The light that the interface's module receives; None where it has none, or we may not ask (CAP_NET_ADMIN).

    Blocks for as long as the module takes to be read: tens of milliseconds.
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        _, kind, size = _INFO.unpack_from(_asked(sock, interface, _INFO.pack(_GET_INFO, 0, 0)))
        size = min(size, _MOST)
        memory = _asked(sock, interface, _MEMORY.pack(_GET_MEMORY, 0, 0, size) + bytes(size))
        return optics.light(kind, memory[_MEMORY.size :])
    return None


def _asked(sock: socket.socket, interface: str, request: bytes) -> bytes:
    """One question of ethtool; the kernel answers in the question's own place."""
    data = array.array("B", request)
    fcntl.ioctl(sock, _SIOCETHTOOL, _REQUEST.pack(interface.encode()[:15], data.buffer_info()[0]))
    return data.tobytes()
