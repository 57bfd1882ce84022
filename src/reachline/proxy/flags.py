"""What a request came to that no endpoint answered: status, body and flag of Envoy's local replies. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from reachline.doors.envoy.routes import Mutations
from reachline.model import Failure
from reachline.upstream.outcome import Column

__all__ = ["LocalReply", "Lost", "bad_request", "column", "phrase", "reset_reply"]

_PHRASES: Final = {
    100: "Continue", 101: "Switching Protocols", 102: "Processing", 103: "Early Hints", 200: "OK", 201: "Created",
    202: "Accepted", 203: "Non-Authoritative Information", 204: "No Content", 205: "Reset Content", 206: "Partial Content",
    207: "Multi-Status", 208: "Already Reported", 226: "IM Used", 300: "Multiple Choices", 301: "Moved Permanently",
    302: "Found", 303: "See Other", 304: "Not Modified", 305: "Use Proxy", 307: "Temporary Redirect", 308: "Permanent Redirect",
    400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 406: "Not Acceptable", 407: "Proxy Authentication Required", 408: "Request Timeout",
    409: "Conflict", 410: "Gone", 411: "Length Required", 412: "Precondition Failed", 413: "Payload Too Large",
    414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable", 417: "Expectation Failed",
    421: "Misdirected Request", 422: "Unprocessable Entity", 423: "Locked", 424: "Failed Dependency", 426: "Upgrade Required",
    428: "Precondition Required", 429: "Too Many Requests", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
    505: "HTTP Version Not Supported", 506: "Variant Also Negotiates", 507: "Insufficient Storage", 508: "Loop Detected",
    510: "Not Extended", 511: "Network Authentication Required",
}  # fmt: skip
"""As Envoy writes them."""


def phrase(status: int) -> str:
    """The reason phrase of a status line."""
    return _PHRASES.get(status, "Unknown")


_ERRORS: Final = 500


class LocalReply(NamedTuple):
    """An answer that this process gives itself. `closes`: the connection ends with it."""

    status: int
    body: bytes = b""
    flag: str = ""
    """A response flag of Envoy's access log; empty: `-`."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    closes: bool = False
    details: str = ""
    """`%RESPONSE_CODE_DETAILS%`."""
    changes: tuple[Mutations, ...] = ()
    """Of its headers, where no way says them."""


class Lost(NamedTuple):
    """How a try ended without a whole answer."""

    words: str
    """Envoy's, for the body."""
    flag: str
    failure: Failure
    is_connecting: bool = False
    """Whether there never was a connection."""
    status: int = 503


REFUSED: Final = Lost("remote connection failure", "UF", Failure.REFUSED, is_connecting=True)
CONNECT_TIMEOUT: Final = Lost("connection timeout", "UF", Failure.TIMEOUT, is_connecting=True)
LOCAL: Final = Lost("local connection failure", "UF", Failure.AGENT, is_connecting=True)
TERMINATED: Final = Lost("connection termination", "UC", Failure.RESET)
PARTIAL: Final = Lost("connection termination", "UPE", Failure.RESET)
"""After a part of the answer."""
PROTOCOL: Final = Lost("protocol error", "UPE", Failure.PROTOCOL, status=502)
RESET: Final = Lost("remote reset", "UR", Failure.RESET)
"""Of one stream of HTTP/2."""
REFUSED_STREAM: Final = Lost("remote refused stream reset", "UR", Failure.RESET)
"""The endpoint has not begun to work on it, and says so."""
OVERFLOW: Final = Lost("overflow", "UO", Failure.AGENT)
TIMEOUT: Final = Lost("", "UT", Failure.TIMEOUT, status=504)
"""Of the route or of one try."""

_RESET: Final = "upstream connect error or disconnect/reset before headers. "

NO_ENDPOINT: Final = LocalReply(503, b"no healthy upstream", "UH", details="no_healthy_upstream")
DROPPED: Final = LocalReply(
    503,
    b"unconditional drop overload",
    "UDO",
    headers=((b"x-envoy-unconditional-drop-overload", b"true"),),
    details="drop_overload",
)
NO_ROUTE: Final = LocalReply(404, b"", "NR", details="route_not_found")
UPGRADE_REQUIRED: Final = LocalReply(426, b"Upgrade Required", "DPE", closes=True, details="low_version")
NO_HOST: Final = LocalReply(400, closes=True, details="missing_host_header")
UPGRADE_FORBIDDEN: Final = LocalReply(403, closes=True, details="upgrade_failed")
TIMED_OUT: Final = LocalReply(504, b"upstream request timeout", "UT", details="response_timeout")
STREAM_IDLE: Final = LocalReply(408, b"stream timeout", "SI", closes=True, details="stream_idle_timeout")
STREAM_IDLE_AFTER: Final = LocalReply(504, b"stream timeout", "SI", details="stream_idle_timeout")
"""Once the request was here whole."""
REQUEST_TIMEOUT: Final = LocalReply(408, b"request timeout", "DPE", closes=True, details="request_overall_timeout")
HEADER_TIMEOUT: Final = LocalReply(408, b"", "", closes=True, details="request_header_timeout")
DURATION: Final = LocalReply(408, b"downstream duration timeout", "DT", closes=True, details="max_duration_timeout")
TOO_LARGE: Final = LocalReply(
    431, b"Request Header Fields Too Large", "DPE", closes=True, details="request_headers_too_large"
)
BAD_PATH: Final = LocalReply(400, closes=True, details="path_normalization_failed")


def no_cluster(status: int) -> LocalReply:
    """The route names a cluster that is not there."""
    return LocalReply(status, flag="NC", details="cluster_not_found")


def bad_request(details: str = "http1.codec_error") -> LocalReply:
    """What breaks the protocol; nothing on its connection can be believed any more."""
    return LocalReply(400, b"Bad Request", "DPE", closes=True, details=details)


def reset_reply(lost: Lost, *, retried: bool) -> LocalReply:
    """What a client is told of the last try; `retried`: it was not the first one."""
    flag = f"URX,{lost.flag}" if retried else lost.flag
    if lost is TIMEOUT:
        return LocalReply(504, b"upstream request timeout", flag, details="upstream_per_try_timeout")
    reason = f"retried and the latest reset reason: {lost.words}" if retried else f"reset reason: {lost.words}"
    headers = ((b"x-envoy-overloaded", b"true"),) if lost is OVERFLOW else ()
    details = f"upstream_reset_before_response_started{{{lost.words.replace(' ', '_')}}}"
    return LocalReply(lost.status, (_RESET + reason).encode(), flag, headers, details=details)


def tls_failed(reason: str) -> Lost:
    """The handshake with an endpoint came to nothing."""
    words = f"remote connection failure, transport failure reason: TLS_error:|{reason}:TLS_error_end"
    return Lost(words, "UF", Failure.TLS, is_connecting=True)


def column(status: int) -> Column:
    """Where an answer with this status counts, for its endpoint."""
    return Column.ERRORS if status >= _ERRORS else Column.OK
