"""Bytes passed on by `reachline proxy` with an Xray document, beside microsocks in the same run; what open connections take.

Source, proxy and client are processes of their own. Both proxies are measured in turn, so that whatever else the machine does
slows both; what is compared are the rounds, each with itself.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from reachline.net import kernel
from reachline.testing import proxies
from reachline.testing.bench import Figure, finish
from reachline.testing.parts import find, free_port

__all__ = ["figures"]

SIZE = 256 << 20
"""Bytes of one download: a tenth of a second at the least."""
ROUNDS = 7
OPEN = 5_000
_SOURCE = """
import selectors, socket, sys
size, room = int(sys.argv[1]), bytes(1 << 20)
listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
print(listener.getsockname()[1], flush=True)
kept = []
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
known = selectors.DefaultSelector()
known.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in known.select():
        if key.fileobj is listener:
            known.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        wanted = key.fileobj.recv(1)
        left = size if wanted == b"d" else 0
        while left:
            left -= key.fileobj.send(room[:left])
        if wanted != b"p":
            known.unregister(key.fileobj)
            key.fileobj.close()
        else:
            key.fileobj.sendall(b"p")
"""


def _reached(door: int, port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", door))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(b"\x05\x01\x00")
    assert sock.recv(2) == b"\x05\x00"
    sock.sendall(b"\x05\x01\x00\x01\x7f\x00\x00\x01" + port.to_bytes(2))
    assert sock.recv(10)[1] == 0
    return sock


def _download(door: int, port: int) -> float:
    """MB/s."""
    room = bytearray(1 << 20)
    with _reached(door, port) as sock:
        began = time.perf_counter()
        sock.sendall(b"d")
        left = SIZE
        while left and (size := sock.recv_into(room)):
            left -= size
        took = time.perf_counter() - began
    assert not left
    return SIZE / took / 1e6


def _answers(door: int, port: int) -> float:
    """Microseconds from a byte sent to the one that answers it, the middle of many."""
    took = []
    with _reached(door, port) as sock:
        for _ in range(2_000):
            began = time.perf_counter_ns()
            sock.sendall(b"p")
            sock.recv(1)
            took.append(time.perf_counter_ns() - began)
    return statistics.median(took) / 1e3


@contextmanager
def _source() -> Iterator[int]:
    process = subprocess.Popen((sys.executable, "-c", _SOURCE, str(SIZE)), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


@contextmanager
def _ours(directory: Path) -> Iterator[tuple[int, int]]:
    """Port and process id."""
    port = free_port()
    document = {
        "inbounds": [{"tag": "in", "protocol": "socks", "listen": "127.0.0.1", "port": port}],
        "outbounds": [{"tag": "direct", "protocol": "freedom"}],
    }
    file = directory / "xray.json"
    file.write_text(json.dumps(document))
    command = (sys.executable, "-m", "reachline", "proxy", str(file), "--grace", "0", "--log-level", "error")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("reachline proxy: ")
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def _memory(pid: int) -> float:
    """MB that a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) * 1024 / 1e6


def _figure(what: str, unit: str, values: list[float], bound: str = "") -> Figure:
    return Figure(what, unit, statistics.median(values), min(values), max(values), len(values), bound)


def figures() -> list[Figure]:
    """Rows for a table. Without microsocks there is nothing to compare with, and its rows are missing."""
    kernel.raise_file_limit()
    found = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = stack.enter_context(_source())
        door, pid = stack.enter_context(_ours(directory))
        doors = {"ours": door}
        if find("microsocks"):
            doors["microsocks"] = stack.enter_context(proxies.microsocks(directory)).port
        else:
            print("no microsocks: its rows are missing")
        rates: dict[str, list[float]] = {name: [] for name in doors}
        waits: dict[str, list[float]] = {name: [] for name in doors}
        for number in range(ROUNDS + 1):
            for name, each in doors.items():
                rate, wait = _download(each, port), _answers(each, port)
                if number:
                    rates[name].append(rate)
                    waits[name].append(wait)
        for name in doors:
            found.append(_figure(f"passed on by {name}", "MB/s", rates[name]))
            found.append(_figure(f"a byte there and back, {name}", "µs", waits[name]))
        if "microsocks" in doors:
            ratios = [ours / theirs for ours, theirs in zip(rates["ours"], rates["microsocks"], strict=True)]
            found.append(_figure("ours of microsocks", "×", ratios, "≥ 0.75, goal 1"))
        empty = _memory(pid)
        opened = [stack.enter_context(_reached(door, port)) for _ in range(OPEN)]
        for sock in opened:
            sock.sendall(b"p")
        for sock in opened:
            assert sock.recv(1) == b"p"
        full = _memory(pid)
        found.append(_figure(f"{OPEN} open connections", "MB", [full], "≤ 300, goal 150"))
        found.append(_figure("  each", "kB", [(full - empty) * 1_000 / OPEN]))
    return found


if __name__ == "__main__":
    finish("door_splice", figures())
