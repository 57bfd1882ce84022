"""GET: who follows this center by xDS, what they took and what they refused."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from reachline.center.api.desk import Desk
from reachline.center.api.reading import json_answer
from reachline.center.api.schema import model
from reachline.wire.steered import SteeredDocument

__all__ = ["routes"]

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {200: {"model": model(SteeredDocument)}}


def routes(desk: Desk) -> APIRouter:
    """`/xds`."""
    router = APIRouter()

    @router.get("/xds", responses=_ANSWERS)
    async def xds(
        node: Annotated[str, Query(description="Only streams of this node.")] = "",
        trouble: Annotated[bool, Query(description="Only streams that refused something, or take nothing.")] = False,
    ) -> Response:
        """Clients that follow this center by xDS (Envoy, gRPC, our proxy): what each is told, took, and refused with its reason."""
        return json_answer(desk.xds(node, trouble))

    return router
