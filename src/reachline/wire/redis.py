"""Redis as much as a probe needs: commands as bytes, simple replies read piece by piece, in bounded memory.

Arrays, maps and the like are answers that no command of a probe has: `RemoteProtocolError`, as is everything malformed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from reachline.errors import RemoteProtocolError

__all__ = ["MAX_LINE", "Replies", "Reply", "command"]

MAX_LINE: Final = 1_024
"""Bytes of a reply's line; Redis' own errors are below 200."""
_MAX_BULK: Final = 4_096
"""Bytes of a bulk string: PONG needs four."""
_MAX_REPLIES: Final = 16
"""Replies taken of one connection: a probe asks three things at most."""
_MAX_DIGITS: Final = 19
"""Of a number: those of 64 bits."""


class Reply(NamedTuple):
    """One reply: `+` text, `-` error, `:` number, `$` bulk text (`found` False: there is none)."""

    sort: str
    text: str
    found: bool = True


def command(*words: str) -> bytes:
    """A command as clients send it: an array of bulk strings."""
    raws = [word.encode() for word in words]
    return b"*%d\r\n" % len(raws) + b"".join(b"$%d\r\n%b\r\n" % (len(raw), raw) for raw in raws)


class Replies:
    """Replies as they become whole. RemoteProtocolError ends it."""

    __slots__ = ("_buffer", "_bulk", "taken")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._bulk = -1
        """Bytes of the bulk string that is being read; -1: none is."""
        self.taken = 0
        """Replies so far."""

    @property
    def started(self) -> bool:
        """Whether anything at all has come."""
        return bool(self.taken or self._buffer or self._bulk >= 0)

    def feed(self, data: bytes) -> tuple[Reply, ...]:
        """The replies that end in `data`."""
        self._buffer += data
        found = []
        while (reply := self._next()) is not None:
            found.append(reply)
            self.taken += 1
            if self.taken > _MAX_REPLIES:
                raise RemoteProtocolError(f"more than {_MAX_REPLIES} replies")
        return tuple(found)

    def _next(self) -> Reply | None:
        if self._bulk >= 0:
            return self._read_bulk()
        end = self._buffer.find(b"\r\n", 0, MAX_LINE + 2)
        if end < 0:
            self._check_begun()
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        sort, text = line[:1], line[1:]
        match sort:
            case b"+" | b"-":
                return Reply(sort.decode(), text.decode("utf-8", "backslashreplace"))
            case b":":
                return Reply(":", str(_number(text)))
            case b"$":
                return self._begin_bulk(_number(text))
            case _:
                raise RemoteProtocolError("not a Redis reply")

    def _check_begun(self) -> None:
        if self._buffer and self._buffer[0] not in b"+-:$":
            raise RemoteProtocolError("not a Redis reply")
        if len(self._buffer) > MAX_LINE:
            raise RemoteProtocolError(f"reply line of more than {MAX_LINE} bytes")

    def _begin_bulk(self, size: int) -> Reply | None:
        if size == -1:
            return Reply("$", "", found=False)
        if not 0 <= size <= _MAX_BULK:
            raise RemoteProtocolError(f"bulk reply of {size} bytes, at most {_MAX_BULK} are taken")
        self._bulk = size
        return self._read_bulk()

    def _read_bulk(self) -> Reply | None:
        size = self._bulk
        if len(self._buffer) < size + 2:
            return None
        if self._buffer[size : size + 2] != b"\r\n":
            raise RemoteProtocolError("bulk reply longer than its size")
        text = bytes(self._buffer[:size]).decode("utf-8", "backslashreplace")
        del self._buffer[: size + 2]
        self._bulk = -1
        return Reply("$", text)


def _number(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if not (digits.isdigit() and len(digits) <= _MAX_DIGITS):
        raise RemoteProtocolError("a number of Redis is none")
    return int(text)
