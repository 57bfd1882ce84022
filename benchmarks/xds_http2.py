"""Our own proxy beside Envoy with one worker by HTTP/2: processor time a request, with endpoints of either protocol. Part of `xds`.

The same document for both, with access log, retries and outlier detection on; both run beside each other and are asked in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.xds_proxy import running as running_1
from benchmarks.xds_proxy import spent
from tests.differential.real import binary
from tests.proxy.world import FILE_LOG, cluster, document, forward, listener, manager

from reachline.proxy.http2.connection import Connection
from reachline.proxy.http2.events import Answered, Asked, Ended
from reachline.proxy.http2.limits import Limits
from reachline.testing.bench import Figure
from reachline.testing.parts import free_port

CONNECTIONS: Final = 4
STREAMS: Final = 8
"""Requests under way on each connection: as many in all as the cell of HTTP/1.1 has."""
REQUESTS: Final = 10_000
ROUNDS: Final = 5
QUESTION: Final = [
    (b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a.example"), (b":path", b"/api/v1/items?x=1"),
    (b"user-agent", b"bench"), (b"accept", b"*/*"),
]  # fmt: skip
ANSWER: Final = [(b"content-type", b"text/plain"), (b"content-length", b"13")]
BODY: Final = b"hello, world!"
_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


class Server(asyncio.Protocol):
    """Answers each request alike, by HTTP/2."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._connection = transport, Connection(Limits())
        self._flush()

    def data_received(self, data: bytes) -> None:
        for event in self._connection.feed(data, time.monotonic()):
            if isinstance(event, Asked):
                self._connection.answer(event.stream, 200, ANSWER)
                self._connection.body(event.stream, BODY, end=True)
        self._flush()

    def _flush(self) -> None:
        while data := self._connection.take():
            self._transport.write(data)


class Caller(asyncio.Protocol):
    """One connection: asks again as soon as it is answered, so many times in all."""

    def __init__(self, count: int, streams: int) -> None:
        self._left, self._open, self._streams = count, 0, streams
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._connection = transport, Connection(Limits(), is_client=True)
        self._ask()

    def data_received(self, data: bytes) -> None:
        for event in self._connection.feed(data, time.monotonic()):
            if isinstance(event, Answered):
                assert event.status == 200, event
            elif isinstance(event, Ended):
                self._open -= 1
        self._ask()
        if not self._open and not self.done.done():
            self._transport.close()
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("gone"))

    def _ask(self) -> None:
        while self._left and self._open < self._streams:
            self._connection.ask(QUESTION, end=True)
            self._left -= 1
            self._open += 1
        while data := self._connection.take():
            self._transport.write(data)


async def asked(port: int, connections: int, streams: int, requests: int) -> None:
    """So many requests are answered."""
    loop = asyncio.get_running_loop()
    made = [Caller(requests // connections, streams) for _ in range(connections)]
    for caller in made:
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", port)
    await asyncio.gather(*(each.done for each in made))


def bootstrap(ports: tuple[int, int], to: tuple[int, int], log: Path) -> dict[str, Any]:
    """Listeners by name: which protocol their endpoints speak."""
    explicit = {"@type": f"type.googleapis.com/{_OPTIONS}", "explicit_http_config": {"http2_protocol_options": {}}}
    clusters = [
        cluster("one", [to[0]], outlier_detection={}),
        cluster("two", [to[1]], outlier_detection={}, typed_extension_protocol_options={_OPTIONS: explicit}),
    ]
    logs = [{"name": "file", "typed_config": {"@type": FILE_LOG, "path": str(log)}}]
    retry = {"retry_on": "5xx"}
    listeners = [
        listener(manager([forward("/", each["name"], retry_policy=retry)], access_log=logs), name=each["name"])
        for each in clusters
    ]
    for each, port in zip(listeners, ports, strict=True):
        each["address"]["socket_address"]["port_value"] = port
    given = document(listeners, clusters)
    del given["admin"]
    return given


@contextlib.contextmanager
def running(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The process, once it answers by HTTP/2 at this port."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError):
                    asyncio.run(asked(port, 1, 1, 1))
                    break
                assert time.monotonic() < until, command
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()


def http2_figures(requests: int = REQUESTS, rounds: int = ROUNDS) -> list[Figure]:
    """Ours and Envoy's; without an Envoy ours alone."""
    envoy = binary()
    to, ports = (free_port(), free_port()), [(free_port(), free_port()) for _ in range(2)]
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        files = [Path(directory) / f"{name}.json" for name in ("ours", "envoy")]
        for file, own in zip(files, ports, strict=True):
            file.write_text(json.dumps(bootstrap(own, to, file.with_suffix(".log"))))
        stack.enter_context(running_1([sys.executable, "-m", "benchmarks.xds_proxy", str(to[0])], to[0]))
        stack.enter_context(running([sys.executable, "-m", "benchmarks.xds_http2", str(to[1])], to[1]))
        ours = [sys.executable, "-m", "reachline", "proxy", str(files[0]), "--log-level", "error"]
        theirs = [str(envoy), "--concurrency", "1", "--use-dynamic-base-id", "--disable-hot-restart", "-l", "off", "-c", str(files[1])]  # fmt: skip
        wanted = [("own proxy", ours, ports[0])] + ([] if envoy is None else [("Envoy", theirs, ports[1])])
        proxies = [(name, stack.enter_context(running(command, own[0])), own) for name, command, own in wanted]
        return [each for at in (0, 1) for each in _figures(proxies, at, requests, rounds)]


def _figures(
    proxies: list[tuple[str, subprocess.Popen[bytes], tuple[int, int]]], at: int, requests: int, rounds: int
) -> list[Figure]:
    costs: dict[str, list[float]] = {name: [] for name, _, _ in proxies}
    for number in range(rounds + 1):
        for name, process, ports in proxies:
            before = spent(process)
            asyncio.run(asked(ports[at], CONNECTIONS, STREAMS, requests))
            if number:  # the first one makes connections, and what is remembered
                costs[name].append((spent(process) - before) / requests * 1e6)
    way = f"HTTP/2 to endpoints of {('HTTP/1.1', 'HTTP/2')[at]}"
    figures = [_figure(f"{name}: {way}, processor time", "us", values) for name, values in costs.items()]
    rates = [1e6 / each for each in costs["own proxy"]]
    figures.append(_figure(f"own proxy: {way}, of one core", "requests/s", rates, "≥ 2500, goal 5000"))
    return figures


def _figure(what: str, unit: str, values: list[float], bound: str = "") -> Figure:
    return Figure(what, unit, statistics.median(values), min(values), max(values), len(values), bound)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(int(sys.argv[1])))
