"""Messages of Xray's gRPC API about outbounds and balancers, as bytes and from bytes; no schema compiler for a dozen fields.

Fields that are false, zero or empty are not written, as proto3 has it. What is read skips fields it does not know; of a field that
stands twice the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from reachline.core.observing.values import Ping, Status
from reachline.errors import RemoteProtocolError

__all__ = [
    "GET_BALANCER_INFO",
    "GET_OUTBOUND_STATUS",
    "MAX_REQUEST",
    "OVERRIDE_BALANCER_TARGET",
    "Override",
    "Statuses",
    "balancer_info",
    "outbound_statuses",
    "read_override",
    "read_tag",
]

GET_OUTBOUND_STATUS: Final = "/xray.core.app.observatory.command.ObservatoryService/GetOutboundStatus"
"""Of `xray.core.app…`, unlike the others."""
_ROUTING: Final = ("/xray.app.router.command.RoutingService/", "/v2ray.core.app.router.command.RoutingService/")
GET_BALANCER_INFO: Final = tuple(f"{service}GetBalancerInfo" for service in _ROUTING)
OVERRIDE_BALANCER_TARGET: Final = tuple(f"{service}OverrideBalancerTarget" for service in _ROUTING)
MAX_REQUEST: Final = 4_096
"""Bytes of a request: two tags of 255 characters fit thrice."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
"""Wire types."""
_MAX_VARINT: Final = 10


class Override(NamedTuple):
    """A request of OverrideBalancerTarget; an empty target clears it."""

    balancer: str
    target: str


class Statuses:
    """Writes GetOutboundStatusResponses; an outbound that says the same as last time is not written anew. Written by its server."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[Status, bytes]] = {}

    def response(self, statuses: Iterable[Status]) -> bytes:
        """Its only field holds the list. The same status is the same object, as observers give it."""
        known, fresh = self._known, {}
        parts = []
        for status in statuses:
            found = known.get(status.tag)
            if found is None or found[0] is not status:
                found = status, _listed(status)
            fresh[status.tag] = found
            parts.append(found[1])
        self._known = fresh
        return _whole(1, b"".join(parts))


def outbound_statuses(statuses: Iterable[Status]) -> bytes:
    """A GetOutboundStatusResponse."""
    return Statuses().response(statuses)


def balancer_info(override: str, targets: Iterable[str]) -> bytes:
    """A GetBalancerInfoResponse: whom the override names (always there, empty: none is set), and whom the strategy chooses among."""
    chosen = b"".join(_whole(1, tag.encode()) for tag in targets)
    return _whole(1, _whole(5, _text(2, override)) + _whole(6, chosen))


def read_tag(request: bytes) -> str:
    """The balancer's tag in a GetBalancerInfoRequest; RemoteProtocolError where it is none."""
    return _texts(request).get(1, "")


def read_override(request: bytes) -> Override:
    """A request of OverrideBalancerTarget; RemoteProtocolError where it is none."""
    found = _texts(request)
    return Override(found.get(1, ""), found.get(2, ""))


def _listed(status: Status) -> bytes:
    """One OutboundStatus as an item of its list."""
    ping = b"" if status.ping is None else _whole(7, _ping(status.ping))
    return _whole(
        1,
        _number(1, int(status.alive))
        + _number(2, status.delay)
        + _text(3, status.reason)
        + _text(4, status.tag)
        + _number(5, status.seen)
        + _number(6, status.tried)
        + ping,
    )


def _ping(ping: Ping) -> bytes:
    return b"".join(_number(number, value) for number, value in enumerate(ping, 1))


def _number(field: int, value: int) -> bytes:
    return bytes((field << 3 | _VARINT,)) + _varint(value) if value else b""


def _text(field: int, value: str) -> bytes:
    return _whole(field, value.encode()) if value else b""


def _whole(field: int, data: bytes) -> bytes:
    """Also where it is empty: a message that is set."""
    return bytes((field << 3 | _BYTES,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _texts(message: bytes) -> dict[int, str]:
    """Fields that hold bytes, as texts."""
    if len(message) > MAX_REQUEST:
        raise RemoteProtocolError(f"a request of {len(message)} bytes, at most {MAX_REQUEST} are taken")
    found: dict[int, str] = {}
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        size = 0
        match key & 7:
            case 0:  # _VARINT
                at = _read_varint(message, at)[1]
            case 2:  # _BYTES
                size, at = _read_varint(message, at)
            case sort:
                size = _sized(sort, key >> 3)
        if at + size > len(message):
            raise RemoteProtocolError(f"field {key >> 3} is cut short")
        if key & 7 == _BYTES:
            found[key >> 3] = _decoded(message[at : at + size], key >> 3)
        at += size
    return found


def _sized(sort: int, field: int) -> int:
    """Bytes of a field whose wire type says how many it has."""
    if sort not in {_FIXED64, _FIXED32}:
        raise RemoteProtocolError(f"field {field} is of unknown wire type {sort}")
    return 8 if sort == _FIXED64 else 4


def _decoded(data: bytes, field: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"field {field} is no UTF-8 text") from error


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step, byte in enumerate(message[at : at + _MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * step
        if byte < 0x80:
            return value, at + step + 1
    raise RemoteProtocolError("a number is cut short or too long")
