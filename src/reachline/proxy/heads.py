"""First lines and headers as they leave this process, and the framing of bodies. Pure: pieces of bytes to be joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from email.utils import formatdate
from typing import Final

from reachline.proxy.flags import LocalReply, phrase
from reachline.proxy.message import Answer, Headers, Request, first

__all__ = [
    "CONTINUE",
    "LAST_CHUNK",
    "Dates",
    "answer_head",
    "described",
    "framed",
    "last",
    "local_head",
    "request_head",
]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
_STATUS: Final = {status: f"HTTP/1.1 {status} {phrase(status)}\r\n".encode() for status in range(100, 600)}
_SWITCHING: Final = 101
_BODILESS: Final = frozenset({101, 204, 304})
_BODILESS_METHODS: Final = frozenset({b"GET", b"HEAD", b"DELETE", b"TRACE", b"CONNECT"})
"""Of all others it is said that there is no body, as RFC 9110, 8.6 has it."""


class Dates:
    """The `date` header, made once a second."""

    __slots__ = ("_line", "_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._line = self._text = b""

    def at(self, wall: float) -> bytes:
        """`date: …` with its line break."""
        if int(wall) != self._second:
            self._make(int(wall))
        return self._line

    def text_at(self, wall: float) -> bytes:
        """Its value alone."""
        if int(wall) != self._second:
            self._make(int(wall))
        return self._text

    def _make(self, second: int) -> None:
        self._second, self._text = second, formatdate(second, usegmt=True).encode()
        self._line = b"date: %b\r\n" % self._text


def _lines(out: list[bytes], headers: Iterable[tuple[bytes, bytes]]) -> None:
    for name, value in headers:
        out += (name, b": ", value, b"\r\n")


def request_head(request: Request, path: bytes, host: bytes, headers: Headers) -> list[bytes]:
    """A request's head as an endpoint gets it."""
    out = [request.method, b" ", path, b" HTTP/1.1\r\nhost: ", host, b"\r\n"]
    _lines(out, headers)
    if request.upgrade:
        out += (b"connection: upgrade\r\nupgrade: ", request.upgrade, b"\r\n")
    elif request.length is None and request.method not in _BODILESS_METHODS:
        out.append(b"content-length: 0\r\n")
    out.append(b"transfer-encoding: chunked\r\n\r\n" if request.length == -1 else b"\r\n")
    return out


def answer_head(
    answer: Answer,
    headers: Headers,
    *,
    date: bytes,
    server: bytes,
    version: str,
    head_only: bool,
    closes: bool,
    keeps_explicitly: bool = False,
) -> tuple[list[bytes], bool]:
    """(pieces of an answer's head as a client gets it, whether its body goes out in chunks).

    `server`: the whole line, empty where the endpoint's own stays among `headers`.
    """
    status = answer.status
    out = [_STATUS.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status]
    _lines(out, headers)
    if first(headers, b"date") is None:
        out.append(date)
    out.append(server)
    chunked = False
    if answer.length is None or answer.length < 0:
        chunked = status not in _BODILESS and version == "1.1"
        if chunked:
            out.append(b"transfer-encoding: chunked\r\n")
    if status == _SWITCHING:
        out.append(b"connection: upgrade\r\n")
    elif closes:
        out.append(b"connection: close\r\n")
    elif keeps_explicitly:
        out.append(b"connection: keep-alive\r\n")
    out.append(b"\r\n")
    return out, chunked and not head_only


def local_head(
    reply: LocalReply, headers: Headers, *, date: bytes, server: bytes, closes: bool, head_only: bool
) -> list[bytes]:
    """A whole answer of our own, body included."""
    out = [_STATUS.get(reply.status) or b"HTTP/1.1 %d Unknown\r\n" % reply.status]
    _lines(out, headers)
    has_length = first(headers, b"content-length") is not None
    if reply.body and not has_length:
        out.append(b"content-length: %d\r\n" % len(reply.body))
        if first(headers, b"content-type") is None:
            out.append(b"content-type: text/plain\r\n")
    out += (date, server)
    if closes:
        out.append(b"connection: close\r\n")
    if not reply.body and not has_length and reply.status not in _BODILESS and reply.status >= 200:
        # Of what HEAD asked for, as in Envoy, the length is not known.
        out.append(b"transfer-encoding: chunked\r\n" if head_only else b"content-length: 0\r\n")
    out.append(b"\r\n")
    if reply.body and not head_only:
        out.append(reply.body)
    return out


def described(reply: LocalReply, headers: Headers) -> Headers:
    """Headers of an answer of our own with what its body is, where protocols say nothing else of that."""
    if not reply.body or first(headers, b"content-length") is not None:
        return headers
    found = [*headers, (b"content-length", b"%d" % len(reply.body))]
    if first(headers, b"content-type") is None:
        found.append((b"content-type", b"text/plain"))
    return found


def framed(chunks: Sequence[bytes], *, chunked: bool) -> list[bytes]:
    """Pieces of a body as they go out."""
    if not chunked:
        return list(chunks)
    out: list[bytes] = []
    for chunk in chunks:
        if chunk:
            out += (b"%x\r\n" % len(chunk), chunk, b"\r\n")
    return out


def last(trailers: Headers) -> bytes:
    """The end of a body in chunks."""
    if not trailers:
        return LAST_CHUNK
    out = [b"0\r\n"]
    _lines(out, trailers)
    out.append(b"\r\n")
    return b"".join(out)
