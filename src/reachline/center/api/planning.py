"""GET: the plan across regions, as it stands or as it would be without one of them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from reachline.center.api.desk import Desk
from reachline.center.api.reading import json_answer
from reachline.center.api.refused import RefusedError
from reachline.center.api.schema import model
from reachline.wire import planned, view

__all__ = ["routes"]

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": model(planned.PlanDocument)},
    404: {"model": model(view.ErrorDocument)},
}


def routes(desk: Desk) -> APIRouter:
    """`/plan`."""
    router = APIRouter()

    @router.get("/plan", responses=_ANSWERS)
    async def plan(
        without: Annotated[str, Query(description="What if this region were gone? Nothing is changed by asking.")] = "",
    ) -> Response:
        """Who is carried where, calls a second by cluster and region, before and after, with reasons."""
        found = desk.owner.regions.document(desk.owner.ledgers, without)
        if found is None:
            lines = [line for cell in desk.board.cells() for line in cell.value.lines.values()]
            names = ", ".join(sorted({line.region for line in lines} - {""})) or "none: no line says region"
            raise RefusedError(404, "unknown_region", f"no line stands in region {without!r}", f"there are: {names}")
        return json_answer(found)

    return router
