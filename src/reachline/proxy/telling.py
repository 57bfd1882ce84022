"""What Envoy's format commands say of an exchange: for access logs, and for headers that hold such commands."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from reachline.doors.envoy.routes import Command, Format
from reachline.model import Seconds
from reachline.proxy.grpc import NAMES, is_grpc, status_of
from reachline.proxy.message import Headers, joined

if TYPE_CHECKING:
    from reachline.proxy.exchange import Exchange

__all__ = ["UNSAID", "Ready", "Say", "filled", "ready", "say", "stamp", "text_of"]

UNSAID: Final = "-"
"""Where a command has nothing to say."""


Say = Callable[["Exchange"], "str | None"]


class Ready(NamedTuple):
    """A format string as texts that a template holds, and what fills it."""

    template: str
    says: tuple[Say, ...]


_HUMPS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COMPILED: Final = 4_096
"""Formats that are kept ready: documents have a few."""


def text_of(pieces: Format, exchange: Exchange, *, unsaid: str = UNSAID) -> str:
    """A format string, filled in."""
    return filled(ready(pieces), exchange, unsaid=unsaid)


def filled(pieces: Ready, exchange: Exchange, *, unsaid: str = UNSAID) -> str:
    """A format string that is `ready`, filled in."""
    return pieces.template % tuple([unsaid if (said := each(exchange)) is None else said for each in pieces.says])


@lru_cache(maxsize=_COMPILED)
def ready(pieces: Format) -> Ready:
    """The pieces with each command as what says it: looked up once, for there are a dozen in each line of a log."""
    template = "".join(_raw(each).replace("%", "%%") if isinstance(each, str) else "%s" for each in pieces)
    return Ready(template, tuple(say(each) for each in pieces if not isinstance(each, str)))


def _raw(text: str) -> str:
    """What a document says, as texts of requests are here: a character for each byte, for these are no text that we know."""
    return text.encode().decode("latin-1")


def _raw_or_none(text: str | None) -> str | None:
    return _raw(text) if text else None


@lru_cache(maxsize=_COMPILED)
def say(command: Command) -> Say:
    """What one command comes to, exchange by exchange; None: nothing."""
    found = _PLAIN.get(command.operator) or _with_argument(command)
    most = command.most
    if most is None:
        return found

    def cut(exchange: Exchange) -> str | None:
        said = found(exchange)
        return said if said is None else said[:most]

    return cut


def _with_argument(command: Command) -> Say:
    argument = command.argument
    if (of := _HEADERS.get(command.operator)) is not None:
        return _either(argument, of)
    match command.operator:
        case "GRPC_STATUS":
            return lambda of: _grpc(of, argument or "CAMEL_STRING")
        case "START_TIME":
            return lambda of: stamp(_started(of), argument)
        case "EMIT_TIME":
            return lambda of: stamp(of.front.wall(), argument)
        case "ENVIRONMENT":
            return lambda _: _raw_or_none(os.environ.get(argument))
        case "PATH":
            return (lambda of: _path(of).partition("?")[0]) if "NQ" in argument.split(":") else _path
        case "QUERY_PARAM":
            return lambda of: _parameter(_path(of), argument)
        case "QUERY_PARAMS":
            return lambda of: _path(of).partition("?")[2] or None
        case _:
            return lambda _: None


def _path(exchange: Exchange) -> str:
    return exchange.request.path.decode("latin-1")


def _asked_path(exchange: Exchange) -> bytes:
    """As its endpoint saw it, once it did: what is added to a request is said of the request as it came."""
    way = exchange.way
    is_asked = exchange.pick is not None and (exchange.code or exchange.is_over)
    return way.path if is_asked and way is not None else exchange.request.path


def _parameter(path: str, wanted: str) -> str | None:
    pairs = (each.partition("=") for each in path.partition("?")[2].split("&"))
    return next((value for name, _, value in pairs if name == wanted), None)


def stamp(wall: Seconds, form: str) -> str:
    """An instant by strftime with Envoy's %3f and %f; without a form RFC 3339 with milliseconds."""
    if not form:
        ms = int(wall * 1_000)
        return f"{_second(ms // 1_000)}.{ms % 1_000:03d}Z"
    at = datetime.fromtimestamp(wall, UTC)
    for digits in range(1, 10):
        form = form.replace(f"%{digits}f", f"{at.microsecond * 1_000:09d}"[:digits])
    return at.strftime(form.replace("%f", f"{at.microsecond * 1_000:09d}").replace("%s", str(int(wall))))


