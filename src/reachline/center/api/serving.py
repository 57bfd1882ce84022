"""The plain JSON door of every SDK: one cluster's lines by ETag, long poll or stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from reachline.center.api.desk import Desk
from reachline.center.api.reading import unknown_cluster
from reachline.center.api.refused import RefusedError
from reachline.center.api.schema import model
from reachline.model import Seconds, Version
from reachline.wire import listed, view

__all__ = ["event", "routes", "streaming"]

_LONGEST_WAIT: Final[Seconds] = 60.0
"""Proxies on the way end an idle request at about this."""
_KEEP_ALIVE: Final[Seconds] = 10.0
"""A comment this often tells a streaming client that the center is there, and us that the client is."""
_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def version_of(text: str) -> Version | None:
    """The version a client names, as `E.C`, quoted or weak like an ETag; None for none, refused where it is nonsense."""
    bare = text.strip().removeprefix("W/").strip('"')
    if not bare or bare == "*":
        return None
    epoch, dot, counter = bare.partition(".")
    if not (dot and epoch.isdecimal() and counter.isdecimal() and len(bare) <= 40):
        raise RefusedError(
            400, "malformed_version", f"{text!r} is no version", "a version reads epoch.counter, as in `version`"
        )
    return Version(int(epoch), int(counter))


def event(name: str, body: bytes, id_: object) -> bytes:
    """One server-sent event. JSON has no line feeds, so one data line holds it."""
    return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), str(id_).encode(), body)


def streaming(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Events as they come."""
    return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)


def routes(desk: Desk) -> APIRouter:
    """`/clusters/{cluster}/lines`."""
    router = APIRouter()
    board = desk.board

    @router.get(
        "/clusters/{cluster}/lines",
        responses={
            200: {"model": model(listed.ClusterDocument)},
            304: {"description": "Nothing newer than the version named, within the wait asked for."},
            404: {"model": model(view.ErrorDocument)},
        },
    )
    async def lines(
        request: Request,
        cluster: str,
        *,
        wait: Annotated[
            float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for something newer, at most 60.")
        ] = 0,
        version: Annotated[str, Query(description="The version you have, instead of If-None-Match.")] = "",
        stream: Annotated[bool, Query(description="Server-sent events: the document now and at every change.")] = False,
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """The cluster's lines as published, with all a client needs to go on alone."""
        if cluster not in board.clusters:
            raise unknown_cluster(desk, cluster)
        has = version_of(version or if_none_match)
        if has is not None and not desk.owner.outrank(has):
            raise RefusedError(
                400, "impossible_version", f"version {has} was never published here", "start without a version"
            )
        if stream or "text/event-stream" in request.headers.get("accept", ""):
            return streaming(_events(desk, cluster, has))
        await _newer(desk, cluster, has, min(wait, _LONGEST_WAIT))
        return _answer(desk, cluster, has)

    return router


async def _newer(desk: Desk, cluster: str, has: Version | None, wait: Seconds) -> None:
    """Returns when the cluster has another version than `has`, when `wait` is over, or when the center closes."""
    cell = desk.board.clusters[cluster]
    if wait and cell.value.version == has and not desk.board.is_closing:
        await cell.changed(within=wait)


def _answer(desk: Desk, cluster: str, has: Version | None) -> Response:
    cell = desk.board.clusters.get(cluster)
    if cell is None:
        raise unknown_cluster(desk, cluster)
    headers = {"ETag": f'"{cell.value.version}"', **_HEADERS}
    if cell.value.version == has:
        return Response(status_code=304, headers=headers)
    return Response(desk.board.body(cluster), media_type="application/json", headers=headers)


async def _events(desk: Desk, cluster: str, has: Version | None) -> AsyncIterator[bytes]:
    """The document whenever its version changes; a slow reader skips versions, never delays them."""
    while not desk.board.is_closing:
        cell = desk.board.clusters.get(cluster)
        if cell is None:
            return
        if cell.value.version != has:
            has = cell.value.version
            yield event("lines", desk.board.body(cluster), has)
        elif not await cell.changed(within=_KEEP_ALIVE):
            yield b": still here\n\n"
