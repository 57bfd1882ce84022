"""Drills over HTTP: rehearsed, played for real, listed. One is ended before its time as any order is."""

from __future__ import annotations

from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response

from reachline.center.api.desk import Desk
from reachline.center.api.entry import principal_of
from reachline.center.api.reading import json_answer
from reachline.center.api.refused import RefusedError
from reachline.center.api.schema import model
from reachline.wire import drilling, view

__all__ = ["routes"]

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": model(drilling.PlayedDocument)},
    **{status: {"model": model(view.ErrorDocument)} for status in (400, 404, 409)},
}


def routes(desk: Desk) -> APIRouter:
    """`/drills`."""
    router = APIRouter()
    schema = model(drilling.DrillBody).model_json_schema()
    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}

    @router.get("/drills", responses={200: {"model": model(drilling.DrillsDocument)}})
    async def drills() -> Response:
        """Drills, newest first: whether traffic moved and how soon, whether capacity held, what failed, who ended it and why."""
        return json_answer({"drills": desk.drills.rows()})

    @router.post("/drills", responses=_ANSWERS, openapi_extra=body)
    async def drill(request: Request) -> Response:
        """Hold lines to have failed, or to be slow, for a time: on a copy, or (`real`) from the next tick on."""
        try:
            document = orjson.loads(await request.body())
        except orjson.JSONDecodeError as error:
            raise RefusedError(400, "malformed_json", f"the body is no JSON: {error}") from error
        return json_answer(await desk.drills.play(drilling.read_drill(document), principal=principal_of(request)))

    return router
