"""RoutingService.TestRoute of Xray's API, as bytes: a connection that might come, and the outbound it would go by."""

from __future__ import annotations

from typing import Final, NamedTuple

from reachline.errors import RemoteProtocolError
from reachline.wire.protobytes import fields, message, number, text

__all__ = ["MAX_REQUEST", "TEST_ROUTE", "RouteAsked", "read_route", "route_answer"]

TEST_ROUTE: Final = (
    "/xray.app.router.command.RoutingService/TestRoute",
    "/v2ray.core.app.router.command.RoutingService/TestRoute",
)
MAX_REQUEST: Final = 16 << 10
"""Bytes: a request's header lines may be among its attributes."""
_NETWORKS: Final = {2: "tcp", 3: "udp", 4: "unix"}
_OUTBOUND: Final = 12
_SHOWN: Final = {
    1: "inbound", 2: "network", 3: "ip_source", 4: "ip_target", 5: "port_source", 6: "port_target", 7: "domain", 8: "protocol",
    9: "user", 10: "attributes", 13: "ip_local", 14: "port_local",
}  # fmt: skip
"""Names that a request's selectors are the beginnings of, by the field's number."""
_LARGEST: Final = 65_535
"""Port."""


class RouteAsked(NamedTuple):
    """A connection as the request tells it; addresses are 4 or 16 bytes."""

    inbound: str
    network: str
    """`tcp`, `udp`, `unix`, or empty."""
    domain: str
    user: str
    sources: tuple[bytes, ...]
    targets: tuple[bytes, ...]
    locals: tuple[bytes, ...]
    source_port: int
    port: int
    local_port: int
    shown: bytes
    """What of it the answer repeats."""
    shows_outbound: bool


def read_route(request: bytes) -> RouteAsked:
    """RemoteProtocolError where it is no TestRouteRequest."""
    if len(request) > MAX_REQUEST:
        raise RemoteProtocolError(f"a request of {len(request)} bytes, at most {MAX_REQUEST} are taken")
    whole = fields(request)
    context = [each for field, value in whole if field == 1 and isinstance(value, bytes) for each in fields(value)]
    selectors = tuple(_decoded(value) for field, value in whole if field == 2 and isinstance(value, bytes))

    def shows(name: str) -> bool:
        return not selectors or name.startswith(selectors)

    def words(wanted: int) -> str:
        return next((_decoded(value) for field, value in reversed(context) if field == wanted and value), "")

    def addresses(wanted: int) -> tuple[bytes, ...]:
        return tuple(_address(value) for field, value in context if field == wanted)

    def port(wanted: int) -> int:
        found = next((value for field, value in reversed(context) if field == wanted), 0)
        if not isinstance(found, int) or found > _LARGEST:
            raise RemoteProtocolError(f"field {wanted} is no port")
        return found

    network = next((value for field, value in reversed(context) if field == 2), 0)
    shown = b"".join(
        _again(field, value) for field, value in context if shows(_SHOWN.get(field, "\0")) and field in _SHOWN
    )
    return RouteAsked(
        words(1), _NETWORKS.get(network, "") if isinstance(network, int) else "", words(7), words(9),
        addresses(3), addresses(4), addresses(13), port(5), port(6), port(14), shown, shows("outbound"),
    )  # fmt: skip


def route_answer(asked: RouteAsked, tag: str) -> bytes:
    """The RoutingContext: what was asked, and the outbound."""
    return asked.shown + (text(_OUTBOUND, tag) if asked.shows_outbound else b"")


def _again(field: int, value: int | bytes) -> bytes:
    return number(field, value) if isinstance(value, int) else message(field, value)


def _address(value: int | bytes) -> bytes:
    if not isinstance(value, bytes) or len(value) not in {4, 16}:
        raise RemoteProtocolError("an address has 4 or 16 bytes")
    return value


def _decoded(value: int | bytes) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else ""
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a name is no UTF-8 text") from error
