"""HTTP/1.1 on one kept connection, for a client that talks to one kind of server: no redirects, no compression, no surprises.

What the network does comes back as `Lost`, never as an exception; so does an answer that is malformed or too large.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from reachline.client.options import CenterAddress
from reachline.model import Seconds

__all__ = ["BODY_MOST", "Answer", "Connection", "Lost", "Request"]

BODY_MOST: Final = 32 << 20
"""Bytes of one answer. Ten thousand lines are below 8 MiB; four times that leaves room."""
_LINE_MOST: Final = 32 << 10
"""Bytes of the status line, of a header and of a chunk's head."""
_HEADERS_MOST: Final = 100
_IDLE_MOST: Final[Seconds] = 30.0
"""A kept connection idle for longer is not trusted with a request that may be sent only once: servers close theirs at 75 s."""
_CONNECT: Final[Seconds] = 3.0
"""Each address of a center gets this long for connect and TLS; a SYN lost once is repeated after 1 s."""


class Request(NamedTuple):
    """One request; `path` holds the query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


class Answer(NamedTuple):
    """One complete answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Lost(NamedTuple):
    """No answer, and why. `was_sent`: the server may have read the request, so it must not be repeated blindly."""

    reason: str
    was_sent: bool
    is_malformed: bool = False


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """The peer breaks HTTP or our limits."""


