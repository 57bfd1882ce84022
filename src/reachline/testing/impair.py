"""A bad network for tests, in user space: delay, jitter, loss, burst loss, rate, black hole, for each address its own.

Two TUN devices joined by one process of ours; the far one lives in a namespace and answers for 254 addresses, so that each
address is a line with its own profile, which can be changed while it runs. Needs root and /dev/net/tun, else the calling test
is skipped by name. IPv4 only. Packets are released 30 to 70 us late (p50), 0.1 to 0.9 ms at the 99th percentile.

    with impaired({7: Profile(delay=0.010), 8: Profile(hole=True)}) as box:
        probe(f"tcp://{box.address(7)}:80")
        box.change(7, Profile(loss=0.1))
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from unittest import SkipTest

from reachline.model import Ratio, Seconds
from reachline.testing.parts import require_namespaces

__all__ = ["Bottle", "Box", "Profile", "impaired"]

_TUNSETIFF: Final = 0x400454CA
_TUN_WITHOUT_HEADER: Final = 0x1001
"""IFF_TUN | IFF_NO_PI (linux/if_tun.h)."""
_PR_SET_TIMERSLACK: Final = 29
_MTU: Final = 2048
_BATCH: Final = 64
"""Packets taken from one device before the others get their turn."""
_SOURCE_BYTE, _TARGET_BYTE = 15, 19
"""Where the last byte of an IPv4 address stands in a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one address's packets suffer, each way."""

    delay: Seconds = 0.0
    jitter: Seconds = 0.0
    """Delay moves by up to this, either way; packets keep their order."""
    loss: Ratio = 0.0
    burst: tuple[Ratio, Ratio, Ratio] | None = None
    """Gilbert-Elliott: from good to bad, from bad to good, loss while bad."""
    rate: float = 0.0
    """Bytes a second, with an endless queue; 0: no bound."""
    hole: bool = False


@dataclass(slots=True)
class _Way:
    """One address, one direction. Written by the bottle."""

    bad: bool = False
    free: float = 0.0
    last: float = 0.0


@dataclass(slots=True)
class _Line:
    profile: Profile
    ways: tuple[_Way, _Way] = field(default_factory=lambda: (_Way(), _Way()))


class Held(NamedTuple):
    """A packet on its way: due, in order of arrival, to the near side or not."""

    due: Seconds
    order: int
    near: bool
    packet: bytes


class Bottle:
    """Packets in, packets out later or never. Knows no device and no clock."""

    def __init__(self, profiles: Mapping[int, Profile], default: Profile, rng: random.Random) -> None:
        self._lines = [_Line(profiles.get(number, default)) for number in range(256)]
        self._rng = rng
        self._held: list[Held] = []
        self._count = 0
        self.dropped = 0

    def change(self, number: int, profile: Profile) -> None:
        """From now on; packets under way keep their time."""
        self._lines[number].profile = profile

    def take(self, packet: bytes, *, near: bool, now: Seconds) -> None:
        """A packet for the near side (else the far one) came out of a device."""
        if len(packet) < 20 or packet[0] >> 4 != 4:
            return
        line = self._lines[packet[_SOURCE_BYTE if near else _TARGET_BYTE]]
        way = line.ways[near]
        if self._is_lost(line.profile, way):
            self.dropped += 1
            return
        self._count += 1
        heapq.heappush(self._held, Held(self._due(line.profile, way, len(packet), now), self._count, near, packet))

    def next_due(self) -> Seconds | None:
        """When the next packet leaves."""
        return self._held[0].due if self._held else None

    def release(self, now: Seconds) -> Iterator[Held]:
        """Packets that are due, in order."""
        while self._held and self._held[0].due <= now:
            yield heapq.heappop(self._held)

    def _is_lost(self, profile: Profile, way: _Way) -> bool:
        if profile.hole or (profile.loss and self._rng.random() < profile.loss):
            return True
        if profile.burst is None:
            return False
        worsen, mend, loss = profile.burst
        way.bad = self._rng.random() >= mend if way.bad else self._rng.random() < worsen
        return way.bad and self._rng.random() < loss

    def _due(self, profile: Profile, way: _Way, size: int, now: Seconds) -> Seconds:
        if profile.rate:
            now = way.free = max(now, way.free) + size / profile.rate
        due = now + profile.delay
        if profile.jitter:
            due += profile.jitter * self._rng.uniform(-1.0, 1.0)
        way.last = max(due, way.last)
        return way.last


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A running impairment: `near` is our address, `address(n)` that of line n in the namespace."""

    namespace: str
    device: str
    network: str
    process: subprocess.Popen[str]

    @property
    def near(self) -> str:
        return f"{self.network}.0.1"

    def address(self, number: int) -> str:
        """The address whose profile is `number`, 1…254."""
        return f"{self.network}.1.{number}"

    def change(self, number: int, profile: Profile) -> None:
        """Another profile for one address; in force when this returns."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({str(number): asdict(profile)}) + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "changed\n":
            raise RuntimeError("the impairment box has ended")

    def inside(self, *command: str) -> tuple[str, ...]:
        """`command` as it runs in the namespace of the addresses."""
        return ("ip", "netns", "exec", self.namespace, *command)


