"""What a target is, and what several of them use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "HTTP",
    "HTTP_TOKENS",
    "LONGEST_NOTE",
    "ROOT",
    "SERVING",
    "SHAPES",
    "Target",
    "dns_answer",
    "framed",
    "pieces",
    "text_of",
]


ROOT: Final = Path(__file__).parent.parent.parent


LONGEST_NOTE: Final = 1_000
"""Characters of a failure in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One parser: `errors` are all that it may raise. One that is slow is begun first where several share the work."""

    name: str
    run: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...] = ()
    is_slow: bool = False


def pieces(data: bytes) -> Iterator[bytes]:
    """The input behind its first two bytes as it may arrive: whole, or in pieces of one to 61 bytes."""
    how, body = data[:2], data[2:]
    if len(how) < 2 or not how[0] & 1:
        yield from (body,) if body else ()
        return
    at = 0
    while at < len(body):
        size = 1 + (how[0] * (at + 1) + how[1]) % 61
        yield body[at : at + size]
        at += size


def framed(*answers: bytes) -> tuple[bytes, ...]:
    """Whole, and in pieces."""
    return tuple(how + each for each in answers for how in (b"\x00\x00", b"\x03\x07"))


HTTP: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nok\n\r\n0\r\nTrailer: x\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 503 Busy\nServer: old\n\nbody without a length",
)


HTTP_TOKENS: Final = (
    b"\r\n", b"\r\n\r\n", b"\n\n", b"HTTP/1.1 ", b"Content-Length: ", b"Transfer-Encoding: chunked", b"Connection: close", b": ",
)  # fmt: skip


def dns_answer(query: bytes) -> bytes:
    return (
        query[:2]
        + b"\x81\x80"
        + query[4:6]
        + b"\x00\x02\x00\x00\x00\x00"
        + query[12:]
        + b"".join(
            (
                b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01b\xc0\x0e",
                b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x09",
            )
        )
    )


SERVING: Final = b"\x00\x00\x00\x00\x02\x08\x01"


SHAPES: Final = (b"\x00", b"\x01\x05\x10", b"\x02\x09\x1b\x20\x04", b"\x03\x07\x15\x11\x02\x30\x1a")
"""Instructions of `reshaped`; for frames behind a byte that picks one."""


def text_of(parse: Callable[[str], object]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        parse(data.decode("utf-8", "replace"))

    return run
