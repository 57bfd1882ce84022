"""The application: routes, errors as one shape, health, metrics, and the console's files."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from reachline import __version__
from reachline.center import mesh_metrics
from reachline.center.api import (
    docs,
    drilling,
    joining,
    live,
    ordering,
    planning,
    posting,
    reading,
    serving,
    sessions,
    steered,
)
from reachline.center.api.desk import Desk
from reachline.center.api.guard import Guard
from reachline.center.api.refused import RefusedError
from reachline.center.metrics import Exposition
from reachline.errors import RemoteProtocolError
from reachline.net.http import Application
from reachline.store.audit import Deed
from reachline.wire import view

__all__ = ["application"]

log = logging.getLogger("reachline.center.http")

_PREFIX = "/api/v1"
_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"


def application(desk: Desk) -> Application:
    """The ASGI application of a center."""
    app = FastAPI(
        title="Reachline",
        version=__version__,
        description="Which line carries traffic now, by which rule, from which counts.",
        openapi_url=f"{_PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in (
        serving.routes(desk),
        reading.routes(desk),
        live.routes(desk),
        posting.routes(desk),
        ordering.routes(desk),
        planning.routes(desk),
        drilling.routes(desk),
        steered.routes(desk),
        joining.routes(desk),
        sessions.routes(desk),
    ):
        app.include_router(router, prefix=_PREFIX)
    app.add_api_route(f"{_PREFIX}/docs", lambda: docs.page(app.openapi()), include_in_schema=False)
    _health(app, desk)
    _errors(app)
    if desk.console is not None:
        app.mount("/", _Console(directory=desk.console, html=True), name="console")

    def refused(status: int) -> None:
        desk.board.counts["requests_refused", str(status)] += 1

    def noted(deed: Deed) -> None:
        if desk.audit is not None:
            desk.audit.note(deed)

    return Guard(app, closing=desk.board.closing, token=desk.token, entry=desk.entry, noted=noted, refused=refused)


class _Console(StaticFiles):
    """The console's files, as a page that loads nothing from elsewhere and is asked for anew after an upgrade."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        if isinstance(response, FileResponse):
            # Whole, at once: a file that is sent piece by piece stays open where its reader goes in the middle.
            response = Response(Path(response.path).read_bytes(), response.status_code, dict(response.headers))
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def _health(app: FastAPI, desk: Desk) -> None:
    board, exposition = desk.board, Exposition(desk)

    @app.get("/healthz", tags=["health"])
    async def healthz() -> Response:
        """200 while the process answers."""
        return reading.json_answer({"status": "ok", "version": __version__})

    @app.get("/readyz", tags=["health"])
    async def readyz() -> Response:
        """200 once every cluster has a snapshot and the journal takes records; 503 with what lacks."""
        missing = sorted(desk.document().clusters.keys() - board.clusters.keys())
        lacks = [f"cluster {name} has no snapshot yet" for name in missing]
        if board.journal_fault:
            lacks.append(f"journal: {board.journal_fault}")
        if board.is_closing:
            lacks.append("the center stops")
        return reading.json_answer(
            {"status": "ready" if not lacks else "not ready", "lacks": lacks}, 503 if lacks else 200
        )

    @app.get("/metrics", tags=["health"])
    async def metrics() -> Response:
        """Prometheus text."""
        mesh = await asyncio.to_thread(mesh_metrics.text, desk.mesh().ways)
        return Response(exposition.text() + mesh, media_type="text/plain; version=0.0.4; charset=utf-8")


def _errors(app: FastAPI) -> None:
    def refused(status: int, code: str, message: str, hint: str = "", **extra: object) -> Response:
        document = view.error(code, message, hint)
        return reading.json_answer({"error": {**document["error"], **extra}}, status)

    @app.exception_handler(RefusedError)
    async def on_refused(_: Request, error: RefusedError) -> Response:
        return refused(error.status, error.code, error.message, error.hint, **error.extra)

    @app.exception_handler(ClientDisconnect)
    async def on_gone(request: Request, _: ClientDisconnect) -> Response:
        log.debug("request_cut_short", extra={"path": request.url.path})
        return refused(503, "stopping", "the center stops, or the request ended early", "post it again in a second")

    @app.exception_handler(RemoteProtocolError)
    async def on_protocol(_: Request, error: RemoteProtocolError) -> Response:
        return refused(400, "malformed", str(error), f"the contract is at {_PREFIX}/docs")

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return refused(400, "invalid_parameter", f"{where}: {first['msg']}", f"the contract is at {_PREFIX}/docs")

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        phrase = HTTPStatus(error.status_code).phrase.lower()
        code = phrase.replace(" ", "_")
        answer = refused(
            error.status_code, code, f"{request.method} {request.url.path}: {phrase}", f"see {_PREFIX}/docs"
        )
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> Response:
        log.error("request_failed", exc_info=error, extra={"path": request.url.path})
        return refused(500, "internal", "a fault of ours; the log has the details")
