"""POST: what clients' calls came to, and what foreign agents measured. Answered once the journal has it."""

from __future__ import annotations

from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response

from reachline.center.api.desk import Desk
from reachline.center.api.reading import json_answer, unknown_cluster
from reachline.center.api.refused import RefusedError
from reachline.center.api.schema import model
from reachline.wire import view
from reachline.wire.posted import OutcomesDocument, read_outcomes

__all__ = ["routes"]

_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": model(view.ErrorDocument)},
    404: {"model": model(view.ErrorDocument)},
    413: {"model": model(view.ErrorDocument)},
}


def routes(desk: Desk) -> APIRouter:
    """`/outcomes` and `/heartbeats`."""
    router = APIRouter()
    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": _schema(OutcomesDocument)}}}}

    @router.post("/outcomes", status_code=202, responses=_REFUSALS, openapi_extra=body)
    async def outcomes(request: Request) -> Response:
        """A batch of call results of one client, summed per line and second, and its open breakers."""
        posted = read_outcomes(await _document(request))
        cell = desk.board.clusters.get(posted.cluster)
        if cell is None:
            raise unknown_cluster(desk, posted.cluster)
        known = tuple(row for row in posted.outcomes if row.line in cell.value.lines)
        unknown = sorted({row.line for row in posted.outcomes} - cell.value.lines.keys())
        desk.board.counts["outcomes_unknown", ""] += len(posted.outcomes) - len(known)
        record = desk.owner.outcomes(cell.value.scope, posted.client, known)
        desk.board.client(posted.client, posted.open)
        await _stored(desk, record)
        return json_answer({"taken": len(known), "unknown": unknown}, 202)

    return router


def _schema(document: type) -> dict[str, Any]:
    return model(document).model_json_schema()


async def _document(request: Request) -> object:
    try:
        return orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise RefusedError(400, "malformed_json", f"the body is no JSON: {error}") from error


async def _stored(desk: Desk, record: int) -> None:
    """Returns once the record is on disk; 503 where the journal refuses, so that the client keeps its batch."""
    if not await desk.owner.durable(record):
        raise RefusedError(503, "journal_refused", "the journal takes no records now", "post it again in a second")
