"""What a run of the probing benchmark leaves: values that go to JSON and come back, so that the page can be made again."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = [
    "Agent",
    "Drift",
    "Memory",
    "Offset",
    "Pace",
    "Peer",
    "Profile",
    "Results",
    "Run",
    "Sample",
    "Spot",
    "Verdict",
]


class Sample(msgspec.Struct, frozen=True):
    """One cell, once: `count` probes ended in `wall` seconds, for which the prober alone used `cpu`."""

    count: int
    bad: int
    """Of them, those that did not end well: there should be none."""
    cpu: float
    wall: float

    @property
    def rate(self) -> float:
        """Probes per CPU-second."""
        return self.count / self.cpu if self.cpu else 0.0

    @property
    def busy(self) -> float:
        """The share of its core the prober had."""
        return self.cpu / self.wall if self.wall else 0.0


class Pace(msgspec.Struct, frozen=True):
    """Probes at a fixed rate: what they cost, and how late they began."""

    rate: int
    ended: float
    """A second, as measured."""
    core: float
    late_p50_us: float
    late_p99_us: float
    bad: int


class Agent(msgspec.Struct, frozen=True):
    """A whole agent at work: every line probed once a second, heartbeats sent."""

    lines: int
    core: float
    line_bytes: float
    """All it keeps of a line with one kind: plan, job, schedule, route, window and what is on its way."""
    ended: float = 0.0
    """Probes a second, as its heartbeats told."""
    late_p50_us: float = 0.0
    """Of each line's latest start in a heartbeat."""
    late_p99_us: float = 0.0
    bad: int = 0


class Offset(msgspec.Struct, frozen=True):
    """How far reported round trips are from the packets' own stamps."""

    kind: str
    rate: int
    stall_ms: int
    """Synchronous work on the loop, once a second."""
    count: int
    missing: int
    """Probes for which the capture or the engine has no round trip."""
    p50_us: float
    p99_us: float
    worst_us: float


class Memory(msgspec.Struct, frozen=True):
    """Bytes of one line, by how much the process grew."""

    lines: int
    window: float
    """A full window with all its counters."""


class Drift(msgspec.Struct, frozen=True):
    """Whether a process that probes for long grows: probes of all kinds, among them refused and unanswered ones."""

    seconds: float
    probes: int
    early_kb: int
    """Middle of the second quarter of the run: the first one still fills windows."""
    late_kb: int
    """Middle of the last quarter."""
    files_early: int
    files_late: int


class Spot(msgspec.Struct, frozen=True):
    """A line of code and the share of CPU samples that stood on it, calls into C and the kernel included."""

    share: float
    place: str
    source: str


class Profile(msgspec.Struct, frozen=True):
    """Where the CPU of one cell went."""

    samples: int
    kernel: float
    """Share of CPU spent in the kernel."""
    spots: tuple[Spot, ...]


class Peer(msgspec.Struct, frozen=True):
    """Somebody to be compared with: how it was run, or why not."""

    title: str
    how: str = ""
    lack: str = ""


class Run(msgspec.Struct, frozen=True):
    """How the figures were taken."""

    rounds: int
    seconds: float
    """Of each cell."""
    took: float = 0.0
    """Seconds, all of it."""
    is_crowded: bool = False
    """Prober and target had to share the only core."""


class Results(msgspec.Struct, frozen=True):
    """One run. What was not asked for, or could not be measured, is empty."""

    machine: Mapping[str, str]
    run: Run
    peers: Mapping[str, Peer] = {}
    rates: Mapping[str, Mapping[str, tuple[Sample, ...]]] = {}
    """By probe kind and side, one sample a round, interleaved."""
    paced: tuple[Pace, ...] = ()
    agent: Agent | None = None
    lab: tuple[Offset, ...] = ()
    memory: Memory | None = None
    drift: Drift | None = None
    profiles: Mapping[str, Profile] = {}
    lacks: Mapping[str, str] = {}
    """Cells that could not be measured here, and why."""


class Verdict(msgspec.Struct, frozen=True):
    """One row of the table that is held against a bound."""

    cell: str
    what: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    blocking: float
    goal: float
    is_more_better: bool
    lack: str = ""

    @property
    def state(self) -> str:
        """In words."""
        if self.value is None:
            return "not measured"
        if self._is_within(self.goal):
            return "goal reached"
        return "holds" if self._is_within(self.blocking) else "falls short"

    def _is_within(self, bound: float) -> bool:
        assert self.value is not None
        return self.value >= bound if self.is_more_better else self.value <= bound
