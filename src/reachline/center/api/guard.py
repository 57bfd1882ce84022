"""Before any route: who may ask, from which page, and how much a body may weigh. Plain ASGI, so that streams pass untouched."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reachline.center.api.refused import RefusedError
from reachline.center.board import dumps
from reachline.wire import view

__all__ = ["MAX_BODY", "Guard", "shows"]

log = logging.getLogger("reachline.center.http")

MAX_BODY: Final = 1 << 20
"""Bytes: a batch of 1 000 outcomes is a tenth of it."""
_OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Health checks of containers and load balancers have no token, and learn nothing but yes or no."""
_ERROR: Final = 400
"""Statuses from here on are errors."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """Wraps the application. `token` empty: everybody who reaches the socket may ask; for `open_paths` nobody needs it. `closing`
    set: the center stops.

    `refused` hears the status of every answer that is an error.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        closing: asyncio.Event,
        token: str = "",
        open_paths: frozenset[str] = frozenset(),
        refused: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._app = app
        self._closing = closing
        self._token = token
        self._open = _OPEN_PATHS | open_paths
        self._told = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refused(scope, headers)
        if refused is None:
            await self._answered(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refused[1]})
        else:
            self._told(refused[0])
            await _answer(send, *refused)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request that the server cancels when its grace is over ends here: as one that was cut, not as a fault of ours."""
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def noted(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            if message["type"] == "http.response.start" and message["status"] >= _ERROR:
                self._told(message["status"])
            await send(message)

        try:
            await self._app(scope, _limited(_ended_by(self._closing, receive)), noted)
        except asyncio.CancelledError:
            if not self._closing.is_set():
                raise
            log.info("request_cut_short", extra={"path": scope["path"]})
            if not is_answered:
                # Never a batch that was counted: those wait half a second at most, and the grace is longer.
                await _answer(send, 503, "stopping", "the center stops")

    def _refused(self, scope: Scope, headers: Headers) -> tuple[int, str, str] | None:
        """Status, code and message of the refusal, or None."""
        if self._token and scope["path"] not in self._open and not shows(headers.get("authorization", ""), self._token):
            return 401, "unauthorized", "this center asks for its token: Authorization: Bearer …"
        is_write = scope["type"] == "websocket" or scope["method"] not in _READING
        if is_write and not _is_own_page(headers):
            return 403, "foreign_origin", "requests from another site's page are not taken"
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY:
            return 413, "too_large", f"a body of {length} bytes; at most {MAX_BODY} are taken"
        return None


def shows(authorization: str, token: str) -> bool:
    """A bearer token, or a browser's Basic password, equal to the token."""
    kind, _, value = authorization.partition(" ")
    shown = value.strip()
    if kind.lower() == "basic":
        try:
            shown = base64.b64decode(shown, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return False
    return kind.lower() in ("bearer", "basic") and hmac.compare_digest(shown.encode(), token.encode())


def _is_own_page(headers: Headers) -> bool:
    """No Origin (not a browser), or our own."""
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")


def _ended_by(closing: asyncio.Event, receive: Receive) -> Receive:
    """While a body is on its way, the end of the center ends the request; afterwards only its own answer does."""
    is_whole = False

    async def ended() -> Message:
        nonlocal is_whole
        if is_whole:
            return await receive()
        async with asyncio.TaskGroup() as tasks:
            receiving, ending = tasks.create_task(_message(receive)), tasks.create_task(closing.wait())
            await asyncio.wait((receiving, ending), return_when=asyncio.FIRST_COMPLETED)
            receiving.cancel()
            ending.cancel()
        if receiving.cancelled():
            return {"type": "http.disconnect"}
        message = receiving.result()
        is_whole = not message.get("more_body", False)
        return message

    return ended


async def _message(receive: Receive) -> Message:
    return await receive()


def _limited(receive: Receive) -> Receive:
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY:
            raise RefusedError(413, "too_large", f"a body beyond {MAX_BODY} bytes")
        return message

    return limited


async def _answer(send: Send, status: int, code: str, message: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="Reachline", Bearer'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": dumps(view.error(code, message))})
