"""Real parts for tests: Debian's nginx, dnsmasq, redis, tcpdump, Chromium, and veth pairs in namespaces of our own.

A part that this machine lacks skips the test by name, with the reason. Everything started here listens on loopback (or in its
own namespace), lives in a directory the test gives, and is ended by its process id.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import SkipTest

from reachline.model import Seconds
from reachline.testing.wait import eventually

__all__ = [
    "CHROMIUM_FLAGS",
    "PACKAGES",
    "Running",
    "Veth",
    "captured",
    "chromium",
    "dnsmasq",
    "find",
    "free_port",
    "is_open",
    "nginx",
    "redis",
    "require",
    "require_namespaces",
    "served",
    "started",
    "veth",
]

PACKAGES: Final[Mapping[str, str]] = {
    "chromium": "chromium",
    "danted": "dante-server",
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    "microsocks": "microsocks",
    "nginx": "nginx-light",
    "redis-server": "redis-server",
    "squid": "squid",
    "tc": "iproute2",
    "tcpdump": "tcpdump",
    "tinyproxy": "tinyproxy",
    "unbound": "unbound",
}
"""Program and the Debian package that brings it; `requirements/debian.txt` lists the same packages."""

CHROMIUM_FLAGS: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
)
"""Headless as root, and silent: nothing leaves the machine."""

_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where Debian keeps daemons; an ordinary user's PATH lacks it."""

READY: Final[Seconds] = 30.0
"""Every part answers within 0.2 s on an idle machine; this is for a busy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A part that answers on `host:port`."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Veth:
    """A wire of two ends: `near` in this namespace, `far` inside `namespace`."""

    namespace: str
    near_name: str
    near: str
    far_name: str
    far: str

    def inside(self, *command: str) -> tuple[str, ...]:
        """`command` as it runs inside the far namespace."""
        return ("ip", "netns", "exec", self.namespace, *command)


def find(program: str) -> str | None:
    """The program's path, or None."""
    return shutil.which(program) or shutil.which(program, path=_SYSTEM_PATH)


def require(program: str) -> str:
    """The program's path; skips the calling test by name where it is not installed."""
    found = find(program)
    if found is None:
        package = PACKAGES.get(program, program)
        raise SkipTest(f"{program} is not installed (Debian: apt-get install {package})")
    return found


