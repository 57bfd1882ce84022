"""Orders of operators over HTTP: given, listed, undone; with `dry_run` only foreseen."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from reachline.center.api.desk import Desk
from reachline.center.api.entry import principal_of
from reachline.center.api.reading import json_answer
from reachline.center.api.refused import RefusedError
from reachline.center.api.schema import model
from reachline.wire import ordering, view

__all__ = ["routes"]

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": model(view.ErrorDocument)} for status in (400, 404, 409)
}
_HIGHEST: Final = 2**53
_DRY_RUN = Query(description="Only tell what it would do.")


def routes(desk: Desk) -> APIRouter:
    """`/orders`."""
    router = APIRouter()
    schema = model(ordering.OrderBody).model_json_schema()
    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
    placed: dict[int | str, dict[str, Any]] = {200: {"model": model(ordering.PlacedDocument)}, **_ANSWERS}

    @router.get("/orders", responses={200: {"model": model(ordering.OrdersDocument)}})
    async def orders(
        over: Annotated[bool, Query(description="Those that ended too.")] = False,
    ) -> Response:
        """Orders in force, newest first: who, what, which lines, until when, why."""
        return json_answer({"orders": desk.orders.rows(over=over)})

    @router.post("/orders", responses=placed, openapi_extra=body)
    async def order(
        request: Request,
        dry_run: Annotated[bool, _DRY_RUN] = False,
    ) -> Response:
        """Drain, undrain, weigh, set aside, open or close lines for a time; in force at the next tick."""
        try:
            document = orjson.loads(await request.body())
        except orjson.JSONDecodeError as error:
            raise RefusedError(400, "malformed_json", f"the body is no JSON: {error}") from error
        return json_answer(
            await desk.orders.place(ordering.read_order(document), dry_run=dry_run, principal=principal_of(request))
        )

    @router.delete("/orders/{number}", responses=placed)
    async def undo(
        request: Request,
        number: Annotated[int, Path(ge=0, le=_HIGHEST, description="The order's id.")],
        reason: Annotated[str, Query(max_length=500, description="Why it ends.")] = "",
        dry_run: Annotated[bool, _DRY_RUN] = False,
    ) -> Response:
        """End an order before its time; in force at the next tick."""
        return json_answer(
            await desk.orders.undo(number, reason=reason, dry_run=dry_run, principal=principal_of(request))
        )

    return router
