"""A proxy and endpoints on loopback, each in a thread of its own, asked by bytes. Endpoints do what the path of a request says."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final

from reachline.doors.envoy.whole import read
from reachline.proxy.run import Options, Started, run
from reachline.testing.serving import Service

HCM: Final = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER: Final = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
TCP: Final = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
FILE_LOG: Final = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
LENGTH: Final = re.compile(rb"content-length: (\d+)")
LARGE: Final = 32 << 20
"""Bytes of an answer that no kernel holds for two connections."""
WITHIN: Final = 30.0
"""Of seconds in which anything here is over by far, on a machine however busy."""


class Loop:
    """A thread that runs an event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, job: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(job, self.loop).result(WITHIN)

    def close(self) -> None:
        self.do(self._cancel())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WITHIN)
        self.loop.close()

    async def _cancel(self) -> None:
        left = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # transports tell that they are closed in the next turn


Answering = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, bool]]


class Endpoint:
    """Answers by the path's first part, and remembers what it was asked: heads and bodies, by connection."""

    def __init__(self, loop: Loop, name: bytes = b"one", answering: Answering | None = None, ssl: Any = None) -> None:
        self.name = name
        self.asked: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.gate = threading.Event()
        """`/held` waits for it."""
        self._loop, self._answering = loop, answering
        self._service: Service = loop.do(Service(self._serve).listen(tls=ssl))
        self.port = self._service.port

    def close(self) -> None:
        self._loop.do(self._service.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if not await (self._answering or self._answer)(head, reader, writer):
                    return
        finally:
            self.open -= 1

    async def body(self, head: bytes, reader: asyncio.StreamReader) -> bytes:
        length = LENGTH.search(head)
        if length:
            return await reader.readexactly(int(length[1]))
        if b"transfer-encoding: chunked" in head:
            found = await reader.readuntil(b"\r\n0\r\n")
            return found + await reader.readuntil(b"\r\n")
        return b""

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:  # noqa: C901, PLR0912
        word = re.split(rb"[/?]", head.split(b" ")[1] + b"/")[1]
        if word == b"early":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly")
            return True
        if word == b"slurp":
            self.asked.append(head)
            self.gate.wait(0)
            while not self.gate.is_set():
                await asyncio.sleep(0.01)
        self.asked.append(head + await self.body(head, reader))
        match word:
            case b"reset":
                writer.transport.abort()
                return False
            case b"close":
                return False
            case b"partial":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")
                await writer.drain()
                return False
            case b"garbage":
                writer.write(b"garbage\r\n\r\n")
            case b"hang":
                await asyncio.Event().wait()
            case b"held":
                while not self.gate.is_set():
                    await asyncio.sleep(0.01)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nheld")
            case b"204":
                writer.write(b"HTTP/1.1 204 No Content\r\nFoo: b\r\n\r\n")
            case b"204-length":
                writer.write(b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n")
            case b"204-chunks":
                writer.write(b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n")
            case b"own":
                own = b"x-envoy-upstream-service-time: 12345\r\nx-envoy-attempt-count: 7\r\nx-request-id: its\r\n"
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + own + b"\r\n")
            case b"304":
                writer.write(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n")
            case b"eof":
                writer.write(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nbody")
                await writer.drain()
                return False
            case b"chunk":
                body = b"" if head.startswith(b"HEAD") else b"3\r\nabc\r\n0\r\nt: v\r\n\r\n"
                odd = b"Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nServer: mine\r\nDate: Mon\r\n"
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + odd + b"\r\n" + body)
            case b"interim":
                writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            case b"large":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % LARGE)
                for _ in range(LARGE >> 16):
                    writer.write(b"x" * (1 << 16))
                    await writer.drain()
            case _ if word.isdigit():
                writer.write(b"HTTP/1.1 %b Said So\r\ncontent-length: 2\r\n\r\nno" % word)
            case _:
                body = b"" if head.startswith(b"HEAD") else self.name
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nX-Foo: Bar\r\n\r\n" % len(self.name) + body)
        await writer.drain()
        return True


def cluster(name: str, ports: Sequence[int], **more: Any) -> dict[str, Any]:
    endpoints = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}} for port in ports
    ]
    return {
        "name": name,
        "connect_timeout": "10s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        **more,
    }


