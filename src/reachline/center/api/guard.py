"""Before any route: who may ask, from which page, and how much a body may weigh. Plain ASGI, so that streams pass untouched."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reachline.center.api.entry import OPEN, TOLD, Entry
from reachline.center.api.refused import RefusedError
from reachline.center.board import dumps
from reachline.store.audit import Deed
from reachline.wire import view

__all__ = ["MAX_BODY", "Guard", "shows"]

log = logging.getLogger("reachline.center.http")

MAX_BODY: Final = 1 << 20
"""Bytes: a batch of 1 000 outcomes is a tenth of it."""
_MOST_TEXT: Final = 500
"""Characters of what is noted of a request."""
_ERROR: Final = 400
"""Statuses from here on are errors."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """Wraps the application. `entry` knows who may ask for what; without it `token` lets in, and without that whoever reaches the
    socket. `closing` set: the center stops. `noted` hears of what people do.

    `refused` hears the status of every answer that is an error.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        closing: asyncio.Event,
        token: str = "",
        entry: Entry | None = None,
        noted: Callable[[Deed], None] = lambda _: None,
        refused: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._app = app
        self._closing = closing
        self._token = token
        self._entry = entry
        self._noted = noted
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
            self._note(scope, refused[0])
            await (
                _to_log_in(send, scope) if self._asks_a_page(scope, headers, refused[0]) else _answer(send, *refused)
            )

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request that the server cancels when its grace is over ends here: as one that was cut, not as a fault of ours."""
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def noted(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            if message["type"] == "http.response.start":
                if message["status"] >= _ERROR:
                    self._told(message["status"])
                self._note(scope, message["status"])
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
        if refused := self._unknown(scope, headers):
            return refused
        is_write = scope["type"] == "websocket" or scope["method"] not in _READING
        if is_write and not _is_own_page(headers):
            return 403, "foreign_origin", "requests from another site's page are not taken"
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY:
            return 413, "too_large", f"a body of {length} bytes; at most {MAX_BODY} are taken"
        return None

    def _unknown(self, scope: Scope, headers: Headers) -> tuple[int, str, str] | None:
        if self._entry is not None:
            return self._entry.refused(scope, headers)
        if self._token and scope["path"] not in OPEN and not shows(headers.get("authorization", ""), self._token):
            return 401, "unauthorized", "this center asks for its token: Authorization: Bearer …"
        return None

    def _asks_a_page(self, scope: Scope, headers: Headers, status: int) -> bool:
        """A browser that is shown where to log in."""
        is_page = scope["method"] == "GET" and "text/html" in headers.get("accept", "")
        return self._entry is not None and status == 401 and is_page

    def _note(self, scope: Scope, status: int) -> None:
        """What a person did, or was refused; what programs tell all day is not noted."""
        method, path = scope.get("method", ""), scope["path"]
        if scope["type"] != "http" or method in _READING or path in TOLD:
            return
        principal = scope.get("state", {}).get("principal", "")
        address = (scope.get("client") or ("",))[0]
        query = scope.get("query_string", b"").decode("ascii", "replace")
        what = _plain(f"{method} {path}{'?' * bool(query)}{query}")
        self._noted(Deed(at=datetime.now(UTC), who=_plain(principal), address=address, what=what, status=status))


def _plain(text: str) -> str:
    """A stranger's text for a terminal: what commands one is spelled out."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[:_MOST_TEXT])[:_MOST_TEXT]


async def _to_log_in(send: Send, scope: Scope) -> None:
    after = quote(scope["path"], safe="/")
    headers = [(b"location", f"/login.html?next={after}".encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


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
