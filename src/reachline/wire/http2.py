"""HTTP/2 as much as a probe needs: one request on a connection of its own, one response read frame by frame, in bounded memory.

Frames are cut here and GOAWAY is read here (a server may say it and still answer); all else is the h2 library's. Refuses to
know expectations. Broken framing is `RemoteProtocolError`; a peer may send anything at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hpack.exceptions import HPACKError
from hyperframe.exceptions import HyperframeError

from reachline.errors import LocalProtocolError, RemoteProtocolError, one_line
from reachline.wire.request import Request

__all__ = ["MAX_HEAD", "Exchange", "check", "error_name"]

MAX_HEAD: Final = 32 << 10
"""Bytes of headers, decoded: as for HTTP/1.1."""
_MAX_FRAME: Final = 16_384
"""What every peer may send unless told otherwise, and we never tell."""
_MAX_FRAMES: Final = 250
"""Frames of any kind and size: a response has a dozen beside its body, a flood of pings or settings more…"""
_SMALL: Final = 64
"""…and bytes of the body that all others have on average: each costs us some thirty microseconds."""
_WINDOW: Final = 1 << 20
"""Bytes under way at once, so that a long page does not wait for us each 64 KiB."""
_REQUESTS: Final = 4_096
"""Whose first bytes are kept, some 200 each; those of further ones are made anew each time."""
_HEAD: Final = 9
_SETTINGS, _GOAWAY = 4, 7
_STREAM: Final = 1
_ERRORS: Final = (
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
)  # fmt: skip


def error_name(code: int) -> str:
    """An error code of HTTP/2 as people write it."""
    return _ERRORS[code] if 0 <= code < len(_ERRORS) else f"error {code}"


def check(request: Request) -> None:
    """LocalProtocolError where HTTP/2 cannot carry the request: header fields of one connection, of HTTP/1.1 alone."""
    try:
        _said(request, strict=True)
    except (h2.exceptions.H2Error, UnicodeError) as error:
        # The library's words may hold a header's value, which may be a secret.
        raise LocalProtocolError("cannot be said in HTTP/2: TE and fields of one connection are HTTP/1.1's") from error


def _ready(*, strict: bool) -> h2.connection.H2Connection:
    """A client's, with our settings said. `strict`: a request is looked at before it is said; each time that is dear."""
    config = h2.config.H2Configuration(
        client_side=True, header_encoding="latin-1", validate_outbound_headers=strict, normalize_outbound_headers=False
    )
    made = h2.connection.H2Connection(config)
    made.local_settings = h2.settings.Settings(
        client=True,
        initial_values={
            h2.settings.SettingCodes.ENABLE_PUSH: 0,
            h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
            h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEAD,
        },
    )
    made.initiate_connection()
    made.increment_flow_control_window(_WINDOW)
    return made


def _said(request: Request, *, strict: bool = False) -> bytes:
    """Preface, settings and the request: what is sent first."""
    connection = _ready(strict=strict)
    connection.config.normalize_outbound_headers = True
    pseudo = (
        (":method", request.method),
        (":scheme", request.scheme),
        (":authority", request.authority),
        (":path", request.path),
    )
    named = ((name.lower(), value) for name, value in request.headers)
    connection.send_headers(_STREAM, (*pseudo, *named), end_stream=not request.body)
    if request.body:
        connection.send_data(_STREAM, request.body, end_stream=True)
    return connection.data_to_send()


@lru_cache(maxsize=_REQUESTS)
def _opening(request: Request) -> bytes:
    """`_said`, once for each request: a line's probes all say the same, on connections that are all new."""
    return _said(request)


def _asked(method: str) -> h2.connection.H2Connection:
    """A connection on which a request of this method was said whole: for the answer nothing else of it matters."""
    connection = _ready(strict=False)
    connection.send_headers(_STREAM, ((b":method", method.encode("latin-1")),), end_stream=True)
    connection.clear_outbound_data_buffer()
    return connection