def forward(prefix: str, to: str, **more: Any) -> dict[str, Any]:
    return {"match": {"prefix": prefix}, "route": {"cluster": to, **more}}


def listener(filters: dict[str, Any], *, name: str = "in", **more: Any) -> dict[str, Any]:
    chain = {"filters": [{"name": "own", "typed_config": filters}], **more}
    return {
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [chain],
    }


def manager(routes: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    hosts = [{"name": "all", "domains": ["*"], "routes": list(routes)}]
    return {
        "@type": HCM,
        "stat_prefix": "in",
        "delayed_close_timeout": "5s",
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
        "route_config": {"validate_clusters": False, "virtual_hosts": hosts},
        **more,
    }


def document(listeners: Sequence[Any], clusters: Sequence[Any]) -> dict[str, Any]:
    return {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "static_resources": {"listeners": list(listeners), "clusters": list(clusters)},
    }


def http(routes: Sequence[Mapping[str, Any]], clusters: Sequence[Any], **more: Any) -> dict[str, Any]:
    """A document with one manager."""
    return document([listener(manager(routes, **more))], clusters)


class Proxy:
    """A running one."""

    def __init__(self, started: Started, stop: Callable[[], None], done: Callable[[], Any]) -> None:
        self.ports = {name: address.port for name, address in started.listeners}
        self.port = next(iter(self.ports.values()), 0)
        self.admin_port = started.admin.port if started.admin else 0
        self.stop, self.done = stop, done

    def ask(self, raw: bytes, *, port: int = 0) -> bytes:
        """All that comes back until the connection ends; what is asked must end it."""
        return ask(port or self.port, raw)

    def admin(self, path: str, method: str = "GET") -> bytes:
        raw = f"{method} {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n".encode()
        return ask(self.admin_port, raw)

    def figures(self) -> dict[str, int]:
        body = self.admin("/stats").partition(b"\r\n\r\n")[2].decode()
        return {name: int(value) for name, value in (line.split(": ") for line in body.splitlines())}


def ask(port: int, raw: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN) as client:
        client.sendall(raw)
        return drain(client)


def drain(client: socket.socket) -> bytes:
    found = bytearray()
    with contextlib.suppress(ConnectionError):
        while data := client.recv(1 << 16):
            found += data
    return bytes(found)


def until(client: socket.socket, end: bytes) -> bytes:
    """What comes, up to and with `end`."""
    found = b""
    while end not in found:
        data = client.recv(1 << 16)
        assert data, found
        found += data
    return found


def get(path: str, *, method: str = "GET", more: bytes = b"", last: bool = True) -> bytes:
    """A request; `last`: the connection ends with its answer."""
    close = b"connection: close\r\n" if last else b""
    return f"{method} {path} HTTP/1.1\r\nhost: a.example\r\n".encode() + close + more + b"\r\n"


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def body(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


@contextlib.contextmanager
def running(loop: Loop, given: Mapping[str, Any], *, grace: float = 5.0) -> Iterator[Proxy]:
    """A proxy of this document, once it takes connections."""
    ready: asyncio.Future[Started] = loop.do(_future())
    stop: asyncio.Event = loop.do(_event())
    chain = read(given, name="test")
    task = asyncio.run_coroutine_threadsafe(
        run(chain, Options(place="test", grace=grace, seed=1), stop=stop, ready=ready.set_result), loop.loop
    )

    async def started() -> Started:
        wrapped = asyncio.wrap_future(task)
        await asyncio.wait((ready, wrapped), return_when=asyncio.FIRST_COMPLETED, timeout=WITHIN)
        if wrapped.done():
            wrapped.result()
        return ready.result()

    def set_stop() -> None:
        loop.loop.call_soon_threadsafe(stop.set)

    proxy = Proxy(loop.do(started()), set_stop, lambda: task.result(WITHIN))
    try:
        yield proxy
    finally:
        set_stop()
        task.result(WITHIN)


async def _future() -> asyncio.Future[Started]:
    return asyncio.get_running_loop().create_future()


async def _event() -> asyncio.Event:
    return asyncio.Event()
