"""HTTP/1.1 as much as a probe needs: one request as bytes, one response read piece by piece, in bounded memory.

Refuses to know expectations and redirects. Broken framing is `RemoteProtocolError`; a peer may send anything at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final

from reachline.errors import RemoteProtocolError

__all__ = ["MAX_HEAD", "USUAL", "Response", "request", "whole"]

MAX_HEAD: Final = 32 << 10
"""Bytes of status line and headers, interim responses included; servers send 8 to 16 KiB at most."""
_MAX_SIZE_LINE: Final = 256
"""A chunk's size line with its extensions."""
_MAX_CHUNKS: Final = 1_024
"""Chunks that may be of any size…"""
_SMALL: Final = 16
"""…and bytes that all others have on average: one of a single byte costs us ten microseconds."""
_MAX_DIGITS: Final = 15
"""Of a length: a petabyte is more than anybody sends."""
_MAX_INTERIM: Final = 8
"""1xx responses before the real one."""
_HEAD: Final = re.compile(rb"HTTP/1\.\d (\d{3})(?: [^\r\n]*)?((?:\r?\n[^\s:][^:\r\n]*:[^\r\n]*)*)")
_FRAMING: Final = re.compile(rb"\n(content-length|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
"""Found in C: a probe reads one head each time, and these two headers of it."""
_OTHER: Final = rb"(?:(?!content-length|transfer-encoding)[^\s:][^:\r\n]*:[^\r\n]*\r\n)*"
_SIZED: Final = re.compile(
    rb"(?-i:HTTP)/1\.\d ([2-5]\d\d)(?: [^\r\n]*)?\r\n"
    + _OTHER
    + rb"content-length: (\d{1,%d})\r\n" % _MAX_DIGITS
    + _OTHER
    + rb"\r\n",
    re.IGNORECASE,
)
"""A head as nearly all are: strict line ends, one content-length that is a number, no other framing."""
_FINAL: Final = 200
_BODILESS: Final = frozenset((204, 304))


USUAL: Final = (("User-Agent", "reachline"), ("Accept", "*/*"))
"""Header fields of every request that does not say them itself."""


def request(method: str, path: str, host: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """The request as bytes, one connection for it alone."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    given = {name.lower() for name, _ in headers}
    defaults = (*USUAL, ("Connection", "close"))
    lines += [f"{name}: {value}" for name, value in defaults if name.lower() not in given]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def whole(data: bytes, *, to_head: bool = False) -> int:
    """The status where `data` holds a whole response of the plainest kind, well-formed; 0 where `Response` must look.

    Never says more than `Response` would: a body by one content-length or none at all, no interim response.
    """
    if not to_head and (match := _SIZED.match(data)):
        status, end = int(match[1]), match.end()
        is_whole = status in _BODILESS or len(data) - end >= int(match[2])
        return status if is_whole and end <= MAX_HEAD else 0
    end = data.find(b"\r\n\r\n")
    if end < 0 or end > MAX_HEAD - 4 or not (match := _HEAD.fullmatch(data, 0, end)):
        return 0
    status = int(match[1])
    return status if status >= _FINAL and (to_head or status in _BODILESS) else 0


class _Part(Enum):
    HEAD = "header"
    SIZED = "body"
    CHUNK_SIZE = "chunk size"
    CHUNK = "chunk"
    CHUNK_END = "chunk end"
    TRAILER = "trailer"
    REST = "body without a length"
    DONE = "end"


class Response:
    """One response. `feed` until `done`; `kept` holds the first `keep` bytes of the body, `size` counts all of it."""

    __slots__ = (
        "_buffer",
        "_chunks",
        "_fields",
        "_head_seen",
        "_interim",
        "_keep",
        "_left",
        "_part",
        "_to_head",
        "kept",
        "size",
        "status",
    )

    def __init__(self, *, to_head: bool = False, keep: int = 0) -> None:
        """`to_head`: the request was HEAD, so no body follows whatever the headers say."""
        self.status = 0
        self._fields = b""
        self.kept = bytearray()
        self.size = 0
        self._to_head = to_head
        self._keep = keep
        self._part = _Part.HEAD
        self._buffer = bytearray()
        self._head_seen = 0
        self._interim = 0
        self._chunks = 0
        self._left = 0

    @property
    def done(self) -> bool:
        """Whether the response is whole."""
        return self._part is _Part.DONE

    @property
    def headers(self) -> dict[str, str]:
        """Names in lower case; values of one name joined by commas."""
        found: dict[str, list[str]] = {}
        for line in self._fields.split(b"\n")[1:]:
            name, _, value = line.partition(b":")
            key, text = name.strip().decode("latin-1").lower(), value.strip().decode("latin-1")
            found.setdefault(key, []).append(text)
        return {key: ", ".join(texts) for key, texts in found.items()}

    @property
    def part(self) -> str:
        """Where in the response we are, in words."""
        return self._part.value

    @property
    def rest(self) -> bytes:
        """What came behind the response once it is whole: after a CONNECT, the first words of the other side."""
        return bytes(self._buffer) if self.done else b""

    @property
    def started(self) -> bool:
        """Whether anything at all has come."""
        return self.status != 0 or bool(self._buffer) or self._interim > 0

    def feed(self, data: bytes) -> None:
        """Take what arrived; bytes behind the response are ignored."""
        if self._part is _Part.HEAD and not self._buffer:
            data = self._read_whole_head(data)
        self._buffer += data
        while self._buffer and self._part is not _Part.DONE and self._step():
            pass

    def ended(self) -> bool:
        """The peer closed: whether the response is whole. RemoteProtocolError where it stops in the middle."""
        if self._part is _Part.REST:
            self._part = _Part.DONE
        if self._part is not _Part.DONE and self.started:
            raise RemoteProtocolError(f"closed within the {self._part.value}")
        return self._part is _Part.DONE

    def _step(self) -> bool:
        """One part further, False where more bytes are needed."""
        match self._part:
            case _Part.HEAD:
                return self._read_head()
            case _Part.SIZED:
                return self._read_left(_Part.DONE)
            case _Part.CHUNK:
                return self._read_left(_Part.CHUNK_END)
            case _Part.CHUNK_SIZE:
                return self._read_chunk_size()
            case _Part.CHUNK_END:
                return self._read_chunk_end()
            case _Part.TRAILER:
                return self._read_trailer()
            case _Part.REST:
                self._body(len(self._buffer))
                return True
            case _Part.DONE:
                return False

    def _read_whole_head(self, data: bytes) -> bytes:
        """The rule, not the exception: the head comes in one piece, often with its body. What is left to be read."""
        end = data.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD - self._head_seen - 4 or b"\n\n" in data[:end]:
            return data
        self._head_seen += end + 4
        self._take_head(data[:end])
        rest = data[end + 4 :]
        if self._part is _Part.SIZED and len(rest) >= self._left:
            self.size = self._left
            self.kept += rest[: min(self._keep, self._left)]
            self._part = _Part.DONE
            return b""
        return rest

    def _read_head(self) -> bool:
        end, width = _blank_line(self._buffer)
        if end < 0:
            if not _may_be_status(self._buffer):
                raise RemoteProtocolError("not HTTP")
            if len(self._buffer) + self._head_seen > MAX_HEAD:
                raise RemoteProtocolError(f"header of more than {MAX_HEAD} bytes")
            return False
        head = bytes(self._buffer[:end])
        del self._buffer[: end + width]
        self._head_seen += end + width
        if self._head_seen > MAX_HEAD:
            raise RemoteProtocolError(f"header of more than {MAX_HEAD} bytes")
        self._take_head(head)
        return True

    def _take_head(self, head: bytes) -> None:
        status, fields = _parse_head(head)
        if 100 <= status < 200 and status != 101:
            self._interim += 1
            if self._interim > _MAX_INTERIM:
                raise RemoteProtocolError(f"more than {_MAX_INTERIM} interim responses")
            return
        self.status, self._fields = status, fields
        self._part = self._framing()

    def _framing(self) -> _Part:
        """How the body ends (RFC 9112, 6.3)."""
        if self._to_head or self.status in _BODILESS or self.status == 101:
            return _Part.DONE
        found = _FRAMING.findall(self._fields)
        framing = {name.lower(): value for name, value in found}
        if coding := framing.get(b"transfer-encoding"):
            return _Part.CHUNK_SIZE if coding.lower().split(b",")[-1].strip() == b"chunked" else _Part.REST
        if (length := framing.get(b"content-length")) is None:
            return _Part.REST
        if len(found) > 1:
            length = b",".join(value for _, value in found)
        lengths = {each.strip() for each in length.split(b",")}
        if len(lengths) > 1:
            raise RemoteProtocolError("more than one content-length")
        self._left = _decimal(lengths.pop())
        return _Part.SIZED if self._left else _Part.DONE

    def _read_left(self, then: _Part) -> bool:
        self._left -= self._body(min(self._left, len(self._buffer)))
        if self._left == 0:
            self._part = then
        return True

    def _read_chunk_size(self) -> bool:
        if (line := self._line("chunk size")) is None:
            return False
        self._left = _hexadecimal(line.split(b";")[0].strip())
        self._part = _Part.CHUNK if self._left else _Part.TRAILER
        self._chunks += 1
        if self._chunks > _MAX_CHUNKS + self.size // _SMALL:
            raise RemoteProtocolError(f"more than {_MAX_CHUNKS} tiny chunks")
        return True

    def _read_chunk_end(self) -> bool:
        if (line := self._line("chunk end")) is None:
            return False
        if line:
            raise RemoteProtocolError("chunk longer than its size")
        self._part = _Part.CHUNK_SIZE
        return True

    def _read_trailer(self) -> bool:
        if (line := self._line("trailer")) is None:
            return False
        self._head_seen += len(line) + 2
        if self._head_seen > MAX_HEAD:
            raise RemoteProtocolError(f"header and trailer of more than {MAX_HEAD} bytes")
        if not line:
            self._part = _Part.DONE
        return True

    def _line(self, what: str) -> bytes | None:
        end = self._buffer.find(b"\n", 0, _MAX_SIZE_LINE if what != "trailer" else MAX_HEAD)
        if end < 0:
            if len(self._buffer) >= (_MAX_SIZE_LINE if what != "trailer" else MAX_HEAD):
                raise RemoteProtocolError(f"{what} line too long")
            return None
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        return line

    def _body(self, count: int) -> int:
        room = self._keep - len(self.kept)
        if room > 0:
            self.kept += self._buffer[: min(room, count)]
        del self._buffer[:count]
        self.size += count
        return count


def _blank_line(buffer: bytearray) -> tuple[int, int]:
    """Where the head ends and how wide its end is; bare line feeds are tolerated as every client does."""
    strict = buffer.find(b"\r\n\r\n")
    loose = buffer.find(b"\n\n", 0, strict if strict >= 0 else len(buffer))
    if loose >= 0:
        return loose, 2
    return strict, 4


def _may_be_status(buffer: bytearray) -> bool:
    return buffer.startswith(b"HTTP/1."[: len(buffer)])


def _parse_head(head: bytes) -> tuple[int, bytes]:
    """(status, header lines, each after its line feed)."""
    if match := _HEAD.fullmatch(head):
        status = int(match[1])
        if status < 100:
            raise RemoteProtocolError("status below 100")
        return status, match[2]
    first = head.split(b"\n", 1)[0].rstrip(b"\r")
    raise RemoteProtocolError("malformed header line" if _HEAD.fullmatch(first) else "not HTTP")


def _decimal(text: bytes) -> int:
    if not (text.isdigit() and len(text) <= _MAX_DIGITS):
        raise RemoteProtocolError("content-length is not a number")
    return int(text)


def _hexadecimal(text: bytes) -> int:
    if not 1 <= len(text) <= _MAX_DIGITS or text.strip(b"0123456789abcdefABCDEF"):
        raise RemoteProtocolError("chunk size is not a number")
    return int(text, 16)
