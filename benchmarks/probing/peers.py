"""Who we are compared with: loops in C, compiled here, and fping. Each says how it was run; one that is missing says so by name."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from benchmarks.probing import exporter
from benchmarks.probing.asking import Target
from benchmarks.probing.ours import WINDOW
from benchmarks.probing.process import ROOT
from benchmarks.probing.results import Peer, Sample

from reachline.model import Seconds

__all__ = ["PROGRAMS", "SIDES", "built", "c_loop", "found", "fping"]

SIDES: Final[Mapping[str, tuple[str, ...]]] = {
    "tcp": ("engine", "c", "blackbox", "python"),
    "http": ("engine", "c", "blackbox", "python"),
    "icmp": ("engine", "c", "blackbox", "fping", "python"),
    "dns": ("engine", "c", "blackbox", "python"),
    "tls": ("engine", "blackbox", "python"),
}
"""Who does which kind, in the order of a round."""
PROGRAMS: Final[Mapping[str, str]] = {"tcp": "stream", "http": "stream", "icmp": "echo", "dns": "query"}
_SOURCES: Final = ROOT / "benchmarks" / "peers"
_COMPILED: Final = ("stream", "echo", "query", "target")
_FLAGS: Final = ("-O2", "-Wall", "-Wextra")
_ADDRESSES: Final = 250
"""Of 127.0.0.0/24: fping's figures are of many targets, its loop waits a millisecond between two packets to one."""
_FPING: Final = ("-q", "-i", "0", "-p", "1", "-t", "500")
_PINGS: Final = 60_000
"""Of one run, about a second: fping is asked for a number, not for a time, and gives up at 65 536 within ten seconds."""
_SHORT: Final = 2
"""Packets to each target in the run that is taken off: starting up and sorting addresses is not probing."""


def found(directory: Path) -> dict[str, Peer]:
    """Each peer as it can be run here; the C programs are compiled into `directory`."""
    lack = built(directory)
    compiler = "" if lack else _first_line("cc", "--version")
    exports, pings = exporter.version(), _first_line("fping", "--version").removeprefix("fping: ")
    return {
        "engine": Peer(title="Reachline's engine", how="results recorded, windows read, timeouts of 1 s + 3 s"),
        "c": Peer(title="C loop", how="" if lack else f"{compiler}, {' '.join(_FLAGS)}, {WINDOW} in flight", lack=lack),
        "blackbox": _peer(exports, exporter.how(), exporter.PROGRAM, "blackbox_exporter"),
        "fping": _peer(f"fping {pings.split()[-1]}" if pings else "", f"fping {' '.join(_FPING)}", "fping", "fping"),
        "python": Peer(
            title="bare loop in Python", how=f"Python {platform.python_version()}, no timeouts, no statistics"
        ),
    }


def _peer(version: str, how: str, package: str, name: str) -> Peer:
    if version:
        return Peer(title=version, how=how)
    return Peer(title=name, lack=f"{name} is not installed (Debian: apt-get install {package})")


def built(directory: Path) -> str:
    """Compiles the C programs; why that cannot be, or nothing."""
    if shutil.which("cc") is None:
        return "gcc is not installed (Debian: apt-get install gcc libc6-dev)"
    for name in _COMPILED:
        command = ("cc", *_FLAGS, "-o", str(directory / name), str(_SOURCES / f"{name}.c"))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{name}.c does not compile here: {done.stderr.strip().splitlines()[0]}"
    return ""


def c_loop(kind: str, directory: Path, target: Target, seconds: Seconds) -> Sample:
    """One run of a C loop on the core this process is on."""
    program = directory / PROGRAMS[kind]
    length, window, ports = f"{seconds:g}", str(WINDOW), tuple(map(str, target.ports(kind)))
    words = {
        "stream": (kind, length, window, target.address, *ports),
        "query": (length, window, target.address, *ports),
        "echo": (length, window, target.address),
    }[program.name]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True, timeout=seconds + 10)
    return msgspec.json.decode(done.stdout, type=Sample)


def fping(seconds: Seconds) -> Sample:
    """Runs of fping on the core this process is on, of a second each, the start-up of every one taken off."""
    runs = [_less(_fping(_PINGS // _ADDRESSES), _fping(_SHORT)) for _ in range(max(1, round(seconds)))]
    return Sample(
        count=sum(run.count for run in runs),
        bad=sum(run.bad for run in runs),
        cpu=sum(run.cpu for run in runs),
        wall=sum(run.wall for run in runs),
    )


def _less(long: Sample, short: Sample) -> Sample:
    return Sample(count=long.count - short.count, bad=long.bad, cpu=long.cpu - short.cpu, wall=long.wall - short.wall)


def _fping(count: int) -> Sample:
    targets = [f"127.0.0.{number}" for number in range(1, _ADDRESSES + 1)]
    began = time.perf_counter()
    process = subprocess.Popen(
        ["fping", *_FPING, "-c", str(count), *targets], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process.stderr as told:
        said = told.readlines()
    answered = sum(int(line.split("=")[1].split("/")[1]) for line in said if "xmt/rcv" in line)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if not answered:
        raise RuntimeError(f"fping measured nothing: {''.join(said[-1:]).strip() or process.returncode}")
    sent = count * _ADDRESSES
    return Sample(count=sent, bad=sent - answered, cpu=used.ru_utime + used.ru_stime, wall=time.perf_counter() - began)


def _first_line(*command: str) -> str:
    """Nothing where there is no such program."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[0]
