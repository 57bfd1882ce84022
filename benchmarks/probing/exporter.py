"""blackbox_exporter as a neighbour: how it is run, and a client that asks it for probes as fast as it answers.

The client shares a core with the target, so that the exporter has its own to itself. Its CPU is the kernel's count for its
process, which holds the answers to `/probe` as well: that is how it is used.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from benchmarks.probing.asking import LOOPBACK, Target
from benchmarks.probing.process import on_core
from benchmarks.probing.results import Sample

from reachline.model import Seconds
from reachline.testing import parts
from reachline.testing.wait import eventually

__all__ = ["PROGRAM", "asked", "exporting", "how"]

PROGRAM: Final = "prometheus-blackbox-exporter"
_CLIENTS: Final = 16
"""Connections that ask, each for its next probe once it has the last: it stays busy while each of them waits."""
_MODULES: Final = """modules:
  tcp: {prober: tcp, timeout: 5s, tcp: {preferred_ip_protocol: ip4}}
  http: {prober: http, timeout: 5s, http: {preferred_ip_protocol: ip4}}
  icmp: {prober: icmp, timeout: 5s, icmp: {preferred_ip_protocol: ip4}}
  tls: {prober: tcp, timeout: 5s, tcp: {preferred_ip_protocol: ip4, tls: true, tls_config: {insecure_skip_verify: true}}}
  dns: {prober: dns, timeout: 5s, dns: {preferred_ip_protocol: ip4, query_name: example.test, query_type: A}}
"""
_ENVIRON: Final = {"GOMAXPROCS": "1", "GOGC": "400"}
"""Two threads on one core cost it a quarter of its rate, and a heap this small is collected too often."""
_FLAGS: Final = ("--log.level=error",)
_SUCCESS: Final = b"\nprobe_success 1"
_CHUNK_HEAD: Final = re.compile(rb"\r\n[0-9a-f]+\r\n")
_TICK: Final = os.sysconf("SC_CLK_TCK")
_STAT_UTIME: Final = 11
"""Of the fields after the name in /proc/PID/stat."""


def how() -> str:
    """Flags for the reader."""
    return " ".join([*(f"{name}={value}" for name, value in _ENVIRON.items()), PROGRAM, *_FLAGS])


@contextlib.contextmanager
def exporting(directory: Path, core: int) -> Iterator[tuple[int, int]]:
    """A running exporter: its process and port."""
    config, port = directory / "exporter.yaml", parts.free_port()
    config.write_text(_MODULES)
    command = (PROGRAM, f"--config.file={config}", f"--web.listen-address={LOOPBACK}:{port}", *_FLAGS)
    log = directory / "exporter.log"
    with on_core(core):
        started = parts.started(command, log=log, environ=os.environ | _ENVIRON)
        process = started.__enter__()
    try:
        eventually(lambda: parts.is_open(port), what="blackbox_exporter")
        yield process.pid, port
    finally:
        started.__exit__(None, None, None)


def asked(kind: str, target: Target, seconds: Seconds, *, process: int, port: int, warm_up: Seconds) -> Sample:
    """As many probes as the exporter does, of which the first are not counted."""
    requests = _requests(kind, target)
    poll, clients = select.epoll(), {}
    for _ in range(_CLIENTS):
        sock = socket.create_connection((LOOPBACK, port))
        clients[sock.fileno()] = (sock, bytearray())
        poll.register(sock, select.EPOLLIN)
    for number, (sock, _) in enumerate(clients.values()):
        sock.send(requests[number % len(requests)])
    _exchange(poll, clients, requests, time.perf_counter() + warm_up)
    spent, wall = _cpu_of(process), time.perf_counter()
    count, bad = _exchange(poll, clients, requests, wall + seconds)
    sample = Sample(count=count, bad=bad, cpu=_cpu_of(process) - spent, wall=time.perf_counter() - wall)
    for sock, _ in clients.values():
        sock.close()
    return sample


def _requests(kind: str, target: Target) -> list[bytes]:
    places = [f"{target.address}:{port}" for port in target.ports(kind)]
    if kind == "http":
        places = [f"http://{place}/" for place in places]
    elif kind == "icmp":
        places = [target.address]
    head = "HTTP/1.1\r\nHost: localhost\r\n\r\n"
    return [f"GET /probe?module={kind}&target={quote(place)} {head}".encode() for place in places]


def _exchange(
    poll: select.epoll, clients: dict[int, tuple[socket.socket, bytearray]], requests: list[bytes], until: float
) -> tuple[int, int]:
    """(probes, failed ones) until then; whatever is under way is counted by whoever goes on."""
    count = bad = 0
    while time.perf_counter() < until:
        for fd, _ in poll.poll(1.0):
            sock, answer = clients[fd]
            answer += sock.recv(65_536)
            if not _is_whole(answer):
                continue
            count += 1
            bad += not _is_success(answer)
            answer.clear()
            sock.send(requests[count % len(requests)])
    return count, bad


def _is_success(answer: bytearray) -> bool:
    """The end of a chunk may fall into the word."""
    return _SUCCESS in answer or _SUCCESS in _CHUNK_HEAD.sub(b"", answer)


def _is_whole(answer: bytearray) -> bool:
    head, ended, body = answer.partition(b"\r\n\r\n")
    if not ended:
        return False
    _, found, size = head.partition(b"Content-Length: ")
    return len(body) >= int(size.split(b"\r\n")[0]) if found else body.endswith(b"\r\n0\r\n\r\n")


def _cpu_of(process: int) -> float:
    """User and system seconds of a process, threads that ended included; to 10 ms."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_STAT_UTIME]) + int(fields[_STAT_UTIME + 1])) / _TICK


def version() -> str:
    """What it calls itself; nothing where it is not installed."""
    found = parts.find(PROGRAM)
    if found is None:
        return ""
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return (said.stdout or said.stderr).split(" (", 1)[0].replace(", version", "")
