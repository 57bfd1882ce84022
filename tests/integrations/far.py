"""Lines of a cluster that really answer: small HTTP servers on loopback, each as ill as a test wants it."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from reachline.model import Gate, LineId, Version
from reachline.upstream import Cluster, LineList, Listed
from reachline.upstream.listing import target


class Far:
    """One line's server. `ill` is what its next answers are: a status (a redirect leads to `/moved`), `reset`, `hang`, `short`;
    empty: 200. `seen` is written by its threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ill: str | int = ""
        self.load = ""
        """What its answers report of it, if anything."""
        self.seen: list[str] = []
        self.hosts: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        far = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet

            def setup(self) -> None:
                far.connections += 1
                super().setup()

            def answer(self) -> None:
                far.seen.append(f"{self.command} {self.path}")
                far.hosts.append(self.headers["host"])
                far.bodies.append(self.rfile.read(int(self.headers.get("content-length", 0))))
                ill = far.ill
                if ill == "hang":
                    far.released.wait(20)
                    self.close_connection = True
                    return
                if ill == "reset":
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                    self.close_connection = True
                    return
                body = far.name.encode()
                status = ill if isinstance(ill, int) and self.path != "/moved" else 200
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("location", "/moved")
                if far.load:
                    self.send_header("Endpoint-Load-Metrics", far.load)
                self.send_header("content-length", str(len(body) + (10 if ill == "short" else 0)))
                self.end_headers()
                self.wfile.write(body)
                if ill == "short":
                    self.close_connection = True

            do_GET = do_POST = do_PUT = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                return

        self.released = threading.Event()
        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


def listing(cluster: str, addresses: Mapping[str, str], counter: int, gates: Mapping[str, Gate]) -> LineList:
    """A center's word on lines of equal weight; those without a gate are closed."""
    rows = tuple(
        Listed(
            LineId(f"{cluster}/{name}"),
            target(address),
            0 if gates.get(name) is Gate.OPEN else 100,
            100,
            breaker=gates.get(name, Gate.CLOSED),
        )
        for name, address in addresses.items()
    )
    return LineList(cluster=cluster, lines=rows, version=Version(1, counter))


class World:
    """A cluster of real lines, as a client would give it."""

    def __init__(self, fars: Mapping[str, Far], *, local_breaker: bool = True) -> None:
        self.fars = fars
        self.cluster = Cluster("payments", clock=time.monotonic, rng=random.Random(1), local_breaker=local_breaker)
        self._counter = 0
        self.publish()
        self.cluster.wake()

    @property
    def clusters(self) -> Mapping[str, Cluster]:
        return {"payments": self.cluster}

    def publish(self, **gates: Gate) -> None:
        """A new list; lines that are not named are closed."""
        self._counter += 1
        addresses = {name: f"http://127.0.0.1:{far.port}/healthz" for name, far in self.fars.items()}
        self.cluster.replace(listing("payments", addresses, self._counter, gates), source="center")

    def seen(self) -> dict[str, int]:
        return {name: len(far.seen) for name, far in self.fars.items() if far.seen}

    def calls(self) -> dict[str, int]:
        return {name: count for name, count in self.cluster.stats().calls._asdict().items() if count}


@contextmanager
def world(*names: str, local_breaker: bool = True) -> Iterator[World]:
    fars = {name: Far(name) for name in names}
    try:
        yield World(fars, local_breaker=local_breaker)
    finally:
        for each in fars.values():
            each.close()
