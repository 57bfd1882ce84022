"""Logging in and out, and who did what."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from reachline.center.api.desk import Desk
from reachline.center.api.entry import COOKIE, SESSION
from reachline.center.api.reading import json_answer
from reachline.center.api.refused import RefusedError
from reachline.center.api.schema import model
from reachline.wire import view

__all__ = ["routes"]

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": model(view.ErrorDocument)} for status in (401, 404, 429)
}
_MOST_DEEDS: Final = 1_000


class _LogIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=63)
    password: str = Field(max_length=1_000)


class _Somebody(BaseModel):
    name: str = Field(description="Who is asking; empty: nobody is told apart here.")
    role: str = Field(description="viewer, client, operator or admin.")


def routes(desk: Desk) -> APIRouter:
    """`/session` and `/audit`."""
    router = APIRouter()

    @router.get("/session", responses={200: {"model": _Somebody}, 401: _ANSWERS[401]})
    async def session(request: Request) -> Response:
        """Who is asking, and what that may do."""
        if desk.entry is None:
            return json_answer({"name": "", "role": "admin"})
        if (who := desk.entry.who(request.headers)) is None:
            raise RefusedError(401, "unauthorized", "nobody is logged in")
        return json_answer(who._asdict())

    @router.post("/session", responses={200: {"model": _Somebody}, **_ANSWERS})
    async def log_in(request: Request, asked: Annotated[_LogIn, Body()]) -> Response:
        """Begin a session of twelve hours, kept by a cookie that scripts cannot read."""
        if desk.entry is None:
            raise RefusedError(404, "no_log_in", "nobody logs in here", "`center.access` names who may")
        request.state.principal = asked.name
        secret, who = await desk.entry.log_in(asked.name, asked.password)
        answer = json_answer(who._asdict())
        is_secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, secret, max_age=round(SESSION), httponly=True, samesite="strict", secure=is_secure)
        return answer

    @router.delete("/session", responses={200: {"model": _Somebody}})
    async def log_out(request: Request) -> Response:
        """End it."""
        if desk.entry is not None:
            desk.entry.log_out(request.headers)
        answer = json_answer({"name": "", "role": ""})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    _audit(router, desk)
    return router


def _audit(router: APIRouter, desk: Desk) -> None:
    @router.get("/audit")
    async def audit(limit: Annotated[int, Query(ge=1, le=_MOST_DEEDS)] = 100) -> Response:
        """What people did, newest first: who, from where, what, and what came of it."""
        # Off the loop: that may be forty megabytes to look through.
        deeds = await asyncio.to_thread(desk.audit.newest, limit) if desk.audit else []
        rows = [
            {
                "at": deed.at.isoformat(),
                "who": deed.who,
                "address": deed.address,
                "what": deed.what,
                "status": deed.status,
            }
            for deed in deeds
        ]
        return json_answer({"deeds": rows})
