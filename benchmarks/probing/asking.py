"""What cells are asked and what they answer: words between the processes of a run."""

from __future__ import annotations

from typing import Final

import msgspec
from benchmarks.probing.results import Agent, Pace, Profile, Sample

__all__ = ["LOOPBACK", "Asked", "Heard", "Paced", "Sampled", "Target", "Work", "Worked"]

LOOPBACK: Final = "127.0.0.1"


class Target(msgspec.Struct, frozen=True):
    """Where the probes of a cell go."""

    tcp: tuple[int, ...] = ()
    udp: int = 0
    tls: int = 0
    address: str = LOOPBACK

    def ports(self, kind: str) -> tuple[int, ...]:
        """Those that serve a probe kind."""
        return {"dns": (self.udp,), "tls": (self.tls,)}.get(kind, self.tcp)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell is to do."""

    side: str
    kind: str = "tcp"
    target: Target
    seconds: float = 1.0
    is_profiled: bool = False
    directory: str = ""
    """Where the C programs are; of an agent, its center's socket."""
    process: int = 0
    port: int = 0
    """Of the exporter."""
    amount: int = 0
    """Probes a second, or lines."""


class Sampled(msgspec.Struct, frozen=True):
    """A saturated cell."""

    sample: Sample
    profile: Profile | None = None


class Paced(msgspec.Struct, frozen=True):
    """A cell at a fixed rate."""

    pace: Pace
    profile: Profile | None = None


class Worked(msgspec.Struct, frozen=True):
    """A whole agent's cell."""

    agent: Agent
    profile: Profile | None = None


class Work(msgspec.Struct, frozen=True):
    """What the center tells its agent to do, once a second each line."""

    lines: int
    heartbeat: float
    target: Target


class Heard(msgspec.Struct, frozen=True):
    """What the agent told during its last heartbeat of all lines."""

    ok: int
    failed: int
    late_us: tuple[int, ...]
    """Of each report, the latest start since the one before."""
