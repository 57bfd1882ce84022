"""What this machine lets one process have: descriptors, and source ports toward one target. Reads limits, opens nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

from reachline.model import Seconds
from reachline.net import kernel

__all__ = ["FULL", "Files", "Ports", "files", "free", "ports"]

FULL: Final = 0.6
"""Share of the ports toward one target that may be in TIME_WAIT: above it a connect that needs one begins to search for long, and
others on this machine that go there too are left little."""
_SYSCTL: Final = Path("/proc/sys/net/ipv4")
_USUAL: Final = range(32_768, 61_000)
"""Linux's own range, where the machine does not tell."""
_TIME_WAIT: Final[Seconds] = 60.0
"""TCP_TIMEWAIT_LEN of Linux, which cannot be changed."""
_REUSED: Final[Seconds] = 1.0
"""Where tcp_tw_reuse lets a connect have a port that is in TIME_WAIT: after a second, by its timestamps."""
_EVERYWHERE, _LOOPBACK = 1, 2
"""Values of tcp_tw_reuse; 2 is the default."""


class Files(NamedTuple):
    """Descriptors this process may have open, and what that means for probing."""

    before: int
    now: int
    attempts: int
    """Attempts at once: what the descriptors allow, a reserve left alone, and no more than was asked for."""


class Ports(NamedTuple):
    """Source ports of one of our addresses toward one target."""

    usable: range
    number: int
    """Of the range, without those that are reserved."""
    hold: Seconds
    """How long one is gone after we closed its connection by FIN."""

    @property
    def rate(self) -> float:
        """Connects a second that can go on for ever."""
        return self.number / self.hold

    def share(self, rate: float) -> float:
        """Of the ports, how many are gone at `rate` connects a second; above 1: more than there are."""
        return rate / self.rate


def files(wanted: int | None) -> Files:
    """Raises the soft limit of descriptors to the hard one. `wanted`: attempts at once at most; None: what fits."""
    before = kernel.file_limit()
    now = kernel.raise_file_limit()
    return Files(before, now, kernel.budget(wanted))


def ports(*, is_loopback: bool = False) -> Ports:
    """What this machine's network namespace says now."""
    usable = _range(_said("ip_local_port_range"))
    reserved = sum(1 for port in _reserved(_said("ip_local_reserved_ports")) if port in usable)
    reuse = _said("tcp_tw_reuse").strip()
    is_reused = reuse == str(_EVERYWHERE) or (is_loopback and reuse == str(_LOOPBACK))
    return Ports(usable, max(1, len(usable) - reserved), _REUSED if is_reused else _TIME_WAIT)


def free() -> tuple[int, ...]:
    """The ports that anybody may take without asking for a certain one: the range without those that are reserved."""
    reserved = _reserved(_said("ip_local_reserved_ports"))
    return tuple(port for port in _range(_said("ip_local_port_range")) if port not in reserved)


def _said(name: str) -> str:
    with contextlib.suppress(OSError):
        return (_SYSCTL / name).read_text()
    return ""


def _range(text: str) -> range:
    with contextlib.suppress(ValueError):
        low, high = map(int, text.split())
        return range(low, high + 1)
    return _USUAL


def _reserved(text: str) -> set[int]:
    """`8080,9148-9150` as numbers."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found
