"""The order of a run: who is measured when, on which core. Sides of a row stand next to each other in every round, so that a slow
moment of the machine meets all of them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

import msgspec
from benchmarks.probing import exporter, lab, peers
from benchmarks.probing.asking import Asked, Heard, Paced, Sampled, Target, Work, Worked
from benchmarks.probing.ours import quantile
from benchmarks.probing.process import ROOT, CellError, cell, module, on_core
from benchmarks.probing.results import Agent, Drift, Memory, Offset, Pace, Profile, Results, Run, Sample
from benchmarks.probing.table import verdicts
from benchmarks.probing.target import served, tls_served

from reachline.model import Seconds
from reachline.testing.bench import machine

__all__ = ["CELLS", "FULL", "QUICK", "Plan", "run"]

CELLS: Final = ("tcp", "http", "icmp", "dns", "tls", "paced", "agent", "rtt", "memory")
_KINDS: Final = CELLS[:5]
_PROFILED: Final = (*_KINDS, "paced", "agent")
_FEW: Final = 3
"""Rounds of what takes long."""

T = TypeVar("T")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much time a run takes."""

    cells: tuple[str, ...] = CELLS
    rounds: int
    seconds: Seconds
    """Of each cell."""
    paced: Seconds
    agent: Seconds
    lab: Seconds
    lab_rounds: int
    lines: int
    """Whose memory is measured."""
    drift: Seconds
    profiled: Seconds
    """At least, of a profile: 500 samples in two seconds of a kernel that ticks 250 times in each."""
    rate: int = 10_000
    """Connects a second, and lines of the agent."""


FULL: Final = Plan(
    rounds=5, seconds=1.6, paced=5.0, agent=10.0, lab=4.0, lab_rounds=1, lines=5_000, drift=120.0, profiled=2.0
)
"""Under ten minutes. An agent's ten seconds are one heartbeat of every line."""
QUICK: Final = Plan(
    rounds=1, seconds=0.5, paced=2.0, agent=3.0, lab=1.0, lab_rounds=1, lines=2_000, drift=6.0, profiled=0.8
)
"""Whether all of it works: under 90 seconds, and no more than a hint."""


