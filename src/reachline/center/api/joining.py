"""A new member over HTTP: it shows a token and is certified. Anybody may ask; the token is what lets in."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, ConfigDict, Field

from reachline.center.api.desk import Desk
from reachline.center.api.reading import json_answer
from reachline.center.api.refused import RefusedError
from reachline.center.api.schema import model
from reachline.errors import RemoteProtocolError
from reachline.wire import view

__all__ = ["routes"]

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": model(view.ErrorDocument)} for status in (400, 403, 404, 429)
}


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: str = Field(max_length=200, description="As `reachline ca token` printed it.")
    name: str = Field("", max_length=63, description="The name it wants, where the token does not say one.")
    request: str = Field(max_length=64 << 10, description="A request for a certificate, PEM.")


class _Given(BaseModel):
    name: str = Field(description="Who it is from now on.")
    identity: str = Field(description="The same as it stands in the certificate.")
    certificate: str = Field(description="The chain, PEM.")
    ca: str = Field(description="Whom to trust, PEM.")


def routes(desk: Desk) -> APIRouter:
    """`/ca` and `/join`."""
    router = APIRouter()

    @router.get("/ca", responses={200: {"content": {"application/x-pem-file": {}}}, 404: _ANSWERS[404]})
    async def ca() -> Response:
        """The authority's certificate. Whoever holds a token compares its fingerprint with the one in it."""
        if (authority := desk.gate.authority) is None:
            raise RefusedError(404, "no_authority", "this center has no authority", "`center.ca` names one")
        return Response(authority.certificate, media_type="application/x-pem-file")

    @router.post("/join", responses={200: {"model": _Given}, **_ANSWERS})
    async def join(asked: Annotated[_Asked, Body()]) -> Response:
        """Become a member by a token, which is used up by it."""
        try:
            joined = await desk.gate.join(asked.token, asked.name, asked.request.encode())
        except PermissionError as error:
            raise RefusedError(403, "not_let_in", str(error)) from error
        except RemoteProtocolError as error:
            raise RefusedError(400, "bad_request", str(error)) from error
        except TimeoutError as error:
            raise RefusedError(429, "too_many", str(error)) from error
        given = _Given(
            name=joined.identity.name,
            identity=joined.identity.uri,
            certificate=joined.certificate.decode(),
            ca=joined.authority.decode(),
        )
        return json_answer(given.model_dump())

    return router