class Exchange:
    """One connection with its one request. `kept` holds the first `keep` bytes of the body, `size` counts all of it."""

    __slots__ = (
        "_buffer",
        "_connection",
        "_frames",
        "_keep",
        "_last",
        "broken",
        "done",
        "headers",
        "kept",
        "request",
        "size",
        "started",
        "status",
        "trailers",
    )

    def __init__(self, request: Request, *, keep: int = 0) -> None:
        self.request = request
        self.status = 0
        self.headers: dict[str, str] = {}
        """Of the response; values of one name joined by commas."""
        self.trailers: dict[str, str] = {}
        self.kept = bytearray()
        self.size = 0
        self.started = False
        """Whether anything at all has come."""
        self.done = False
        """Whether the response is whole."""
        self.broken = ""
        """How the peer broke the protocol, once `heard` met it."""
        self._keep = keep
        self._buffer = bytearray()
        self._frames = 0
        self._last = _STREAM
        """The last stream the peer says it answers."""
        self._connection: h2.connection.H2Connection | None = None
        """Made for the first frame: who is never answered does without."""

    def begin(self) -> bytes:
        """Preface, settings and the request: what is sent first."""
        return _opening(self.request)

    def feed(self, data: bytes) -> bytes:
        """Take what arrived; what must be sent now (acknowledgements, room for more). What follows the response is ignored."""
        self._buffer += data
        while not self.done and (frame := self._frame()):
            self.started = True
            self._read(frame)
        return self._connection.data_to_send() if self._connection is not None else b""

    def heard(self, data: bytes) -> bytes | None:
        """As `feed`, for who asks only at the end: None where the peer broke the protocol, and `broken` says how."""
        try:
            return self.feed(data)
        except RemoteProtocolError as error:
            self.broken = str(error)
            return None

    def ended(self) -> None:
        """The peer closed: RemoteProtocolError where that was too early."""
        if not self.done:
            where = "body" if self.status else "frame" if self._buffer else "header"
            raise RemoteProtocolError(f"closed within the {where}")

    def _frame(self) -> bytes:
        """The next whole frame; empty while there is none."""
        if len(self._buffer) < _HEAD:
            self._check_first()
            return b""
        size = int.from_bytes(self._buffer[:3], "big")
        self._check_first()
        if size > _MAX_FRAME:
            raise RemoteProtocolError(f"frame of {size} bytes, {_MAX_FRAME} were agreed on")
        if len(self._buffer) < _HEAD + size:
            return b""
        frame = bytes(self._buffer[: _HEAD + size])
        del self._buffer[: _HEAD + size]
        return frame

    def _check_first(self) -> None:
        """A peer of HTTP/2 begins with its settings; whatever else it is, it is told at once."""
        if self.started:
            return
        if self._buffer.startswith(b"HTTP/1."):
            raise RemoteProtocolError("the peer speaks HTTP/1.1")
        if len(self._buffer) > 3 and self._buffer[3] != _SETTINGS:
            raise RemoteProtocolError("not HTTP/2")

    def _read(self, frame: bytes) -> None:
        self._frames += 1
        if self._frames > _MAX_FRAMES + self.size // _SMALL:
            raise RemoteProtocolError(f"more than {_MAX_FRAMES} frames with next to nothing in them")
        if frame[3] == _GOAWAY:
            self._goes_away(frame)
            return
        if self._connection is None:
            self._connection = _asked(self.request.method)
        try:
            events = self._connection.receive_data(frame)
        except (h2.exceptions.H2Error, HPACKError, HyperframeError) as error:
            raise RemoteProtocolError(f"HTTP/2: {_words(error)}") from error
        for event in events:
            self._take(event)

    def _goes_away(self, frame: bytes) -> None:
        if len(frame) < _HEAD + 8:
            raise RemoteProtocolError("HTTP/2: GOAWAY cut short")
        self._last = int.from_bytes(frame[_HEAD : _HEAD + 4], "big") & 0x7FFFFFFF
        code = int.from_bytes(frame[_HEAD + 4 : _HEAD + 8], "big")
        if code or self._last < _STREAM:
            raise RemoteProtocolError(f"HTTP/2: the peer went away: {error_name(code)}")

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived():
                self._begin_response(event.headers or ())
            case h2.events.DataReceived():
                self._take_body(event.data or b"", event.flow_controlled_length or 0)
            case h2.events.TrailersReceived():
                self.trailers = _joined(event.headers or ())
            case h2.events.StreamEnded():
                self.done = True
            case h2.events.StreamReset():
                self._reset(int(event.error_code or 0))
            case _:
                return

    def _begin_response(self, headers: Iterable[tuple[str | bytes, str | bytes]]) -> None:
        self.headers = _joined(headers)
        status = self.headers.pop(":status", "")
        if not (len(status) == 3 and status.isdecimal() and status.isascii() and status >= "200"):
            raise RemoteProtocolError("HTTP/2: status is not a number")
        self.status = int(status)

    def _take_body(self, data: bytes, room: int) -> None:
        if (free := self._keep - len(self.kept)) > 0:
            self.kept += data[:free]
        self.size += len(data)
        if room and self._connection is not None:
            self._connection.acknowledge_received_data(room, _STREAM)

    def _reset(self, code: int) -> None:
        """RST_STREAM with NO_ERROR after a whole response is allowed (RFC 9113, 8.1), and then `done` is set already."""
        if not self.done:
            raise RemoteProtocolError(f"HTTP/2: the peer reset the stream: {error_name(code)}")


def _joined(headers: Iterable[tuple[str | bytes, str | bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = _text(raw_name), _text(raw_value)
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _text(raw: str | bytes) -> str:
    return raw if isinstance(raw, str) else raw.decode("latin-1")


def _words(error: Exception) -> str:
    """The library's words in one line, bounded."""
    text = " ".join(str(error).partition(" from <memory")[0].split())
    return one_line(text[:120]) if text and not text.isdecimal() else "frames of a stream that is not open"