@lru_cache(maxsize=4)
def _second(number: int) -> str:
    return f"{datetime.fromtimestamp(number, UTC):%Y-%m-%dT%H:%M:%S}"


def _started(exchange: Exchange) -> Seconds:
    front = exchange.front
    return front.wall() - (front.now() - exchange.request.began)


def _either(argument: str, of: Callable[[str], Say]) -> Say:
    """`NAME` or `NAME?OTHER`."""
    name, mark, other = argument.partition("?")
    one = of(name.lower())
    if not mark:
        return one
    two = of(other.lower())

    def either(exchange: Exchange) -> str | None:
        said = one(exchange)
        return two(exchange) if said is None else said

    return either


def _request_header(name: str) -> Say:
    match name:
        case ":method":
            return lambda of: of.request.method.decode("latin-1") or None
        case ":authority" | "host":
            return lambda of: of.host.decode("latin-1") if of.request.method else None
        case ":path":
            return lambda of: _asked_path(of).decode("latin-1") or None
        case ":scheme":
            return lambda of: "https" if of.down.peer.is_tls else "http"
        case _:
            pass
    wanted, is_original = name.encode("latin-1", "replace"), name == "x-envoy-original-path"

    def said(exchange: Exchange) -> str | None:
        if is_original and exchange.way is not None and exchange.way.original:
            return exchange.way.original.decode("latin-1")
        return _header(exchange.request.headers, wanted)

    return said


def _answer_header(name: str) -> Say:
    wanted = name.encode("latin-1", "replace")
    return lambda of: _header(of.headers_out, wanted)


def _trailer(name: str) -> Say:
    wanted = name.encode("latin-1", "replace")
    return lambda of: _header(of.trailers, wanted)


_HEADERS: Final = {"REQ": _request_header, "RESP": _answer_header, "TRAILER": _trailer}


def _grpc(exchange: Exchange, form: str) -> str | None:
    """How a call by gRPC ended; None: it was none, or did not end."""
    status = status_of(exchange.headers_out, exchange.trailers, exchange.code) if is_grpc(exchange.request) else None
    if status is None or form == "NUMBER" or status >= len(NAMES):
        return None if status is None else str(status)
    name = NAMES[status]
    return _HUMPS.sub("_", name).upper() if form == "SNAKE_STRING" else name


def _header(headers: Headers, name: bytes) -> str | None:
    """All values, joined by commas."""
    found = joined(headers, name)
    return None if found is None else found.decode("latin-1")


def _host_port(host: str, port: int) -> str | None:
    return None if not host else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _upstream(exchange: Exchange) -> str | None:
    return None if exchange.pick is None else exchange.pick.target


def _ms(seconds: Seconds | None) -> str | None:
    return None if seconds is None else str(max(0, round(seconds * 1_000)))


_PLAIN: Final[Mapping[str, Callable[[Exchange], str | None]]] = {
    "GRPC_STATUS_NUMBER": lambda of: _grpc(of, "NUMBER"),
    "PROTOCOL": lambda of: f"HTTP/{of.request.version}",
    "RESPONSE_CODE": lambda of: str(of.code),
    "RESPONSE_CODE_DETAILS": lambda of: of.details,
    "RESPONSE_FLAGS": lambda of: of.flag or UNSAID,
    "BYTES_RECEIVED": lambda of: str(of.request.size),
    "BYTES_SENT": lambda of: str(of.bytes_out),
    "DURATION": lambda of: _ms(of.front.now() - of.request.began),
    "REQUEST_DURATION": lambda of: _ms(None if of.sent_at is None else of.sent_at - of.request.began),
    "ROUTE_NAME": lambda of: _raw_or_none(of.way.route if of.way else None),
    "UPSTREAM_CLUSTER": lambda of: _raw_or_none(of.way.backend.name if of.way else None),
    "UPSTREAM_CLUSTER_RAW": lambda of: _raw_or_none(of.way.backend.name if of.way else None),
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
