"""The observatory door at the size of its largest users: what observing, answering, choosing and passing on cost.

    make bench-door                        the table below, and benchmarks/results/door.json
    make bench-door ARGS=--write-docs      and docs/benchmarks/door.md anew
    make bench-door ARGS=--short           without the connection path, which takes a minute

The role is a process of its own, as people start it; the proxies of all its outbounds are one other process, which says yes and 204.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import grpc

from benchmarks import door_splice
from reachline.core.observing import Result
from reachline.doors.observatory import machines, read
from reachline.net import kernel
from reachline.testing.bench import Figure, finish
from reachline.testing.parts import free_port
from reachline.wire.observatory import GET_OUTBOUND_STATUS

OUTBOUNDS = 5_000
AMONG = 1_000
PERIOD = 60.0
"""Seconds: one scheduled request by each outbound."""
READS = 50
PICKS = 20_000
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "door.md"
MS = 1_000_000
_PROXY = """
import asyncio, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
class Said(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        is_tunnel = data.startswith(b"CONNECT")
        self.transport.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n" if is_tunnel else b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
async def main():
    server = await asyncio.get_running_loop().create_server(Said, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def _document(number: int, proxy: int, **more: object) -> dict[str, object]:
    return {
        "outbounds": [
            {"tag": f"p-{each}", "protocol": "http", "settings": {"servers": [{"address": "127.0.0.1", "port": proxy}]}}
            for each in range(number)
        ],
        "observatory": {
            "subjectSelector": ["p-"],
            "probeURL": "http://127.0.0.1:9/",
            "probeInterval": f"{PERIOD:.0f}s",
            "enableConcurrency": True,
        },
        "routing": {"balancers": [{"tag": "b", "selector": ["p-"], "strategy": {"type": "leastLoad"}}]},
        **more,
    }


@contextmanager
def _started(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and its first line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.terminate()
        process.wait()


def _used(pid: int) -> float:
    """Seconds of processor time so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _page(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/vars", timeout=60) as answer:
        found: bytes = answer.read()
        return found


def _timed(read: Callable[[], object]) -> list[float]:
    """Milliseconds of each read; they are spread over a second of probes each."""
    took = []
    for _ in range(READS):
        began = time.perf_counter()
        read()
        took.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.2)
    return took


def _figure(what: str, unit: str, values: list[float], bound: str = "") -> Figure:
    return Figure(what, unit, statistics.median(values), min(values), max(values), len(values), bound)


def _role(directory: Path) -> Iterator[Figure]:
    """What it takes to observe, and to answer meanwhile."""
    with _started(sys.executable, "-c", _PROXY) as (_, said):
        metrics, api = free_port(), free_port()
        file = directory / "xray.json"
        file.write_text(json.dumps(_document(OUTBOUNDS, int(said))))
        addresses = ("--metrics", f"127.0.0.1:{metrics}", "--api", f"127.0.0.1:{api}", "--log-level", "error")
        with _started(sys.executable, "-m", "reachline", "observatory", str(file), *addresses) as (process, _):
            while len(json.loads(_page(metrics))["observatory"]) < OUTBOUNDS:
                time.sleep(1)
            time.sleep(PERIOD)  # until the first round, all at once, has no part in it
            before = _used(process.pid)
            time.sleep(PERIOD)
            share = (_used(process.pid) - before) / PERIOD * 100
            yield Figure(
                f"{OUTBOUNDS} outbounds probed in {PERIOD:.0f} s", "% of a core", share, share, share, 1, "≤ 5, goal 3"
            )
            with grpc.insecure_channel(
                f"127.0.0.1:{api}", options=(("grpc.max_receive_message_length", -1),)
            ) as channel:
                call: Any = channel.unary_unary(GET_OUTBOUND_STATUS)
                call(b"", timeout=60)
                took = _timed(lambda: call(b"", timeout=60))
            yield _figure(f"GetOutboundStatus, {OUTBOUNDS} entries", "ms", took, "≤ 10, goal 5")
            yield _figure(f"/debug/vars, {OUTBOUNDS} entries", "ms", _timed(lambda: _page(metrics)))


def _choosing() -> Iterator[Figure]:
    """A pick, and what is worked out beside it when something changed."""
    settings = read(json.dumps(_document(AMONG, 9)))
    rng = Random(1)
    made = machines(settings, now=0, rng=rng, holds=True)
    assert made.observer is not None
    assert made.held is not None
    now = 0
    while len(made.observer.statuses(now)) < AMONG:
        now += MS
        for ask in made.observer.due(now):
            made.observer.ended(ask.serial, Result(ok=True, rtt=rng.randrange(20 * MS, 90 * MS), status=200), now)
    balancer = made.balancers["b"]
    anew, picks = [], []
    for _ in range(7):
        for ask in made.observer.due(now := now + 1_000 * MS):
            made.observer.ended(ask.serial, Result(ok=True, rtt=rng.randrange(20 * MS, 90 * MS), status=200), now)
        began = time.perf_counter()
        made.held.look(now)
        balancer.targets(now)
        anew.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        for _ in range(PICKS):
            balancer.pick(now, rng)
        picks.append((time.perf_counter() - began) / PICKS * 1e6)
    yield _figure(f"a pick by leastLoad among {AMONG}", "µs", picks, "≤ 2, goal 0.5")
    yield _figure("  chosen anew beside it, at most twice a second", "ms", anew)


def _written(path: Path) -> None:
    found = json.loads(path.read_text())
    figures, made = [Figure(**row) for row in found["figures"]], found["machine"]
    lines = [
        "# The observatory door\n",
        "*Written by `make bench-door ARGS=--write-docs`; not to be edited.*\n",
        "Observed is by plain HTTP through as many `http` outbounds, which are one other process on the same machine, as is who reads the answers.",
        "The connection path is measured beside microsocks in the same run.\n",
        "| what | measured | span | bound |",
        "| --- | --- | --- | --- |",
        *(f"| {row.what.strip()} | {row.median:,.4g} {row.unit} | {row.low:,.4g} to {row.high:,.4g} | {row.bound} |" for row in figures),
        f"\nMade {made['at']}, {made['cores']} cores with {made['load']} processes that want them, {made['processor']}, Python {made['python']}, release {made['release']}.\n",
        "## What falls short\n",
        *([*_short(figures)] or ["Nothing."]),
    ]  # fmt: skip
    PAGE.write_text("\n".join(lines) + "\n")


def _short(figures: list[Figure]) -> Iterator[str]:
    for row in figures:
        sign, _, number = row.bound.partition(",")[0].partition(" ")
        if number and (row.median > float(number) if sign == "≤" else row.median < float(number)):
            yield f"- {row.what.strip()}: {row.median:,.4g} {row.unit}, asked {row.bound}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks/door.md")
    parser.add_argument("--short", action="store_true", help="without the connection path")
    asked = parser.parse_args()
    kernel.raise_file_limit()
    figures = [*_choosing()]
    with tempfile.TemporaryDirectory() as directory:
        figures += _role(Path(directory))
    if not asked.short:
        figures += door_splice.figures()
    path = finish("door", figures)
    if asked.write_docs:
        _written(path)


if __name__ == "__main__":
    main()