class Connection:
    """One connection to one center, kept between requests. Used by one task."""

    def __init__(self, center: CenterAddress, tls: ssl.SSLContext | None) -> None:
        self.center: Final = center
        self._tls: Final = tls if center.is_tls else None
        self._socket: socket.socket | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used_at: Seconds = 0.0

    async def exchange(self, request: Request, *, timeout: Seconds) -> Answer | Lost:
        """One request and its answer within `timeout` seconds, connecting where needed."""
        loop = asyncio.get_running_loop()
        if not self._is_usable(loop.time()):
            self.close()
        was_kept, sent = self._streams is not None, [False]
        try:
            async with asyncio.timeout(timeout):
                answer = await self._exchange(request, sent)
        except asyncio.CancelledError:
            # Half an answer may still be on its way: the next request must not read it.
            self.close()
            raise
        except TimeoutError:
            lost = Lost(f"no answer within {timeout:g} s", was_sent=sent[0])
        except _Refused as error:
            lost = Lost(str(error), was_sent=True, is_malformed=True)
        except (OSError, asyncio.IncompleteReadError) as error:
            lost = Lost(_words(error), was_sent=sent[0])
        else:
            self._used_at = loop.time()
            if answer.headers.get("connection", "").lower() == "close":
                self.close()
            return answer
        self.close()
        if was_kept and request.method == "GET" and not lost.is_malformed:
            # A kept connection may have been closed by the server just now: one fresh try tells.
            return await self.exchange(request, timeout=timeout)
        return lost

    def close(self) -> None:
        """Let go of the connection; the next request makes a new one."""
        if self._streams is not None:
            self._streams[1].transport.abort()
        else:
            self.abandon()
        self._streams = self._socket = None

    def abandon(self) -> None:
        """Close our descriptor only, touching no loop: in a forked child, whose parent goes on using the connection."""
        if self._socket is not None:
            self._socket.close()

    def _is_usable(self, now: Seconds) -> bool:
        if self._streams is None:
            return False
        reader = self._streams[0]
        return not reader.at_eof() and reader.exception() is None and now - self._used_at <= _IDLE_MOST

    async def _exchange(self, request: Request, sent: list[bool]) -> Answer:
        if self._streams is None:
            self._streams = await self._connect()
        reader, writer = self._streams
        sent[0] = True
        writer.write(_head(request, self.center) + request.body)
        await writer.drain()
        return await _answer(reader)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        found = await _addresses(self.center)
        last: OSError = OSError("the name has no address")
        for family, address in found:
            try:
                async with asyncio.timeout(_CONNECT):
                    return await self._open(family, address)
            except TimeoutError:
                last = TimeoutError(f"no connection within {_CONNECT:g} s")
            except OSError as error:
                last = error
            self.abandon()
        raise last

    async def _open(self, family: int, address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(self._socket, address)
        name = self.center.host if self._tls else None
        return await asyncio.open_connection(sock=self._socket, ssl=self._tls, server_hostname=name, limit=_LINE_MOST)


def _head(request: Request, center: CenterAddress) -> bytes:
    host = f"[{center.host}]" if ":" in center.host else center.host
    lines = [f"{request.method} {center.prefix}{request.path} HTTP/1.1", f"host: {host}:{center.port}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body or request.method == "POST":
        lines.append(f"content-length: {len(request.body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


async def _answer(reader: asyncio.StreamReader) -> Answer:
    status = await _status(reader)
    while 100 <= status < 200:
        await _headers(reader)
        status = await _status(reader)
    headers = await _headers(reader)
    if status in (204, 304):
        return Answer(status, headers, b"")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Answer(status, headers, await _chunks(reader))
    length = headers.get("content-length")
    if length is None:
        return Answer(status, {**headers, "connection": "close"}, await _rest(reader))
    if not _is_length(length):
        raise _Refused(f"content-length is {length[:40]!r}")
    return Answer(status, headers, await reader.readexactly(_bounded(int(length))))


async def _status(reader: asyncio.StreamReader) -> int:
    line = await _line(reader)
    version, _, rest = line.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not (len(code) == 3 and code.isascii() and code.isdigit()):
        raise _Refused(f"not an HTTP/1.1 answer: {line[:40]!r}")
    return int(code)


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(_HEADERS_MOST + 1):
        line = await _line(reader)
        if not line:
            return found
        name, colon, value = line.partition(":")
        if not colon:
            raise _Refused(f"malformed header {line[:40]!r}")
        found[name.strip().lower()] = value.strip()
    raise _Refused(f"more than {_HEADERS_MOST} headers")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size = (await _line(reader)).partition(";")[0].strip()
        if not size or len(size) > 8 or not all(digit in "0123456789abcdefABCDEF" for digit in size):
            raise _Refused(f"malformed chunk size {size[:40]!r}")
        length = int(size, 16)
        _bounded(len(body) + length)
        if not length:
            await _headers(reader)
            return bytes(body)
        body += await reader.readexactly(length)
        if await _line(reader):
            raise _Refused("a chunk is longer than it says")


async def _rest(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while data := await reader.read(_LINE_MOST):
        body += data
        _bounded(len(body))
    return bytes(body)


async def _line(reader: asyncio.StreamReader) -> str:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise _Refused(f"a line of more than {_LINE_MOST} bytes") from error
    return line.decode("latin-1").rstrip("\r\n")


def _is_length(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _bounded(length: int) -> int:
    if length > BODY_MOST:
        raise _Refused(f"an answer of more than {BODY_MOST} bytes")
    return length


def _words(error: Exception) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection was closed before the answer was complete"
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.errno is not None:
        # The system's words: a library's own carry addresses, and the same trouble would look new each time. TLS and
        # resolver have numbers of their own.
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


async def _addresses(center: CenterAddress) -> tuple[tuple[int, tuple[str, int]], ...]:
    """Families and socket addresses of a center; a name is looked up in a thread of its own.

    Not in the loop's executor: its threads are joined when the interpreter ends, and a dead resolver would hold it.
    """
    try:
        address = ipaddress.ip_address(center.host)
    except ValueError:
        return await _looked_up(center)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return ((family, (center.host, center.port)),)


async def _looked_up(center: CenterAddress) -> tuple[tuple[int, tuple[str, int]], ...]:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[tuple[tuple[int, tuple[str, int]], ...]] = loop.create_future()

    def settle(result: tuple[tuple[int, tuple[str, int]], ...] | OSError) -> None:
        if found.done():
            return
        if isinstance(result, OSError):
            found.set_exception(result)
        else:
            found.set_result(result)

    def look_up() -> None:
        result: tuple[tuple[int, tuple[str, int]], ...] | OSError
        try:
            rows = socket.getaddrinfo(center.host, center.port, type=socket.SOCK_STREAM)
            result = tuple((int(row[0]), (str(row[4][0]), int(row[4][1]))) for row in rows)
        except OSError as error:
            result = error
        except UnicodeError:  # an empty label, or a long one
            result = OSError("the name is none that can be looked up")
        try:
            loop.call_soon_threadsafe(settle, result)
        except RuntimeError:
            # The loop has ended while the resolver was asked: nobody waits for this any more.
            return

    threading.Thread(target=look_up, name="reachline-resolve", daemon=True).start()
    async with asyncio.timeout(_CONNECT):
        return await found
