"""What Envoy's format commands say of an exchange: for access logs, and for headers that hold such commands."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from reachline.doors.envoy.routes import Command, Format
from reachline.model import Seconds
from reachline.proxy.message import Headers, joined

if TYPE_CHECKING:
    from reachline.proxy.exchange import Exchange

__all__ = ["UNSAID", "text_of", "value_of"]

UNSAID: Final = "-"
"""Where a command has nothing to say."""


def text_of(pieces: Format, exchange: Exchange, *, unsaid: str = UNSAID) -> str:
    """A format string, filled in."""
    return "".join(
        each if isinstance(each, str) else (unsaid if (said := value_of(each, exchange)) is None else said)
        for each in pieces
    )


def value_of(command: Command, exchange: Exchange) -> str | None:
    """What one command comes to; None: nothing."""
    plain = _PLAIN.get(command.operator)
    said = plain(exchange) if plain is not None else _with_argument(command, exchange)
    return said if said is None or command.most is None else said[: command.most]


def _with_argument(command: Command, exchange: Exchange) -> str | None:
    match command.operator:
        case "REQ":
            return _either(command.argument, lambda name: _request_header(exchange, name))
        case "RESP":
            return _either(command.argument, lambda name: _header(exchange.headers_out, name))
        case "START_TIME":
            return stamp(_started(exchange), command.argument)
        case "EMIT_TIME":
            return stamp(exchange.front.wall(), command.argument)
        case "ENVIRONMENT":
            return os.environ.get(command.argument)
        case "PATH":
            path = exchange.request.path.decode("latin-1")
            return path.partition("?")[0] if "NQ" in command.argument.split(":") else path
        case "QUERY_PARAM":
            pairs = (
                each.partition("=") for each in exchange.request.path.decode("latin-1").partition("?")[2].split("&")
            )
            return next((value for name, _, value in pairs if name == command.argument), None)
        case "QUERY_PARAMS":
            return exchange.request.path.decode("latin-1").partition("?")[2] or None
        case _:
            return None


def stamp(wall: Seconds, form: str) -> str:
    """An instant by strftime with Envoy's %3f and %f; without a form RFC 3339 with milliseconds."""
    at = datetime.fromtimestamp(wall, UTC)
    if not form:
        return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1_000:03d}Z"
    for digits in range(1, 10):
        form = form.replace(f"%{digits}f", f"{at.microsecond * 1_000:09d}"[:digits])
    return at.strftime(form.replace("%f", f"{at.microsecond * 1_000:09d}").replace("%s", str(int(wall))))


def _started(exchange: Exchange) -> Seconds:
    front = exchange.front
    return front.wall() - (front.now() - exchange.request.began)


def _either(argument: str, of: Callable[[str], str | None]) -> str | None:
    """`NAME` or `NAME?OTHER`."""
    name, mark, other = argument.partition("?")
    said = of(name.lower())
    return of(other.lower()) if said is None and mark else said


def _request_header(exchange: Exchange, name: str) -> str | None:
    request, way = exchange.request, exchange.way
    match name:
        case ":method":
            return request.method.decode("latin-1") or None
        case ":authority" | "host":
            return exchange.host.decode("latin-1") if request.method else None
        case ":path":
            return request.path.decode("latin-1") or None
        case ":scheme":
            return "https" if exchange.down.peer.is_tls else "http"
        case "x-envoy-original-path" if way is not None and way.original:
            return way.original.decode("latin-1")
        case _:
            return _header(request.headers, name)


def _header(headers: Headers, name: str) -> str | None:
    value = joined(headers, name.encode("latin-1", "replace"))
    return None if value is None else value.decode("latin-1")


def _host_port(host: str, port: int) -> str | None:
    return None if not host else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _upstream(exchange: Exchange) -> str | None:
    return None if exchange.pick is None else exchange.pick.target


def _ms(seconds: Seconds | None) -> str | None:
    return None if seconds is None else str(max(0, round(seconds * 1_000)))


_PLAIN: Final[Mapping[str, Callable[[Exchange], str | None]]] = {
    "PROTOCOL": lambda of: f"HTTP/{of.request.version}",
    "RESPONSE_CODE": lambda of: str(of.code),
    "RESPONSE_CODE_DETAILS": lambda of: of.details,
    "RESPONSE_FLAGS": lambda of: of.flag or UNSAID,
    "BYTES_RECEIVED": lambda of: str(of.request.size),
    "BYTES_SENT": lambda of: str(of.bytes_out),
    "DURATION": lambda of: _ms(of.front.now() - of.request.began),
    "REQUEST_DURATION": lambda of: _ms(None if of.sent_at is None else of.sent_at - of.request.began),
    "ROUTE_NAME": lambda of: (of.way.route if of.way else "") or None,
    "UPSTREAM_CLUSTER": lambda of: of.way.backend.name if of.way else None,
    "UPSTREAM_CLUSTER_RAW": lambda of: of.way.backend.name if of.way else None,
    "UPSTREAM_HOST": _upstream,
    "UPSTREAM_REMOTE_ADDRESS": _upstream,
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT": lambda of: of.pick.address[0] if of.pick and of.pick.address else None,
    "UPSTREAM_REMOTE_PORT": lambda of: str(of.pick.address[1]) if of.pick and of.pick.address else None,
    "UPSTREAM_HOST_NAME": lambda of: (of.pick.hostname or of.pick.target) if of.pick else None,
    "UPSTREAM_REQUEST_ATTEMPT_COUNT": lambda of: str(
        0 if of.pick is None else 1 if of.retries is None else of.retries.count + 1
    ),
    "DOWNSTREAM_REMOTE_ADDRESS": lambda of: _host_port(of.down.peer.address, of.down.peer.port),
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT": lambda of: of.down.peer.address or None,
    "DOWNSTREAM_REMOTE_PORT": lambda of: str(of.down.peer.port),
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS": lambda of: _host_port(of.down.peer.address, of.down.peer.port),
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT": lambda of: of.down.peer.address or None,
    "DOWNSTREAM_DIRECT_REMOTE_PORT": lambda of: str(of.down.peer.port),
    "DOWNSTREAM_LOCAL_ADDRESS": lambda of: _host_port(of.down.peer.local_address, of.down.peer.local_port),
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT": lambda of: of.down.peer.local_address or None,
    "DOWNSTREAM_LOCAL_PORT": lambda of: str(of.down.peer.local_port),
    "REQUESTED_SERVER_NAME": lambda of: of.down.peer.server_name or None,
    "HOSTNAME": lambda _: platform.node() or None,
}
