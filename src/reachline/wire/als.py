"""Access logs (ALS): every call an Envoy made, or every attempt, as it ended. Messages -> values; needs the extra `xds`.

The one source of a line's true latency that asks nothing of the upstream. Which flag means what is decided here; whose line it
was, and what is slow, is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from reachline.wire.telling import Teller, microseconds, read, teller_of

try:
    from envoy.data.accesslog.v3 import accesslog_pb2
    from envoy.service.accesslog.v3 import als_pb2
except ImportError as missing:
    raise ImportError(
        f"xDS needs the extra `xds`: pip install 'reachline[xds]' (no module {missing.name})"
    ) from missing

__all__ = ["METHOD", "Call", "End", "Logged", "Of", "decode"]

METHOD: Final = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"


class End(Enum):
    """How a call ended, as far as the line is concerned."""

    OK = 0
    FAILED = 1
    """Not connected, or cut off by the other side."""
    LATE = 2
    ERROR = 3
    """Answered with a 5xx."""


class Of(IntEnum):
    """What an entry is of."""

    REQUEST = 0
    """A whole request, of whose attempts only the last is told."""
    ATTEMPT = 1
    """One attempt, as the router's own log (`upstream_log`) has it."""
    TIMEOUT = 2
    """A whole request that took too long. The router's log does not say of its last attempt that this is how it ended."""


class Call(NamedTuple):
    """One call that reached for an endpoint."""

    cluster: str
    address: str
    port: int
    end: End
    took_us: int
    """Until the first byte of the answer; 0: not known."""
    lasted_us: int
    """From its first byte to its last, in any direction."""
    of: Of


class Logged(NamedTuple):
    """One message. `teller` is said by the first of a stream only."""

    teller: Teller | None
    calls: tuple[Call, ...]
    skipped: int
    """Entries of calls that never reached for an endpoint, that the client or Envoy broke off, or that go on still."""


_FAILED: Final = frozenset(
    {
        "upstream_connection_failure",
        "upstream_remote_reset",
        "upstream_connection_termination",
        "upstream_protocol_error",
    }
)
_LATE: Final = frozenset({"upstream_request_timeout", "upstream_max_stream_duration_reached"})
_MARKS: Final = frozenset({"upstream_retry_limit_exceeded", "delay_injected"})
"""Flags that say nothing by themselves: the status of the answer does."""
_TYPES = accesslog_pb2.AccessLogType
_WHOLE: Final = frozenset({_TYPES.NotSet, _TYPES.DownstreamEnd, _TYPES.TcpConnectionEnd})
_ATTEMPT_ENDED: Final = _TYPES.UpstreamEnd
_ENDED: Final = _WHOLE | {_ATTEMPT_ENDED}
"""Entries of calls that go on still have other types."""
_SERVER_ERROR: Final = 500
_RESPONSE_TIMEOUT: Final = "response_timeout"
"""Envoy's word for the time of the whole call; that of one attempt stands in its own flags."""


def decode(data: bytes) -> Logged:
    """What an Envoy logged; RemoteProtocolError where it cannot be read."""
    message = read(als_pb2.StreamAccessLogsMessage, data)
    identifier = message.identifier
    teller = teller_of(identifier.node) if identifier.HasField("node") else None
    requests, connections = message.http_logs.log_entry, message.tcp_logs.log_entry
    calls = (*_requests(requests), *_connections(connections))
    return Logged(teller, calls, len(requests) + len(connections) - len(calls))


def _requests(entries: Iterable[Any]) -> Iterator[Call]:
    flagged, placed = _FLAGGED, _PLACED
    for entry in entries:
        common = entry.common_properties
        if common.access_log_type not in _ENDED or common.intermediate_log_entry:
            continue
        is_attempt = common.access_log_type == _ATTEMPT_ENDED
        found = flagged.end(common.response_flags)
        if found is _BY_STATUS:
            found = _by_status(entry, is_attempt=is_attempt)
        if found is not None and (at := placed.at(common.upstream_remote_address)):
            took_us = 0 if found is not _OK else _attempt_took(common) if is_attempt else _took(common)
            of = Of.ATTEMPT if is_attempt else Of.TIMEOUT if found is _LATELY and _is_untold(entry) else Of.REQUEST
            yield _called(common, at, found, took_us, of)