@contextlib.contextmanager
def impaired(profiles: Mapping[int, Profile], *, default: Profile = Profile(), seed: int = 1) -> Iterator[Box]:
    """A namespace behind a bad network, gone when the block is left."""
    require_namespaces()
    if not Path("/dev/net/tun").exists():
        raise SkipTest("this machine has no /dev/net/tun")
    tag = f"{os.getpid() % 10_000}{os.urandom(1).hex()}"
    names = (f"rlA{tag}", f"rlB{tag}")
    network = f"10.{100 + os.getpid() % 90}"
    spec = {str(number): asdict(profile) for number, profile in ({-1: default} | dict(profiles)).items()}
    command = [sys.executable, "-m", __name__, *names, json.dumps(spec), str(seed)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SkipTest("TUN devices cannot be made here")
        for step in _wiring(names, f"rl-{tag}", network):
            subprocess.run(step, check=True, capture_output=True, text=True)
        yield Box(namespace=f"rl-{tag}", device=names[0], network=network, process=process)
    finally:
        process.terminate()
        process.communicate()
        subprocess.run(["ip", "netns", "del", f"rl-{tag}"], capture_output=True, check=False)


def _wiring(names: tuple[str, str], namespace: str, network: str) -> Iterator[tuple[str, ...]]:
    near, far = names
    yield ("ip", "netns", "add", namespace)
    yield ("ip", "link", "set", far, "netns", namespace)
    yield ("ip", "addr", "add", f"{network}.0.1/16", "dev", near)
    yield ("ip", "link", "set", near, "up", "txqueuelen", "10000")
    yield ("ip", "-n", namespace, "addr", "add", f"{network}.1.1/16", "dev", far)
    yield ("ip", "-n", namespace, "link", "set", far, "up", "txqueuelen", "10000")
    yield ("ip", "-n", namespace, "link", "set", "lo", "up")
    yield ("ip", "-n", namespace, "route", "add", "local", f"{network}.1.0/24", "dev", "lo")


def _tun(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
    return fd


def _read_profile(raw: Mapping[str, object]) -> Profile:
    burst = raw.get("burst")
    return Profile(**{**raw, "burst": tuple(burst) if isinstance(burst, list) else None})  # type: ignore[arg-type]


def _run(near: int, far: int, bottle: Bottle) -> None:
    """Carry packets until standard input ends; each line there changes profiles."""
    inlet = sys.stdin.fileno()
    while True:
        due = bottle.next_due()
        wait = None if due is None else max(0.0, due - time.monotonic())
        readable = select.select((near, far, inlet), (), (), wait)[0]
        for fd in readable:
            if fd != inlet:
                _drain(fd, bottle, near=fd == far)
            elif not _obey(bottle):
                return
        for held in bottle.release(time.monotonic()):
            with contextlib.suppress(OSError):  # a full queue is a loss too
                os.write(near if held.near else far, held.packet)


def _drain(fd: int, bottle: Bottle, *, near: bool) -> None:
    for _ in range(_BATCH):
        try:
            packet = os.read(fd, _MTU)
        except OSError:
            return  # nothing more, or the device is not up yet
        bottle.take(packet, near=near, now=time.monotonic())


def _obey(bottle: Bottle) -> bool:
    line = sys.stdin.readline()
    for number, raw in json.loads(line or "{}").items():
        bottle.change(int(number), _read_profile(raw))
    if line:
        print("changed", flush=True)
    return bool(line)


def main() -> None:
    """The box's own process: names of the devices, profiles as JSON, seed."""
    near_name, far_name, spec, seed = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    profiles = {int(number): _read_profile(raw) for number, raw in json.loads(spec).items()}
    bottle = Bottle(profiles, profiles.pop(-1), random.Random(int(seed)))
    try:
        near, far = _tun(near_name), _tun(far_name)
    except OSError as error:
        print(error)
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    print("ready", flush=True)
    _run(near, far, bottle)


if __name__ == "__main__":
    main()
