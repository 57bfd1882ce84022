"""A stage for the console: speaks a center's HTTP contract from values that a test sets. Judges nothing.

For developing the page and testing it in a browser; `python -m reachline.testing.stage --lines 500` shows it by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from reachline.model import Seconds
from reachline.testing.wait import until

__all__ = ["ASSETS", "Stage", "line_row"]

ASSETS: Final = Path(__file__).parent.parent / "console"
POLICY: Final = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_STARTS_WITHIN: Final[Seconds] = 10.0
_ENDS_WITHIN: Final[Seconds] = 5.0

Row = dict[str, Any]


def line_row(line: str, **changes: object) -> Row:
    """One LINE of the contract: a healthy line of full weight, with the changes that are asked for."""
    row: Row = {
        "line": line, "cluster": line.partition("/")[0], "address": "http://127.0.0.1:7701/healthz", "via": "direct",
        "origin": "", "role": "", "roles": [], "provider": "", "groups": [], "drained": False, "health": "healthy",
        "breaker": "closed", "step": 0, "weight": 100, "base": 100, "raw": 100.0, "score": 100, "reason": "",
        "since": time.time() - 120, "next": None, "window": 0, "blind": False, "kind": "http", "p95": 0.012, "p50": 0.008,
        "ewma": 0.009, "jitter": 0.004, "loss": 0.0, "timeout": 0.0,
    }  # fmt: skip
    return row | changes


class Stage:
    """A center's face on its own thread. `put`, `decide` and `demo` may be called from any thread."""

    def __init__(self, rows: Sequence[Row], *, port: int = 0, assets: Path = ASSETS, epoch: int = 1) -> None:
        self._rows = {row["line"]: row for row in rows}
        self._changes: list[Row] = []
        self._pages: dict[str, Row] = {}
        self._port = port
        self._assets = assets
        self._epoch = epoch
        self._revision = 0
        self._readers: set[asyncio.Queue[str]] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self.demo: Row | None = None
        """The answer of `/api/v1/demo`; None is 404."""
        self.mesh: Row | None = None
        """The answer of `/api/v1/mesh`, likewise…"""
        self.xds: Row | None = None
        """…and of `/api/v1/xds`."""
        self.agents: list[Row] = [{"agent": f"edge-{number}", "state": "attached", "age": 0.5} for number in (1, 2, 3)]
        self.panic: dict[str, str] = {}
        self.is_silent = False
        """True: sockets stay open and say nothing, as when the center hangs."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    @property
    def revision(self) -> int:
        """Of the newest delta."""
        return self._revision

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), name="stage", daemon=True)
        self._thread.start()
        if not started.wait(_STARTS_WITHIN):
            raise TimeoutError("the stage did not start")
        return self

    def __exit__(self, *_: object) -> None:
        """Gone at once, as by SIGKILL: open sockets are cut."""
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(_ENDS_WITHIN)

    def put(self, line: str, *, rule: str = "", votes: Sequence[Mapping[str, object]] = (), **changes: object) -> None:
        """Change one line; with a rule it is a decision."""
        before = self._rows[line]
        after = before | changes
        if rule:
            after["since"] = time.time()
            self._changes.append(self._change(before, after, rule, votes))
        self._rows[line] = after
        self._publish([after], self._changes[-1:] if rule else [])

    def remove(self, line: str) -> None:
        """The line left the document."""
        del self._rows[line]
        self._publish([], [], gone=[line])

    def page(self, line: str, **page: object) -> None:
        """What `GET /api/v1/lines/{line}` answers beside the row."""
        self._pages[line] = page

    def replace(self, rows: Sequence[Row]) -> None:
        """Many lines changed in one second."""
        self._rows |= {row["line"]: row for row in rows}
        self._publish(list(rows), [])

    def _change(self, before: Row, after: Row, rule: str, votes: Sequence[Mapping[str, object]]) -> Row:
        sides = ("health", "breaker", "step", "weight", "raw", "score", "reason", "next")
        return {
            "id": len(self._changes) + 1, "line": before["line"], "at": time.time(), "rule": rule,
            "before": {side: before[side] for side in sides}, "after": {side: after[side] for side in sides},
            "votes": list(votes), "facts": {},
        }  # fmt: skip

    def _publish(self, rows: Sequence[Row], changes: Sequence[Row], *, gone: Sequence[str] = ()) -> None:
        self._revision += 1
        self._say(
            {
                "type": "delta",
                **self._stamp(),
                "after": self._revision - 1,
                "lines": rows,
                "gone": list(gone),
                "changes": changes,
                "agents": None,
                "panic": self.panic,
            }
        )

    def _stamp(self) -> Row:
        return {"revision": self._revision, "version": f"{self._epoch}.{self._revision}", "now": time.time()}

    def _say(self, message: Row) -> None:
        text = json.dumps(message)
        if self._loop is not None and not self.is_silent:
            for reader in tuple(self._readers):
                self._loop.call_soon_threadsafe(reader.put_nowait, text)

    async def _run(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        config = uvicorn.Config(
            self._app(), host="127.0.0.1", port=self._port, log_level="critical", lifespan="off", ws="websockets-sansio"
        )
        self._server = uvicorn.Server(config)
        ticking = asyncio.create_task(self._tick())
        serving = asyncio.create_task(self._server.serve())
        server = self._server
        await until(lambda: server.started, what="uvicorn's start")
        self._port = self._server.servers[0].sockets[0].getsockname()[1]
        started.set()
        await serving
        ticking.cancel()
        self._cut(server)
        # Transports close on the loop's next turns; what is left open would warn when it is collected.
        await until(lambda: not server.server_state.connections, within=_ENDS_WITHIN, what="cut connections")

    def _cut(self, server: uvicorn.Server) -> None:
        for connection in tuple(server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if isinstance(transport, asyncio.Transport):
                transport.abort()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._say({"type": "tick", "revision": self._revision, "now": time.time()})

    def _app(self) -> Starlette:
        api = [
            Route("/healthz", lambda _: JSONResponse({"ok": True})),
            Route("/api/v1/lines", self._lines),
            Route("/api/v1/lines/{line:path}", self._line),
            Route("/api/v1/changes", lambda _: JSONResponse({"changes": self._changes})),
            Route("/api/v1/explain/{line:path}", self._explain),
            Route("/api/v1/session", lambda _: JSONResponse({"name": "", "role": "admin"})),
            Route("/api/v1/demo", self._demo),
            Route("/api/v1/mesh", self._mesh),
            Route("/api/v1/xds", self._xds),
            WebSocketRoute("/api/v1/ws", self._socket),
            Mount("/", StaticFiles(directory=self._assets, html=True)),
        ]
        return Starlette(routes=api, middleware=[Middleware(BaseHTTPMiddleware, dispatch=_with_policy)])

    def _lines(self, _: Request) -> Response:
        return JSONResponse({"version": self._stamp()["version"], "age": 0.0, "lines": list(self._rows.values())})

    def _line(self, request: Request) -> Response:
        line = request.path_params["line"]
        if line not in self._rows:
            return JSONResponse({"error": {"code": "not_found", "message": f"no line {line}", "hint": ""}}, 404)
        own = [change for change in self._changes if change["line"] == line]
        page = {"votes": [], "readings": [], "history": [], "changes": own} | self._pages.get(line, {})
        return JSONResponse(self._rows[line] | page)

    def _explain(self, request: Request) -> Response:
        line = request.path_params["line"]
        return JSONResponse({"line": line, "text": f"{line} stands as the stage was told."})

    def _mesh(self, _: Request) -> Response:
        return JSONResponse(self.mesh) if self.mesh else JSONResponse({"error": {"code": "not_found"}}, 404)

    def _xds(self, _: Request) -> Response:
        return JSONResponse(self.xds) if self.xds else JSONResponse({"error": {"code": "not_found"}}, 404)

    def _demo(self, _: Request) -> Response:
        return JSONResponse(self.demo) if self.demo else JSONResponse({"error": {"code": "not_found"}}, 404)

    async def _socket(self, socket: WebSocket) -> None:
        await socket.accept()
        reader: asyncio.Queue[str] = asyncio.Queue()
        self._readers.add(reader)
        try:
            rest = {"changes": self._changes[-50:], "agents": self.agents, "panic": self.panic}
            snapshot = {"type": "snapshot", **self._stamp(), "lines": list(self._rows.values()), **rest}
            await socket.send_text(json.dumps(snapshot))
            while True:
                await socket.send_text(await reader.get())
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            self._readers.discard(reader)


async def _with_policy(request: Request, answer: RequestResponseEndpoint) -> Response:
    response = await answer(request)
    response.headers["Content-Security-Policy"] = POLICY
    return response


def crowd(count: int, rng: Random) -> list[Row]:
    """Many lines of several clusters, some of them in trouble."""
    states: Sequence[Row] = (
        {"health": "degraded", "weight": 61, "raw": 60.7, "score": 61, "reason": "vote.p95.degraded", "p95": 0.31, "loss": 0.012},
        {"health": "unhealthy", "breaker": "open", "weight": 0, "raw": 0.0, "score": 0, "reason": "vote.timeout.failed",
         "p95": None, "loss": 0.08, "timeout": 0.3, "next": time.time() + 23},
        {"breaker": "ramp", "step": 2, "weight": 25, "raw": 25.0, "score": 25, "reason": "breaker.window_passed", "next": time.time() + 9},
    )  # fmt: skip
    rows = []
    for number in range(count):
        trouble = states[rng.randrange(3)] if rng.random() < 0.05 else {}
        name = f"{('payments', 'search', 'media', 'mail')[number % 4]}/line-{number:03}"
        since = time.time() - rng.uniform(5, 9_000)
        rows.append(line_row(name, since=since, p95=rng.uniform(0.008, 0.09)) | trouble)
    return rows


def drift(rows: Sequence[Row], rng: Random) -> list[Row]:
    """The same lines a second later: every latency moved."""
    return [
        row | {"p95": row["p95"] and max(0.002, row["p95"] * math.exp(rng.gauss(0, 0.1))), "weight": max(0, row["weight"] - rng.randrange(2)) or row["weight"]}
        for row in rows
    ]  # fmt: skip


async def _show(count: int, port: int) -> None:
    rng = Random(1)
    rows = crowd(count, rng)
    with Stage(rows, port=port) as stage:
        print(stage.url, flush=True)
        async for _ in _seconds():
            rows = drift(rows, rng)
            stage.replace(rows)


async def _seconds() -> AsyncIterator[int]:
    second = 0
    while True:
        await asyncio.sleep(1.0)
        yield (second := second + 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--port", type=int, default=7690)
    asked = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_show(asked.lines, asked.port))