def _by_status(entry: Any, *, is_attempt: bool) -> End | None:
    """How a call ended that no flag speaks of."""
    status = entry.response.response_code.value
    if not status:
        return None
    if status >= _SERVER_ERROR:
        return _ERROR
    # An attempt whose answer did not arrive whole, though nothing went wrong on the line, was broken off: by the caller or for the time.
    if is_attempt and not entry.common_properties.HasField("time_to_last_upstream_rx_byte"):
        return None
    return _OK


def _is_untold(entry: Any) -> bool:
    """Whether a request that took too long says more than its attempts: for these it is as if somebody had broken off the last one.

    One that was answering with a server error was told as that.
    """
    if entry.response.response_code_details != _RESPONSE_TIMEOUT:
        return False
    is_answered = entry.common_properties.HasField("time_to_first_upstream_rx_byte")
    return not (is_answered and entry.response.response_code.value >= _SERVER_ERROR)


def _connections(entries: Iterable[Any]) -> Iterator[Call]:
    """Of a connection only its beginning is judged: how it ends is the client's business as much as the line's.

    Nor is it timed: how long a peer thinks before it speaks is no round trip.
    """
    placed = _PLACED
    for entry in entries:
        common = entry.common_properties
        if common.access_log_type not in _ENDED or common.intermediate_log_entry:
            continue
        found = End.FAILED if common.response_flags.upstream_connection_failure else _OK
        if at := placed.at(common.upstream_remote_address):
            yield _called(common, at, found, 0, Of.REQUEST)


def _called(common: Any, at: tuple[str, int], end: End, took_us: int, of: Of) -> Call:
    address, port = at
    return Call(common.upstream_cluster, address, port, end, took_us, microseconds(common.duration), of)


def _took(common: Any) -> int:
    """From the whole request to the first byte of its answer, in microseconds: connecting is in it, a slow client is not.

    Where the request was tried before, or the answer began before the request was whole, from its first byte on the connection.
    """
    first = microseconds(common.time_to_first_upstream_rx_byte)
    whole = microseconds(common.time_to_last_rx_byte)
    if common.upstream_request_attempt_count > 1 or whole > first:
        whole = microseconds(common.time_to_first_upstream_tx_byte)
    return max(0, first - whole)


def _attempt_took(common: Any) -> int:
    """The same of one attempt, whose clock begins with it: all until the first byte of the answer but the sending of the request.

    Where the answer began before the request was whole, from its first byte on the connection.
    """
    first = microseconds(common.time_to_first_upstream_rx_byte)
    begun, whole = (
        microseconds(common.time_to_first_upstream_tx_byte),
        microseconds(common.time_to_last_upstream_tx_byte),
    )
    sending = whole - begun if begun <= whole <= first else begun
    return max(0, first - sending)


class _ByStatus(Enum):
    """No flag says how the call ended."""

    ASK = 0


_BY_STATUS: Final = _ByStatus.ASK
_OK: Final = End.OK
_ERROR: Final = End.ERROR
_LATELY: Final = End.LATE


class _Flagged:
    """What flags say of a call, each combination looked at once: they are few, and mostly none."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, End | _ByStatus | None] = {}

    def end(self, flags: Any) -> End | _ByStatus | None:
        """How it ended; None: nothing is learnt of the line, for it was Envoy's own doing, or the client's."""
        key = flags.SerializeToString()
        try:
            return self._known[key]
        except KeyError:
            _bound(self._known)
            found = self._known[key] = _ended({each.name for each, _ in flags.ListFields()})
            return found


class _Placed:
    """Addresses, each read once: data planes have few endpoints and many calls."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, int] | None] = {}

    def at(self, address: Any) -> tuple[str, int] | None:
        """Address and port; None where the call never got so far as to choose one."""
        key = address.SerializeToString()
        try:
            return self._known[key]
        except KeyError:
            _bound(self._known)
            socket = address.socket_address
            found = self._known[key] = (socket.address, socket.port_value) if socket.address else None
            return found


_KEPT: Final = 16_384
"""What was read is remembered up to so many; then all is forgotten, and read anew."""
_FLAGGED: Final = _Flagged()
_PLACED: Final = _Placed()


def _bound(known: dict[bytes, Any]) -> None:
    if len(known) >= _KEPT:
        known.clear()


def _ended(flags: set[str]) -> End | _ByStatus | None:
    if flags & _FAILED:
        return End.FAILED
    if flags & _LATE:
        return End.LATE
    return None if flags - _MARKS else _BY_STATUS
