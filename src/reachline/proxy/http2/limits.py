"""What a peer may do, with Envoy's defaults (1.40), and error codes."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

__all__ = ["MAX_WINDOW", "Code", "Limits"]

MAX_WINDOW: Final = (1 << 31) - 1


class Code(IntEnum):
    """RFC 9113, 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Limits(NamedTuple):
    """`http2_protocol_options`, and what of a connection manager or cluster bounds heads. Sizes in bytes."""

    table: int = 4_096
    """Of each header table: `hpack_table_size`."""
    streams: int = 1_024
    """Of the peer at once: `max_concurrent_streams`."""
    stream_window: int = 16 << 20
    """What a peer may have on its way on one stream: `initial_stream_window_size`."""
    connection_window: int = 24 << 20
    allow_connect: bool = False
    """Extended CONNECT (RFC 8441)."""
    outbound_frames: int = 10_000
    """That wait for a peer which does not read."""
    outbound_control_frames: int = 1_000
    """Of them acknowledgements and resets."""
    empty_frames: int = 1
    """In a row that hold nothing and end nothing."""
    priority_frames: int = 100
    """A stream."""
    window_updates: int = 10
    """For each frame of body sent."""
    is_stream_error: bool = False
    """`override_stream_error_on_invalid_http_message`: a malformed message ends its stream, not the connection."""
    head: int = 60 << 10
    """Names and values of one message: `max_request_headers_kb`."""
    headers: int = 100
    """Of one message, pseudo-headers too: `max_headers_count`."""
    resets: int = 500
    """Streams after which half of them may not have been reset early: `overload.premature_reset_total_stream_count`."""
    early: float = 2.0
    """Seconds; what is reset within, before an answer, is reset early. Envoy: whole seconds, no more than one."""
