"""Our own proxy beside Envoy with one worker: processor time a request and a byte of TCP, and what each adds to a request. Part of `xds`.

The same document for both, with access log, retries and outlier detection on; both run beside each other and are asked in turn, so that
what else the machine does hits both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential.real import binary
from tests.proxy.world import FILE_LOG, TCP, cluster, forward, http, listener

from reachline.testing.bench import Figure
from reachline.testing.parts import free_port

CALLERS = 32
REQUESTS = 20_000
ROUNDS = 5
ALONE = 1_000
"""Requests one after the other, for the time that each adds."""
QUESTION = b"GET /api/v1/items?x=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nhello, world!"
END = b"hello, world!"
PULL = b"all of it"
BLOCK = 64 << 20
"""Bytes of one connection: the kernels hold a tenth of it."""
PULLS = 8
"""Connections a round: half a gigabyte, some tenths of a second of processor time, of which the kernel tells hundredths."""


class Server(asyncio.Protocol):
    """Answers each request alike, and says a block of bytes to who wants that."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data == PULL:
            self._transport.write(bytes(BLOCK))
            self._transport.close()
            return
        self._transport.write(ANSWER * data.count(b"\r\n\r\n"))


class Caller(asyncio.Protocol):
    """Asks again as soon as it is answered, so many times."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.took: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._came = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._came += data
        if not self._came.endswith(END):
            return
        assert self._came.startswith(b"HTTP/1.1 200"), self._came[:200]
        self.took.append(time.perf_counter() - self._began)
        self.left -= 1
        if self.left:
            self._ask()
        else:
            self._transport.close()
            self.done.set_result(None)

    def _ask(self) -> None:
        self._came, self._began = b"", time.perf_counter()
        self._transport.write(QUESTION)


async def asked(port: int, callers: int, requests: int) -> list[float]:
    """Seconds that each request took."""
    loop = asyncio.get_running_loop()
    made = [Caller(requests // callers) for _ in range(callers)]
    for caller in made:
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", port)
    await asyncio.gather(*(each.done for each in made))
    return [took for each in made for took in each.took]


def pulled(port: int, room: bytearray) -> None:
    """A block comes through."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(PULL)
        size = 0
        while came := client.recv_into(room):
            size += came
    assert size == BLOCK, size


def spent(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processor time so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bootstrap(port: int, tcp: int, to: int, log: Path) -> dict[str, Any]:
    given = http(
        [forward("/", "a", retry_policy={"retry_on": "5xx"})],
        [cluster("a", [to], outlier_detection={})],
        access_log=[{"name": "file", "typed_config": {"@type": FILE_LOG, "path": str(log)}}],
    )
    del given["admin"]
    listeners = given["static_resources"]["listeners"]
    listeners.append(listener({"@type": TCP, "stat_prefix": "t", "cluster": "a"}, name="tcp"))
    for each, at in zip(listeners, (port, tcp), strict=True):
        each["address"]["socket_address"]["port_value"] = at
    return given


@contextlib.contextmanager
def running(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError):
                    asyncio.run(asked(port, 1, 1))
                    break
                assert time.monotonic() < until, command
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()


def proxy_figures() -> list[Figure]:
    """Ours and Envoy's; without an Envoy ours alone."""
    envoy = binary()
    to, ports, tcp = free_port(), (free_port(), free_port()), (free_port(), free_port())
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        files = [Path(directory) / f"{name}.json" for name in ("ours", "envoy")]
        for file, port, other in zip(files, ports, tcp, strict=True):
            file.write_text(json.dumps(bootstrap(port, other, to, file.with_suffix(".log"))))
        stack.enter_context(running([sys.executable, "-m", "benchmarks.xds_proxy", str(to)], to))
        ours = [sys.executable, "-m", "reachline", "proxy", str(files[0]), "--log-level", "error"]
        theirs = [str(envoy), "--concurrency", "1", "--use-dynamic-base-id", "--disable-hot-restart", "-l", "off", "-c", str(files[1])]  # fmt: skip
        wanted = [("own proxy", ours, ports[0])] + ([] if envoy is None else [("Envoy", theirs, ports[1])])
        proxies = [(name, stack.enter_context(running(command, port)), port) for name, command, port in wanted]
        return _figures(proxies, to) + _bytes_figures(
            [(each[0], each[1], at) for each, at in zip(proxies, tcp, strict=False)]
        )


def _figures(proxies: list[tuple[str, subprocess.Popen[bytes], int]], to: int) -> list[Figure]:
    costs: dict[str, list[float]] = {name: [] for name, _, _ in proxies}
    added: dict[str, list[float]] = {name: [] for name, _, _ in proxies}
    for _ in range(ROUNDS):
        direct = statistics.median(asyncio.run(asked(to, 1, ALONE)))
        for name, process, port in proxies:
            before = spent(process)
            asyncio.run(asked(port, CALLERS, REQUESTS))
            costs[name].append((spent(process) - before) / REQUESTS * 1e6)
            added[name].append((statistics.median(asyncio.run(asked(port, 1, ALONE))) - direct) * 1e3)
    figures = [_figure(f"{name}: a request, processor time", "us", values) for name, values in costs.items()]
    if len(costs) > 1:
        shares = [theirs / own for own, theirs in zip(*costs.values(), strict=True)]
        figures.append(_figure("own proxy: requests for each of Envoy's", "×", shares, "≥ 0.7, goal 1.0"))
    return figures + [
        _figure(f"{name}: added to a request, p50", "ms", values, "≤ 0.15" if name == "own proxy" else "")
        for name, values in added.items()
    ]


def _bytes_figures(proxies: list[tuple[str, subprocess.Popen[bytes], int]]) -> list[Figure]:
    costs: dict[str, list[float]] = {name: [] for name, _, _ in proxies}
    room = bytearray(1 << 20)
    for _ in range(ROUNDS):
        for name, process, port in proxies:
            before = spent(process)
            for _ in range(PULLS):
                pulled(port, room)
            costs[name].append((spent(process) - before) / (PULLS * BLOCK) * (1 << 30) * 1e3)
    figures = [_figure(f"{name}: a GiB of TCP, processor time", "ms", values) for name, values in costs.items()]
    if len(costs) > 1:
        shares = [theirs / own for own, theirs in zip(*costs.values(), strict=True)]
        figures.append(_figure("own proxy: bytes of TCP for each of Envoy's", "×", shares, "≥ 0.75, goal 0.95"))
    return figures


def _figure(what: str, unit: str, values: list[float], bound: str = "") -> Figure:
    return Figure(what, unit, statistics.median(values), min(values), max(values), len(values), bound)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(int(sys.argv[1])))
