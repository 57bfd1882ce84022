"""Messages of Xray's gRPC API about outbounds and balancers, as bytes and from bytes; no schema compiler for a dozen fields.

What is read skips fields it does not know; of a field that stands twice the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from reachline.core.observing.values import Ping, Status
from reachline.errors import RemoteProtocolError
from reachline.wire.protobytes import fields, message, number, text

__all__ = [
    "GET_BALANCER_INFO",
    "GET_OUTBOUND_STATUS",
    "MAX_ANSWER",
    "MAX_REQUEST",
    "OVERRIDE_BALANCER_TARGET",
    "Info",
    "Override",
    "ask_info",
    "ask_override",
    "balancer_info",
    "outbound_statuses",
    "read_info",
    "read_override",
    "read_tag",
    "status_item",
    "statuses_of",
]

GET_OUTBOUND_STATUS: Final = "/xray.core.app.observatory.command.ObservatoryService/GetOutboundStatus"
"""Of `xray.core.app…`, unlike the others."""
_ROUTING: Final = ("/xray.app.router.command.RoutingService/", "/v2ray.core.app.router.command.RoutingService/")
GET_BALANCER_INFO: Final = tuple(f"{service}GetBalancerInfo" for service in _ROUTING)
OVERRIDE_BALANCER_TARGET: Final = tuple(f"{service}OverrideBalancerTarget" for service in _ROUTING)
MAX_REQUEST: Final = 4_096
"""Bytes of a request: two tags of 255 characters fit thrice."""

MAX_ANSWER: Final = 4 << 20
"""Bytes of an answer about a balancer: as many tags as the largest documents have."""


class Info(NamedTuple):
    """What a core says of a balancer: whom its override names, empty: none is set; and whom its strategy chooses among."""

    override: str
    targets: tuple[str, ...]


class Override(NamedTuple):
    """A request of OverrideBalancerTarget; an empty target clears it."""

    balancer: str
    target: str


def outbound_statuses(statuses: Iterable[Status]) -> bytes:
    """A GetOutboundStatusResponse."""
    return statuses_of(map(status_item, statuses))


def statuses_of(items: Iterable[bytes]) -> bytes:
    """A GetOutboundStatusResponse of what `status_item` made: its only field holds the list."""
    return message(1, b"".join(items))


def status_item(status: Status) -> bytes:
    """One OutboundStatus as an item of its list."""
    ping = b"" if status.ping is None else message(7, _ping(status.ping))
    return message(
        1,
        number(1, int(status.alive))
        + number(2, status.delay)
        + text(3, status.reason)
        + text(4, status.tag)
        + number(5, status.seen)
        + number(6, status.tried)
        + ping,
    )


def balancer_info(override: str, targets: Iterable[str]) -> bytes:
    """A GetBalancerInfoResponse: whom the override names (always there, empty: none is set), and whom the strategy chooses among."""
    chosen = b"".join(message(1, tag.encode()) for tag in targets)
    return message(1, message(5, text(2, override)) + message(6, chosen))


def ask_info(balancer: str) -> bytes:
    """A GetBalancerInfoRequest."""
    return text(1, balancer)


def ask_override(balancer: str, target: str) -> bytes:
    """An OverrideBalancerTargetRequest; an empty target clears."""
    return text(1, balancer) + text(2, target)


def read_info(answer: bytes) -> Info:
    """Of a GetBalancerInfoResponse; RemoteProtocolError where it is none."""
    if len(answer) > MAX_ANSWER:
        raise RemoteProtocolError(f"an answer of {len(answer)} bytes, at most {MAX_ANSWER} are taken")
    override, targets = "", []
    for field, value in _within(answer, 1):
        if field == 5 and isinstance(value, bytes):
            override = next((_decoded(each, 2) for each in _held(value, 2)), "")
        elif field == 6 and isinstance(value, bytes):
            targets += [_decoded(each, 1) for each in _held(value, 1)]
    return Info(override, tuple(targets))


def read_tag(request: bytes) -> str:
    """The balancer's tag in a GetBalancerInfoRequest; RemoteProtocolError where it is none."""
    return _texts(request).get(1, "")


def read_override(request: bytes) -> Override:
    """A request of OverrideBalancerTarget; RemoteProtocolError where it is none."""
    found = _texts(request)
    return Override(found.get(1, ""), found.get(2, ""))


def _ping(ping: Ping) -> bytes:
    return b"".join(number(field, value) for field, value in enumerate(ping, 1))


def _within(data: bytes, wanted: int) -> list[tuple[int, int | bytes]]:
    """The fields of the message that a field holds."""
    return [each for found in _held(data, wanted) for each in fields(found)]


def _held(data: bytes, wanted: int) -> list[bytes]:
    return [value for field, value in fields(data) if field == wanted and isinstance(value, bytes)]


def _texts(request: bytes) -> dict[int, str]:
    """Fields that hold bytes, as texts."""
    if len(request) > MAX_REQUEST:
        raise RemoteProtocolError(f"a request of {len(request)} bytes, at most {MAX_REQUEST} are taken")
    return {field: _decoded(value, field) for field, value in fields(request) if isinstance(value, bytes)}


def _decoded(data: bytes, field: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"field {field} is no UTF-8 text") from error
