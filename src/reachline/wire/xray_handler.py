"""HandlerService of Xray's API, what is asked: an inbound or outbound as protobuf says it becomes the block of a document that says the same.

Of a kind that is not known here its name is kept and nothing else: whoever reads the block says that nobody here speaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final

from reachline.errors import RemoteProtocolError
from reachline.wire.protobytes import fields

__all__ = [
    "ADD_INBOUND",
    "ADD_OUTBOUND",
    "LIST_INBOUNDS",
    "LIST_OUTBOUNDS",
    "MAX_REQUEST",
    "REMOVE_INBOUND",
    "REMOVE_OUTBOUND",
    "Block",
    "read_added_inbound",
    "read_added_outbound",
    "read_only_tags",
    "read_removed",
]

Block = dict[str, object]
"""As a document's JSON has it."""
_SERVICES: Final = (
    "/xray.app.proxyman.command.HandlerService/",
    "/v2ray.core.app.proxyman.command.HandlerService/",
)
ADD_OUTBOUND: Final = tuple(f"{service}AddOutbound" for service in _SERVICES)
REMOVE_OUTBOUND: Final = tuple(f"{service}RemoveOutbound" for service in _SERVICES)
LIST_OUTBOUNDS: Final = tuple(f"{service}ListOutbounds" for service in _SERVICES)
ADD_INBOUND: Final = tuple(f"{service}AddInbound" for service in _SERVICES)
REMOVE_INBOUND: Final = tuple(f"{service}RemoveInbound" for service in _SERVICES)
LIST_INBOUNDS: Final = tuple(f"{service}ListInbounds" for service in _SERVICES)
MAX_REQUEST: Final = 256 << 10
"""Bytes: an inbound with thousands of accounts."""

_STRATEGIES: Final = (
    "AsIs", "UseIP", "UseIPv4", "UseIPv6", "UseIPv4v6", "UseIPv6v4", "ForceIP", "ForceIPv4", "ForceIPv6", "ForceIPv4v6", "ForceIPv6v4",
)  # fmt: skip
"""By the number of the enum."""
_NETWORKS: Final = {2: "tcp", 3: "udp", 4: "unix"}
_KIND: Final = 2
"""Which word of `xray.proxy.KIND.…` names the kind."""


class _Message:
    """The fields of one message; where it takes one value the last one counts."""

    __slots__ = ("_fields",)

    def __init__(self, data: bytes) -> None:
        self._fields: Final = fields(data)

    def has(self, field: int) -> bool:
        return any(number == field for number, _ in self._fields)

    def whole(self, field: int) -> int:
        return next(
            (value for number, value in reversed(self._fields) if number == field and isinstance(value, int)), 0
        )

    def raw(self, field: int) -> bytes:
        return next(
            (value for number, value in reversed(self._fields) if number == field and isinstance(value, bytes)), b""
        )

    def text(self, field: int) -> str:
        return _decoded(self.raw(field))

    def inside(self, field: int) -> _Message:
        return _Message(self.raw(field))

    def each(self, field: int) -> list[_Message]:
        return [_Message(value) for number, value in self._fields if number == field and isinstance(value, bytes)]

    def numbers(self, field: int) -> list[int]:
        """Of a repeated enum, packed or not."""
        found: list[int] = []
        for number, value in self._fields:
            if number == field:
                found += [value] if isinstance(value, int) else list(value)
        return found


def read_removed(request: bytes) -> str:
    """The tag of a RemoveOutboundRequest or RemoveInboundRequest; RemoteProtocolError where it is none."""
    return _Message(_bounded(request)).text(1)


def read_only_tags(request: bytes) -> bool:
    """Whether a ListInboundsRequest wants tags alone; RemoteProtocolError where it is none."""
    return bool(_Message(_bounded(request)).whole(1))


def read_added_outbound(request: bytes) -> Block:
    """The outbound of an AddOutboundRequest as a document has it; RemoteProtocolError where it is none."""
    config = _Message(_bounded(request)).inside(1)
    kind, settings = _settings(config.inside(3), _OUTBOUNDS)
    return {"tag": config.text(1), "protocol": kind, "settings": settings, **_sender(config.inside(2).inside(2))}


def read_added_inbound(request: bytes) -> Block:
    """The inbound of an AddInboundRequest likewise."""
    config = _Message(_bounded(request)).inside(1)
    kind, settings = _settings(config.inside(3), _INBOUNDS)
    receiver = config.inside(2).inside(2)
    found: Block = {"tag": config.text(1), "protocol": kind, "settings": settings}
    if ports := [_ports(each) for each in receiver.inside(1).each(1)]:
        found["port"] = ",".join(ports)
    if listen := _address(receiver.inside(2)):
        found["listen"] = listen
    if receiver.has(3):
        found["streamSettings"] = _stream(receiver.inside(3))
    if receiver.inside(6).whole(1):
        found["sniffing"] = {"enabled": True}
    return found


def _settings(typed: _Message, kinds: Mapping[str, Callable[[_Message], Block]]) -> tuple[str, Block]:
    """The protocol and its settings, of a TypedMessage."""
    name = typed.text(1)
    words = name.split(".")
    kind = words[_KIND] if len(words) > _KIND and name.startswith("xray.proxy.") else name
    read = kinds.get(name)
    return kind, {} if read is None else read(typed.inside(2))