class _Bench:
    """A run under way. Written by `run` alone."""

    def __init__(self, plan: Plan, directory: Path, tell: Callable[[str], None]) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self.plan, self.directory, self.tell = plan, directory, tell
        self.prober, self.other = cores[0], cores[-1]
        self.peers = peers.found(directory)
        self.program = None if self.peers["c"].lack else directory / "target"
        self.target = Target()
        self.exporter = (0, 0)
        self.lacks: dict[str, str] = {}

    def cell(self, place: str, words: tuple[str, ...], asked: Asked, kind: type[T]) -> T | None:
        """Runs a cell in a process of its own on its core; None where it failed, which is then told under `place`."""
        core = self.other if asked.side == "blackbox" else self.prober  # the exporter itself is on the prober's
        try:
            return cell(words, asked, kind, core=core, seconds=asked.seconds)
        except CellError as lack:
            self.lacks[place] = str(lack)
            self.tell(f"{place}: {lack}")
            return None

    def asked(self, side: str, kind: str = "tcp", **more: object) -> Asked:
        """A cell's words."""
        process, port = self.exporter
        base = Asked(
            side=side, kind=kind, target=self.target, seconds=self.plan.seconds, directory=str(self.directory),
            process=process, port=port,
        )  # fmt: skip
        return msgspec.structs.replace(base, **more)

    def why_not(self, kind: str, side: str) -> str:
        """Why a cell stays empty, or nothing."""
        if kind == "tls" and not self.target.tls:
            return self.lacks["tls"]
        if kind == "icmp" and os.geteuid() != 0 and side != "fping":
            return "raw sockets need root"
        return self.peers[side].lack

    def rates(self) -> dict[str, dict[str, tuple[Sample, ...]]]:
        """All saturated cells, round by round."""
        seen: dict[str, dict[str, list[Sample]]] = {}
        for number in range(self.plan.rounds):
            for kind in (kind for kind in _KINDS if kind in self.plan.cells):
                self.tell(f"round {number + 1}: {kind}")
                for side in peers.SIDES[kind]:
                    if lack := self.why_not(kind, side):
                        self.lacks[f"{kind} by {side}"] = lack
                        continue
                    if found := self.cell(f"{kind} by {side}", ("cell", "rate"), self.asked(side, kind), Sampled):
                        seen.setdefault(kind, {}).setdefault(side, []).append(found.sample)
        return {kind: {side: tuple(all_) for side, all_ in sides.items()} for kind, sides in seen.items()}

    def paced(self) -> tuple[Pace, ...]:
        """The engine at a fixed rate."""
        if "paced" not in self.plan.cells:
            return ()
        self.tell(f"{self.plan.rate} connects a second")
        asked = self.asked("engine", seconds=self.plan.paced, amount=self.plan.rate)
        found = [self.cell("paced", ("cell", "paced"), asked, Paced) for _ in range(min(self.plan.rounds, _FEW))]
        return tuple(each.pace for each in found if each)

    def agent(self) -> Agent | None:
        """A whole agent, with what its center heard of it."""
        if "agent" not in self.plan.cells:
            return None
        self.tell(f"an agent of {self.plan.rate} lines")
        worked, heard = self._worked(is_profiled=False)
        if worked is None:
            return None
        late = sorted(heard.late_us)
        return msgspec.structs.replace(
            worked.agent,
            ended=heard.ok / self.plan.agent,
            late_p50_us=quantile(late, 0.5),
            late_p99_us=quantile(late, 0.99),
            bad=heard.failed,
        )

    def _worked(self, *, is_profiled: bool) -> tuple[Worked | None, Heard]:
        plan = self.plan
        given, socket = self.directory / "work.json", self.directory / "center.sock"
        given.write_bytes(msgspec.json.encode(Work(lines=plan.rate, heartbeat=plan.agent, target=self.target)))
        with on_core(self.other):
            center = subprocess.Popen(
                module("center", str(socket), str(given)), cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
        assert center.stdout is not None
        try:
            if center.stdout.readline() != "ready\n":
                raise RuntimeError("the benchmark's center did not start")
            asked = self.asked("agent", seconds=plan.agent, amount=plan.rate, is_profiled=is_profiled)
            worked = self.cell("agent", ("role",), msgspec.structs.replace(asked, directory=str(socket)), Worked)
        finally:
            center.terminate()
            said, _ = center.communicate()
        return worked, msgspec.json.decode(said, type=Heard)

    def lab(self) -> tuple[Offset, ...]:
        """Round trips against packets."""
        if "rtt" not in self.plan.cells:
            return ()
        self.tell("round trips against packet stamps")
        cores = (self.prober, self.other)
        found, lack = lab.offsets(self.program, self.directory, cores, self.plan.lab, self.plan.lab_rounds)
        if lack:
            self.lacks["rtt"] = lack
        return found

    def memory(self) -> tuple[Memory | None, Drift | None]:
        """Bytes a line, and growth over a long run."""
        if "memory" not in self.plan.cells:
            return None, None
        self.tell(f"memory, and {self.plan.drift:.0f} s of all kinds at once")
        memory = self.cell("memory", ("cell", "memory"), self.asked("memory", amount=self.plan.lines), Memory)
        return memory, self.cell("memory", ("cell", "drift"), self.asked("drift", seconds=self.plan.drift), Drift)

    def profiles(self, short: Sequence[str]) -> dict[str, Profile]:
        """Of our own cells that fall short, measured once more."""
        found = {name: self._profile(name) for name in short if name in _PROFILED}
        return {name: profile for name, profile in found.items() if profile}

    def _profile(self, name: str) -> Profile | None:
        self.tell(f"profile: {name}")
        if name in _KINDS:
            asked = self.asked("engine", name, is_profiled=True, seconds=self.plan.profiled)
            sampled = self.cell("profile", ("cell", "rate"), asked, Sampled)
            return sampled.profile if sampled else None
        if name == "paced":
            asked = self.asked(name, is_profiled=True, seconds=self.plan.profiled, amount=self.plan.rate)
            paced = self.cell("profile", ("cell", "paced"), asked, Paced)
            return paced.profile if paced else None
        worked, _ = self._worked(is_profiled=True)
        return worked.profile if worked else None


def run(plan: Plan, tell: Callable[[str], None]) -> Results:
    """All that the plan asks for. `tell` hears what is being done."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="reachline-bench-") as name, contextlib.ExitStack() as stack:
        bench = _Bench(plan, Path(name), tell)
        _start(bench, stack)
        rates = bench.rates()
        paced, agent = bench.paced(), bench.agent()
        offsets = bench.lab()
        memory, drift = bench.memory()
        found = Results(
            machine=machine(), run=Run(rounds=plan.rounds, seconds=plan.seconds, is_crowded=bench.prober == bench.other), peers=bench.peers, rates=rates,
            paced=paced, agent=agent, lab=offsets, memory=memory, drift=drift, lacks=bench.lacks,
        )  # fmt: skip
        short = dict.fromkeys(row.cell for row in verdicts(found) if row.state == "falls short")
        profiles = bench.profiles(tuple(short))
    taken = msgspec.structs.replace(found.run, took=time.monotonic() - began)
    return msgspec.structs.replace(found, profiles=profiles, run=taken)


def _start(bench: _Bench, stack: contextlib.ExitStack) -> None:
    """Targets, and the exporter where a cell wants it."""
    target = stack.enter_context(served(bench.program, bench.other))
    port = 0
    if {"tls", "memory"} & set(bench.plan.cells):
        port, bench.lacks["tls"] = stack.enter_context(tls_served(bench.directory / "tls", bench.other))
        if port:
            del bench.lacks["tls"]
    bench.target = msgspec.structs.replace(target, tls=port)
    if not bench.peers["blackbox"].lack and set(_KINDS) & set(bench.plan.cells):
        bench.exporter = stack.enter_context(exporter.exporting(bench.directory, bench.prober))