@functools.cache
def _namespace_lack() -> str:
    """Why this process cannot make network namespaces, or nothing."""
    ip = find("ip")
    if ip is None:
        return "ip is not installed (Debian: apt-get install iproute2)"
    name = f"rl-try-{os.getpid()}"
    made = subprocess.run([ip, "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    subprocess.run([ip, "netns", "del", name], capture_output=True, check=False)
    return ""


def require_namespaces() -> None:
    """Skips the calling test by name where network namespaces cannot be made (no root, a strict container)."""
    if lack := _namespace_lack():
        raise SkipTest(lack)


_PORTS: Final[Iterator[int]] = iter(
    [*range(start := 20_000 + os.getpid() * 40 % 10_000, 32_000), *range(20_000, start)]
)
"""Handed out once in this process; two processes that test side by side begin 40 apart."""


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port on 127.0.0.1 that is free now, under the range the kernel gives to outgoing connections; another each time."""
    for port in _PORTS:
        with socket.socket(socket.AF_INET, kind) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SkipTest("no free port under 32000")


def is_open(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something accepts TCP there now."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def started(
    command: Sequence[str], *, log: Path, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of our own in its own session, output in `log`; asked to end on leaving, killed after five seconds."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def served(command: Sequence[str], *, port: int, log: Path) -> Iterator[Running]:
    """`command` running and accepting TCP on 127.0.0.1:`port`; RuntimeError with its last words where it ends instead."""
    with started(command, log=log) as process:
        eventually(lambda: _is_up(process, port, log), within=READY, what=f"{command[0]} on port {port}")
        yield Running(process=process, host="127.0.0.1", port=port, log=log)


def _is_up(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(
            f"{process.args!r} ended with {process.returncode}: {log.read_text(errors='replace')[-500:]}"
        )
    return is_open(port)


_NGINX: Final = """
daemon off; worker_processes 1; pid nginx.pid; error_log stderr; {user}
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server {{ listen 127.0.0.1:{port}{tls}; {server} }}
}}
"""


@contextlib.contextmanager
def nginx(
    directory: Path,
    *,
    server: str = "location / { return 200 'ok'; }",
    certificate: tuple[Path, Path] | None = None,
    http2: bool = False,
) -> Iterator[Running]:
    """nginx with one server block; `certificate` is (chain, key) and turns TLS on. `http2`: without TLS it speaks nothing else."""
    program, port = require("nginx"), free_port()
    lines = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};" if certificate else ""
    text = _NGINX.format(
        user="user root;" if os.geteuid() == 0 else "",
        port=port,
        tls=(" ssl" if certificate else "") + (" http2" if http2 else ""),
        server=lines + server,
    )
    (directory / "nginx.conf").write_text(text)
    command = (program, "-e", "stderr", "-p", str(directory), "-c", "nginx.conf")
    with served(command, port=port, log=directory / "nginx.log") as running:
        yield running


@contextlib.contextmanager
def dnsmasq(directory: Path, *, records: Mapping[str, str]) -> Iterator[Running]:
    """dnsmasq on loopback, UDP and TCP, that answers `records` (name to address) and nothing else."""
    program, port = require("dnsmasq"), free_port()
    alone = ("-k", "-z", "-R", "-h", "-C", "/dev/null", "-x", str(directory / "dnsmasq.pid"))
    user = ("--user=root",) if os.geteuid() == 0 else ()
    hosts = tuple(f"--host-record={name},{address}" for name, address in records.items())
    command = (program, *alone, "-p", str(port), "-a", "127.0.0.1", *user, *hosts)
    with served(command, port=port, log=directory / "dnsmasq.log") as running:
        yield running


@contextlib.contextmanager
def redis(directory: Path, *options: str) -> Iterator[Running]:
    """An empty redis on loopback that keeps nothing; further options as on its command line."""
    program, port = require("redis-server"), free_port()
    options = ("--save", "", "--appendonly", "no", "--dir", str(directory), *options)
    command = (program, "--port", str(port), "--bind", "127.0.0.1", *options)
    with served(command, port=port, log=directory / "redis.log") as running:
        yield running


def chromium() -> str:
    """Debian's Chromium for playwright's `executable_path`; start it with `CHROMIUM_FLAGS`."""
    return require("chromium")


@contextlib.contextmanager
def captured(interface: str, expression: str, *, file: Path) -> Iterator[Path]:
    """tcpdump of `expression` on `interface` into `file` (pcap, nanoseconds); complete once the block is left."""
    program = require("tcpdump")
    if os.geteuid() != 0:
        raise SkipTest("capturing packets needs root")
    log = file.with_suffix(".log")
    precise = ("--time-stamp-precision=nano", "--immediate-mode", "-U", "-n")
    with started((program, *precise, "-i", interface, "-w", str(file), expression), log=log):
        eventually(lambda: "listening on" in log.read_text(errors="replace"), within=READY, what="tcpdump to listen")
        yield file


@contextlib.contextmanager
def veth(*, delay: str = "") -> Iterator[Veth]:
    """A new namespace behind a veth pair, gone when the block is left.

    `delay` (`5ms`) is laid on the far end by tc netem; a kernel without it skips the calling test.
    """
    require_namespaces()
    tag = f"{os.getpid() % 10_000}{os.urandom(2).hex()}"
    network = f"10.{200 + os.getpid() % 50}.{int(tag[-2:], 16)}"
    wire = Veth(
        namespace=f"rl-{tag}", near_name=f"rn{tag}", near=f"{network}.1", far_name=f"rf{tag}", far=f"{network}.2"
    )
    try:
        for command in _wiring(wire):
            subprocess.run(command, check=True, capture_output=True, text=True)
        if delay:
            _slow(wire, delay)
        yield wire
    finally:
        subprocess.run(["ip", "link", "del", wire.near_name], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", wire.namespace], capture_output=True, check=False)


def _wiring(wire: Veth) -> Iterator[tuple[str, ...]]:
    yield ("ip", "netns", "add", wire.namespace)
    yield ("ip", "link", "add", wire.near_name, "type", "veth", "peer", "name", wire.far_name, "netns", wire.namespace)
    yield ("ip", "addr", "add", f"{wire.near}/24", "dev", wire.near_name)
    yield ("ip", "link", "set", wire.near_name, "up")
    yield wire.inside("ip", "addr", "add", f"{wire.far}/24", "dev", wire.far_name)
    yield wire.inside("ip", "link", "set", wire.far_name, "up")
    yield wire.inside("ip", "link", "set", "lo", "up")


def _slow(wire: Veth, delay: str) -> None:
    """Lays `delay` on the far end; skips the calling test where the kernel has no netem."""
    command = wire.inside("tc", "qdisc", "add", "dev", wire.far_name, "root", "netem", "delay", delay)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SkipTest(f"this kernel cannot delay packets (tc netem): {done.stderr.strip()}")