def _sender(sender: _Message) -> Block:
    found: Block = {}
    if via := _address(sender.inside(1)):
        network = sender.text(5)
        found["sendThrough"] = f"{via}/{network}" if network else via
    if sender.has(2):
        found["streamSettings"] = _stream(sender.inside(2))
    if tag := sender.inside(3).text(1):
        found["proxySettings"] = {"tag": tag}
    if sender.inside(4).whole(1):
        found["mux"] = {"enabled": True}
    if sender.whole(6):
        found["targetStrategy"] = _strategy(sender.whole(6))
    return found


def _stream(stream: _Message) -> Block:
    found: Block = {"network": stream.text(5) or "tcp", "security": _security(stream.text(3))}
    if found["security"] == "tls":
        secure = next((each.inside(2) for each in stream.each(4) if each.text(1) == stream.text(3)), _Message(b""))
        found["tlsSettings"] = {"serverName": secure.text(3), "allowInsecure": bool(secure.whole(1))}
    socket = stream.inside(6)
    options: Block = {}
    if interface := socket.text(13):
        options["interface"] = interface
    if dialer := socket.text(9):
        options["dialerProxy"] = dialer
    if socket.whole(3):
        options["tproxy"] = "tproxy"
    if options:
        found["sockopt"] = options
    return found


def _security(name: str) -> str:
    """`tls` of `xray.transport.internet.tls.Config`."""
    words = name.split(".")
    return "none" if not name else words[-2] if len(words) > 1 else name


def _client(config: _Message) -> Block:
    """Of socks and of http; headers of its own are the latter's alone."""
    found: Block = {"servers": [_server(each) for each in config.each(1)]}
    if headers := config.each(2):
        found["headers"] = {each.text(1): each.text(2) for each in headers}
    return found


def _server(endpoint: _Message) -> Block:
    found: Block = {"address": _address(endpoint.inside(1)), "port": endpoint.whole(2)}
    if users := endpoint.each(3):
        accounts = [each.inside(3).inside(2) for each in users]
        found["users"] = [{"user": each.text(1), "pass": each.text(2)} for each in accounts]
    return found


def _freedom(config: _Message) -> Block:
    found: Block = {}
    if config.whole(1):
        found["domainStrategy"] = _strategy(config.whole(1))
    if config.has(3):
        found["redirect"] = _address(config.inside(3).inside(1).inside(1))
    if config.has(5):
        found["fragment"] = {}
    if config.has(7):
        found["noises"] = []
    return found


def _blackhole(config: _Message) -> Block:
    name = config.inside(1).text(1)
    return {"response": {"type": "http"}} if name.endswith(".HTTPResponse") else {}


def _loopback(config: _Message) -> Block:
    return {"inboundTag": config.text(1)}


def _nothing(_: _Message) -> Block:
    return {}


def _socks(config: _Message) -> Block:
    found: Block = {"auth": "password" if config.whole(1) else "noauth", "udp": bool(config.whole(4))}
    if address := _address(config.inside(3)):
        found["ip"] = address
    return found | _accounts(config) | _level(config, 6, 5)


def _http(config: _Message) -> Block:
    return _accounts(config) | _level(config, 4)


def _forward(config: _Message) -> Block:
    found: Block = {
        "address": _address(config.inside(1)),
        "port": config.whole(2),
        "followRedirect": bool(config.whole(5)),
    }
    if networks := config.numbers(7):
        found["network"] = [_NETWORKS.get(each, str(each)) for each in networks]
    if config.has(3):
        found["portMap"] = {}
    return found | _level(config, 6)


def _accounts(config: _Message) -> Block:
    return {"accounts": [{"user": each.text(1), "pass": each.text(2)} for each in config.each(2)]}


def _level(config: _Message, *numbers: int) -> Block:
    """`userLevel`, whose number was another in other releases."""
    return {"userLevel": next((config.whole(each) for each in numbers if config.whole(each)), 0)}


_OUTBOUNDS: Final[Mapping[str, Callable[[_Message], Block]]] = {
    "xray.proxy.socks.ClientConfig": _client,
    "xray.proxy.http.ClientConfig": _client,
    "xray.proxy.freedom.Config": _freedom,
    "xray.proxy.blackhole.Config": _blackhole,
    "xray.proxy.loopback.Config": _loopback,
    "xray.proxy.dns.Config": _nothing,
}
_INBOUNDS: Final[Mapping[str, Callable[[_Message], Block]]] = {
    "xray.proxy.socks.ServerConfig": _socks,
    "xray.proxy.http.ServerConfig": _http,
    "xray.proxy.dokodemo.Config": _forward,
}


def _strategy(number: int) -> str:
    return _STRATEGIES[number] if number < len(_STRATEGIES) else str(number)


def _ports(span: _Message) -> str:
    first, last = span.whole(1), span.whole(2)
    return str(first) if first == last else f"{first}-{last}"


def _address(message: _Message) -> str:
    """An IPOrDomain; empty where none is set."""
    if data := message.raw(1):
        if len(data) not in {4, 16}:
            raise RemoteProtocolError("an address has 4 or 16 bytes")
        return str(ip_address(data))
    return message.text(2)


def _bounded(request: bytes) -> bytes:
    if len(request) > MAX_REQUEST:
        raise RemoteProtocolError(f"a request of {len(request)} bytes, at most {MAX_REQUEST} are taken")
    return request


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a name is no UTF-8 text") from error
