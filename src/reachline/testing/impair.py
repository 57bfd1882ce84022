"""A bad network for tests, in user space: delay, jitter, loss, burst loss, rate, black hole, and black-holed flow buckets.

Two TUN devices joined by one process of ours; the far one lives in a namespace and answers for 254 addresses of each family, so
that each address is a line with its own profile (`reachline.testing.bottle`), each way apart, changed while it runs. The box
counts what it carried and dropped. Needs root and /dev/net/tun, else the calling test is skipped by name. Packets are released
30 to 70 us late (p50), 0.1 to 0.9 ms at the 99th percentile.

    with impaired({7: Profile(delay=0.010), 8: Ways(forward=Profile(loss=0.02))}) as box:
        probe(f"tcp://{box.address(7)}:80")
        probe(f"tcp://[{box.address(8, family=6)}]:80")
        box.change(7, Profile(hole=True))
        assert box.counted(7).forward.syns_dropped == 0
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from unittest import SkipTest

from reachline.model import Seconds
from reachline.testing.bottle import Bottle, By, Counted, Profile, Tally, Ways, both, bucket
from reachline.testing.parts import require_namespaces

__all__ = ["CALM", "Bottle", "Box", "By", "Counted", "Profile", "Tally", "Ways", "bucket", "impaired", "require_box"]

_DEVICE: Final = "/dev/net/tun"
_TUNSETIFF: Final = 0x400454CA
_TUN_WITHOUT_HEADER: Final = 0x1001
"""IFF_TUN | IFF_NO_PI (linux/if_tun.h)."""
_PR_SET_TIMERSLACK: Final = 29
_MTU: Final = 2048
_BATCH: Final = 64
"""Packets taken from one device before the others get their turn."""
_NETWORKS: Final = 90 * 128
"""Networks of two times 256 addresses in 10.100.0.0 to 10.189.255.255: one for each box of this machine, and so many that hardly
one is used twice. A connection to the last box there, whose end was never acknowledged, repeats itself for minutes.
"""
_TRIES: Final = 64
"""Networks looked at for one that is free."""
CALM: Final = Profile()
"""A wire."""
_DEFAULT: Final = -1
"""Among profiles: that of every address without its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A running bad network: `near` is our address, `address(n)` that of line n in the namespace."""

    namespace: str
    device: str
    network: int
    process: subprocess.Popen[str]

    @property
    def near(self) -> str:
        return self.near_of(4)

    def near_of(self, family: int) -> str:
        """Our own address towards the lines; skips the calling test by name where the machine has not the family."""
        _require_family(family)
        return f"{_half(self.network, 0)}.1" if family == 4 else f"fd52:4c:{self.network:x}::1"

    def address(self, number: int, *, family: int = 4) -> str:
        """The address whose profile is `number`, 1…254; skips the calling test where the machine has not the family."""
        _require_family(family)
        return f"{_half(self.network, 1)}.{number}" if family == 4 else f"fd52:4c:{self.network:x}:1::{number:x}"

    def change(self, number: int, profile: Profile | Ways) -> None:
        """Another profile for one address, both its families; in force when this returns."""
        self._ask({"change": {str(number): asdict(both(profile))}})

    def counted(self, number: int) -> Counted:
        """What the address carried and lost since the box began."""
        forward, reverse, hurt = self._ask({"counted": number})
        return Counted(Tally(*forward), Tally(*reverse), frozenset(hurt))

    def inside(self, *command: str) -> tuple[str, ...]:
        """`command` as it runs in the namespace of the addresses."""
        return ("ip", "netns", "exec", self.namespace, *command)

    def _ask(self, request: Mapping[str, object]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the impairment box has ended")
        return json.loads(answer)


def require_box() -> None:
    """Skips the calling test by name where the box cannot run."""
    require_namespaces()
    try:
        os.close(os.open(_DEVICE, os.O_RDWR))
    except OSError as error:
        raise SkipTest(f"{_DEVICE} cannot be opened here: {error.strerror}") from error


@contextlib.contextmanager
def impaired(profiles: Mapping[int, Profile | Ways], *, default: Profile | Ways = CALM, seed: int = 1) -> Iterator[Box]:
    """A namespace behind a bad network, gone when the block is left. The same `seed` is the same luck for each line."""
    require_box()
    tag = f"{os.getpid() % 10_000}{os.urandom(2).hex()}"
    names, namespace = (f"rlA{tag}", f"rlB{tag}"), f"rl-{tag}"
    spec = {str(number): asdict(both(profile)) for number, profile in ({_DEFAULT: default} | dict(profiles)).items()}
    command = [sys.executable, "-m", __name__, *names, json.dumps(spec), str(seed)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with _claimed() as network:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        try:
            assert process.stdout is not None
            if (said := process.stdout.readline()) != "ready\n":
                raise SkipTest(f"TUN devices cannot be made here: {said.strip()}")
            for step in _wiring(names, namespace, network):
                subprocess.run(step, check=True, capture_output=True, text=True)
            yield Box(namespace=namespace, device=names[0], network=network, process=process)
        finally:
            process.terminate()
            process.communicate()
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


@contextlib.contextmanager
def _claimed() -> Iterator[int]:
    """A network that no other box of this machine has; an abstract Unix socket holds it, and goes with its process."""
    first = int.from_bytes(os.urandom(4), "big")
    for number in (at % _NETWORKS for at in range(first, first + _TRIES)):
        with socket.socket(socket.AF_UNIX) as claim:
            try:
                claim.bind(f"\0reachline-impair-{number}")
            except OSError:
                continue
            yield number
            return
    raise SkipTest(f"{_TRIES} networks of impairment boxes are taken")


def _half(network: int, half: int) -> str:
    """The first three bytes of IPv4 addresses: half 0 is the near side, half 1 the lines."""
    return f"10.{100 + network // 128}.{network % 128 * 2 + half}"


def _has_ipv6() -> bool:
    switch = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
    return switch.exists() and switch.read_text().strip() == "0"


def _require_family(family: int) -> None:
    if family == 6 and not _has_ipv6():
        raise SkipTest("this machine has no IPv6")


def _wiring(names: tuple[str, str], namespace: str, network: int) -> Iterator[tuple[str, ...]]:
    near, far = names
    inside = ("ip", "-n", namespace)
    yield ("ip", "netns", "add", namespace)
    yield ("ip", "link", "set", far, "netns", namespace)
    yield ("ip", "addr", "add", f"{_half(network, 0)}.1/23", "dev", near)
    yield (*inside, "addr", "add", f"{_half(network, 1)}.1/23", "dev", far)
    if _has_ipv6():
        yield ("ip", "addr", "add", f"fd52:4c:{network:x}::1/48", "dev", near, "nodad")
        yield (*inside, "addr", "add", f"fd52:4c:{network:x}:1::1/48", "dev", far, "nodad")
    yield ("ip", "link", "set", near, "up", "txqueuelen", "10000")
    yield (*inside, "link", "set", far, "up", "txqueuelen", "10000")
    yield (*inside, "link", "set", "lo", "up")
    yield (*inside, "route", "add", "local", f"{_half(network, 1)}.0/24", "dev", "lo")
    if _has_ipv6():
        yield (*inside, "-6", "route", "add", "local", f"fd52:4c:{network:x}:1::/64", "dev", "lo")


# ------------------------------------------------------------------------------------------------- the box's own process


def _tun(name: str) -> int:
    fd = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
    return fd


def _read_profile(raw: Mapping[str, Any]) -> Profile:
    burst, bad, by = raw["burst"], raw["bad"], raw["by"]
    fields = {"burst": tuple(burst) if burst else None, "bad": tuple(bad), "by": By(by)}
    return Profile(**{**raw, **fields})


def _read_ways(raw: Mapping[str, Any]) -> Ways:
    return Ways(forward=_read_profile(raw["forward"]), reverse=_read_profile(raw["reverse"]))


def _run(near: int, far: int, bottle: Bottle) -> None:
    """Carry packets until standard input ends; each line there is a request."""
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
        _pour(near, far, bottle, time.monotonic())


def _drain(fd: int, bottle: Bottle, *, near: bool) -> None:
    for _ in range(_BATCH):
        try:
            packet = os.read(fd, _MTU)
        except OSError:
            return  # nothing more, or the device is not up yet
        bottle.take(packet, near=near, now=time.monotonic())


def _pour(near: int, far: int, bottle: Bottle, now: Seconds) -> None:
    for held in bottle.release(now):
        try:
            os.write(near if held.near else far, held.packet)
        except OSError:
            bottle.spilled(held)


def _obey(bottle: Bottle) -> bool:
    """Answer one request; whether there was one."""
    if not (line := sys.stdin.readline()):
        return False
    request = json.loads(line)
    for number, raw in request.get("change", {}).items():
        bottle.change(int(number), _read_ways(raw))
    counted = bottle.counted(request.get("counted", 0))
    print(json.dumps([counted.forward, counted.reverse, sorted(counted.hurt)]), flush=True)
    return True


def main() -> None:
    """Names of the devices, profiles as JSON, seed."""
    near_name, far_name, spec, seed = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    profiles = {int(number): _read_ways(raw) for number, raw in json.loads(spec).items()}
    bottle = Bottle(profiles, profiles.pop(_DEFAULT), int(seed))
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
