"""A stand-in for a center on a real socket, for tests of code that uses the SDK: what a test says, it serves.

Speaks the plain JSON door (line lists by long poll, outcomes) and judges nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["COST", "Door", "Peer", "document", "line", "pair", "serving", "weights"]

COST = [round(10**12 * 2.718281828459045 ** (-0.15 / 10**6 * 2**k)) for k in range(25)]
"""`exp(-0.15 x)` as a center sends it."""


def line(name: str, weight: int, *, cluster: str = "payments", **more: Any) -> dict[str, Any]:
    """One LINE of the contract: `payments/a` to `tcp://127.0.0.1:9`, closed, base 100."""
    row: dict[str, Any] = {
        "line": f"{cluster}/{name}",
        "cluster": cluster,
        "address": "tcp://127.0.0.1:9",
        "via": "direct",
        "role": "",
        "roles": [],
        "provider": "",
        "groups": [],
        "health": "healthy",
        "breaker": "closed",
        "step": 0,
        "weight": weight,
        "base": 100,
        "score": 100,
        "reason": "",
        "since": 1.0,
        "next": None,
        "window": 0,
    }
    return row | more


def document(*lines: Mapping[str, Any], cluster: str = "payments", version: str = "1.1", **more: Any) -> dict[str, Any]:
    """The answer of `GET /api/v1/clusters/{cluster}/lines` with these lines and the formula's terms of each."""
    terms = {
        row["line"]: {
            "base": row["base"],
            "faults": row.get("faults", 0),
            "share": row.get("share", 0.0 if row["breaker"] == "open" else 1.0),
        }
        for row in lines
    }
    found: dict[str, Any] = {
        "cluster": cluster,
        "version": version,
        "epoch": int(version.partition(".")[0]),
        "issued": time.time(),
        "ttl": 300.0,
        "policy": ["weighted"],
        "panic": "",
        "lines": list(lines),
        "local_rules": {
            "failures": 2,
            "open": 5.0,
            "open_cap": 60.0,
            "max_open": 0.5,
            "formula": {"cost": COST, "lines": terms},
        },
    }
    return found | more


class Door:
    """What the peer serves and what it was sent. `_changed` guards everything; handlers wait on it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._documents: dict[str, Any] = {}
        self._raw: bytes | None = None
        self._refusal: int | None = None
        self.post_status = 202
        self.posts: list[dict[str, Any]] = []
        self.posts_refused = 0
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.token = ""

    def publish(self, answer: Mapping[str, Any]) -> None:
        """Serve this document, and give it at once to those who wait."""
        with self._changed:
            self._documents[answer["cluster"]] = answer
            self._raw = self._refusal = None
            self._changed.notify_all()

    def say(self, raw: bytes) -> None:
        """Write exactly these bytes to whoever asks next, instead of an HTTP answer, and hang up."""
        with self._changed:
            self._raw = raw
            self._changed.notify_all()

    def refuse(self, status: int | None) -> None:
        """Answer every GET with this status; None: as before."""
        with self._changed:
            self._refusal = status
            self._changed.notify_all()

    def outcomes(self) -> dict[str, int]:
        """The sums of all posted outcomes by line and column, e.g. `{"payments/a ok": 7}`."""
        found: dict[str, int] = {}
        with self._changed:
            for post in self.posts:
                for row in post["outcomes"]:
                    for column in ("ok", "failed", "late", "errors"):
                        key = f"{row['line']} {column}"
                        found[key] = found.get(key, 0) + row[column]
        return {key: count for key, count in found.items() if count}

    def answer(self, cluster: str, version: str | None, wait: float) -> tuple[int, bytes] | bytes:
        """Status and body, or raw bytes."""
        deadline = time.monotonic() + wait
        with self._changed:
            while True:
                known = self._documents.get(cluster)
                is_news = known is not None and known["version"] != version
                if is_news or self._raw is not None or self._refusal is not None:
                    break
                if not self._changed.wait(timeout=max(0.0, deadline - time.monotonic())):
                    break
            if self._raw is not None:
                return self._raw
            if self._refusal is not None:
                return self._refusal, b"{}"
            if known is None:
                return 404, b'{"error": {"code": "unknown_cluster", "message": "no such cluster", "hint": ""}}'
            return (200, json.dumps(known).encode()) if is_news else (304, b"")

    def take(self, body: bytes) -> int:
        with self._changed:
            if self.post_status < 300:
                self.posts.append(json.loads(body))
            else:
                self.posts_refused += 1
            return self.post_status


def _handler(door: Door) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            door.asked.append((self.path, dict(self.headers)))
            if door.token and self.headers.get("Authorization") != f"Bearer {door.token}":
                self._send(401, b"{}")
                return
            cluster = parts.path.split("/")[-2]
            found = door.answer(cluster, query.get("version", [None])[0], float(query.get("wait", ["0"])[0]))
            if isinstance(found, bytes):
                self.wfile.write(found)
                self.close_connection = True
            else:
                self._send(*found)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._send(door.take(body), b"{}")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if status != 304:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, door: Door) -> None:
        super().__init__(("127.0.0.1", port), _handler(door))
        self._open: list[Any] = []

    def get_request(self) -> Any:
        pair = super().get_request()
        self._open.append(pair[0])
        return pair

    def handle_error(self, *_: object) -> None:
        return

    def kill(self) -> None:
        """As SIGKILL would: the port refuses and every connection is cut."""
        self.shutdown()
        self.server_close()
        for each in self._open:
            try:
                each.shutdown(2)
            except OSError:
                continue


class Peer:
    """A door on a port, which can be killed and started again."""

    def __init__(self, door: Door, port: int = 0) -> None:
        self.door = door
        self._server: _Server | None = None
        self.port = port
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = _Server(self.port, self.door)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server = None


@contextmanager
def serving(*answers: Mapping[str, Any]) -> Iterator[Peer]:
    """A peer that serves these documents until the block ends."""
    peer = Peer(Door())
    for answer in answers:
        peer.door.publish(answer)
    try:
        yield peer
    finally:
        peer.kill()


def pair(a: int = 100, b: int = 100, **more: Any) -> dict[str, Any]:
    """`payments` with lines a and b."""
    return document(line("a", a), line("b", b), **more)


def weights(lines: Sequence[Any]) -> dict[str, int]:
    """Published weights by line."""
    return {each.line: each.weight for each in lines}
