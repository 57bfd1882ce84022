"""What is different where a request is gRPC's: how this process answers itself, and which answers are errors. Pure."""

from __future__ import annotations

from typing import Final

from reachline.proxy.flags import LocalReply
from reachline.proxy.message import Answer, Headers, Request, first

__all__ = ["NAMES", "as_grpc", "code_of", "is_grpc", "status_of", "went_wrong"]

_TYPE: Final = b"application/grpc"
_STATUS: Final = b"grpc-status"
_UNKNOWN: Final = 2
_OK: Final = 200
_DIGITS: Final = 9
"""Of a status: more are no number of 32 bits."""
_FROM_HTTP: Final = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}
"""As gRPC has it ("HTTP to gRPC Status Code Mapping"); all others are UNKNOWN."""
_TO_HTTP: Final = (200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401)
"""By gRPC's status, as Envoy's outlier detection sees it; a status that is none is 500."""
_ERRORS: Final = 500
NAMES: Final = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
    "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss",
    "Unauthenticated",
)  # fmt: skip
"""Of statuses, as Envoy's logs say them."""
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {0x25}
"""Bytes of a message that stand for themselves; of others their number does, behind a `%`."""


def is_grpc(request: Request) -> bool:
    """Whether its content is gRPC's; gRPC-Web's is not."""
    kind = first(request.headers, b"content-type")
    return kind is not None and (kind == _TYPE or kind.startswith(_TYPE + b"+"))


def as_grpc(reply: LocalReply, *, head_only: bool) -> LocalReply:
    """An answer of our own as gRPC takes it: headers alone, which say how the call ended; `head_only`: and not why, as in Envoy."""
    status = _FROM_HTTP.get(reply.status, _UNKNOWN)
    headers = [*reply.headers, (b"content-type", _TYPE), (_STATUS, b"%d" % status)]
    if reply.body and not head_only:
        headers.append((b"grpc-message", _escaped(reply.body)))
    return reply._replace(status=200, body=b"", headers=tuple(headers))


def code_of(request: Request, answer: Answer) -> int:
    """The HTTP status of an answer, for those who judge its endpoint: by gRPC that of the call, where its headers alone end it."""
    if request.method != b"POST" or not is_grpc(request):  # no other method calls anything
        return answer.status
    said = first(answer.headers, _STATUS)
    return answer.status if said is None else _http(said)


def status_of(headers: Headers, trailers: Headers, code: int) -> int | None:
    """How a call ended, as Envoy's logs have it: by trailers, else headers, else by the HTTP status; None: it did not, or by no number."""
    said = first(trailers, _STATUS) or first(headers, _STATUS)
    if said is not None:
        return int(said) if said.isdigit() and len(said) <= _DIGITS else None
    return None if not code else 0 if code == _OK else _FROM_HTTP.get(code, _UNKNOWN)


def went_wrong(trailers: Headers) -> bool:
    """Whether what ends an answer tells of an error of the endpoint's."""
    said = first(trailers, _STATUS)
    return said is not None and _http(said) >= _ERRORS


def _http(status: bytes) -> int:
    if not status.isdigit() or len(status) > 2 or int(status) >= len(_TO_HTTP):
        return _ERRORS
    return _TO_HTTP[int(status)]


def _escaped(text: bytes) -> bytes:
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in text)
