"""Bytes of an endpoint to answers, by httptools. Pure. What breaks the protocol is an answer that cannot be believed."""

from __future__ import annotations

import re
from typing import Final

import httptools

from reachline.proxy.message import Answer

__all__ = ["AnswerReader"]

_SPECIAL: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"content-length"}
)
_TOKENS: Final = re.compile(rb"[^,\s][^,]*")
_LEAST: Final = 100
_SWITCHING: Final = 101
_NO_CONTENT: Final = 204
_BODILESS: Final = (204, 304)


class AnswerReader:
    """One connection's bytes. `expect` begins each answer; `answer` holds what came of it, `broken` why it cannot be believed."""

    __slots__ = (
        "_count", "_head", "_in_head", "_is_head_only", "_keeps_trailers", "_most_bytes", "_most_headers", "_nominated", "_parser", "_stalled",
        "_upgrade", "answer", "broken", "rest",
    )  # fmt: skip

    def __init__(self, *, most_headers: int, most_bytes: int, trailers: bool = True) -> None:
        """`trailers`: whether they are kept."""
        self.answer: Answer | None = None
        self.broken = ""
        self.rest: bytes | None = None
        """After 101: the first bytes of the other protocol."""
        self._most_headers: Final = most_headers
        self._most_bytes: Final = most_bytes
        self._keeps_trailers: Final = trailers
        self._parser = httptools.HttpResponseParser(self)
        self._is_head_only = False
        self._in_head = False
        self._head = self._count = 0
        self._stalled = 0
        """Bytes that came since the last one of a body in chunks."""
        self._nominated: list[bytes] = []
        self._upgrade = b""

    def expect(self, *, head_only: bool) -> Answer:
        """The answer to a request that is sent now; `head_only`: to HEAD, so that no body follows whatever it says."""
        self.answer = Answer()
        self._is_head_only = head_only
        return self.answer

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        answer = self.answer
        if answer is None or answer.is_complete:
            self.broken = "bytes without a request"
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            self.rest = data[error.args[0] :]
        except httptools.HttpParserError as error:
            self.broken = self.broken or str(error) or "not HTTP/1.1"
            return
        if self._in_head or not answer.is_complete:
            self._bound(answer, len(data))
        if self._is_head_only and self._is_whole():
            # The parser waits for the body that the headers announce.
            self._parser = httptools.HttpResponseParser(self)

    def _bound(self, answer: Answer, size: int) -> None:
        """Of a header that is not over nothing is told yet, nor of a trailer or what else stands between chunks."""
        if self._in_head:
            self._head += size
        else:
            self._stalled = 0 if answer.chunks else self._stalled + size
        if max(self._head, self._stalled) > 2 * self._most_bytes:
            self.broken = "headers too large"

    def _is_whole(self) -> bool:
        return self.answer is not None and self.answer.is_complete

    def ended(self) -> bool:
        """The endpoint closed; whether that is where the answer ends."""
        answer = self.answer
        if answer is None or not answer.is_begun or answer.length is not None:
            return False
        answer.is_complete, answer.keeps = True, False
        return True

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._in_head, self._head, self._count = True, 0, 0
        self._nominated, self._upgrade = [], b""
        answer = self.answer
        if answer is None or answer.is_complete:
            self.broken = "more than one answer"
            raise _BrokenError

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        self._head += len(name) + len(value)
        if self._count > self._most_headers or self._head > self._most_bytes:
            self.broken = "headers too large"
            raise _BrokenError
        answer, name = self.answer, name.lower()
        assert answer is not None
        if not self._in_head:
            if self._keeps_trailers:
                answer.trailers.append((name, value))
        elif name not in _SPECIAL:
            answer.headers.append((name, value))
        else:
            self._take(answer, name, value)

    def on_headers_complete(self) -> None:
        answer, parser = self.answer, self._parser
        assert answer is not None
        self._in_head = False
        status = parser.get_status_code()
        if status < _LEAST or (status == _NO_CONTENT and answer.length):
            # RFC 9110, 15.3.5: with a length or chunks nobody knows where it ends.
            self.broken = "no such status" if status < _LEAST else "a body after 204"
            raise _BrokenError
        if status < 200 and status != _SWITCHING:
            # 100 and 103: the client was told, or did not ask.
            answer.headers, answer.length = [], None
            return
        answer.status, answer.is_begun, answer.keeps = status, True, parser.should_keep_alive()
        if self._nominated:
            dropped = {each for each in self._nominated if each not in _SPECIAL}
            if dropped:
                answer.headers = [each for each in answer.headers if each[0] not in dropped]
        if status == _SWITCHING:
            answer.headers.append((b"upgrade", self._upgrade))
        elif self._is_head_only or status in _BODILESS:
            answer.is_complete = True

    def on_body(self, data: bytes) -> None:
        answer = self.answer
        assert answer is not None
        if self._is_head_only:
            self.broken = "a body after HEAD"
            raise _BrokenError
        answer.chunks.append(data)

    def on_message_complete(self) -> None:
        answer = self.answer
        assert answer is not None
        if answer.is_begun and answer.status != _SWITCHING:
            answer.is_complete = True

    def _take(self, answer: Answer, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            if answer.length is None:
                answer.length = int(value)
            answer.headers.append((name, value))
        elif name == b"transfer-encoding":
            if value.strip().lower() != b"chunked":
                self.broken = "unknown transfer coding"
                raise _BrokenError
            answer.length = -1
        elif name == b"connection":
            self._nominated += (each.strip().lower() for each in _TOKENS.findall(value))
        elif name == b"upgrade":
            self._upgrade = value


class _BrokenError(Exception):
    """Out of the parser; `broken` says why."""
