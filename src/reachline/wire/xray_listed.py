"""HandlerService of Xray's API, what is answered: inbounds and outbounds as protobuf has them. Says no password and no account's."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final, NamedTuple

from reachline.wire.protobytes import message, number, text

__all__ = ["Listening", "Sending", "inbounds_listed", "outbounds_listed"]

_SENDER: Final = "xray.app.proxyman.SenderConfig"
_RECEIVER: Final = "xray.app.proxyman.ReceiverConfig"
_OUTBOUNDS: Final = {
    "freedom": "xray.proxy.freedom.Config",
    "blackhole": "xray.proxy.blackhole.Config",
    "dns": "xray.proxy.dns.Config",
    "loopback": "xray.proxy.loopback.Config",
    "socks": "xray.proxy.socks.ClientConfig",
    "http": "xray.proxy.http.ClientConfig",
    "vless": "xray.proxy.vless.outbound.Config",
    "vmess": "xray.proxy.vmess.outbound.Config",
    "trojan": "xray.proxy.trojan.ClientConfig",
    "shadowsocks": "xray.proxy.shadowsocks.ClientConfig",
    "wireguard": "xray.proxy.wireguard.DeviceConfig",
    "hysteria": "xray.proxy.hysteria.ClientConfig",
}
"""Names of messages by protocol; of what is not among them its protocol is named in their place."""
_INBOUNDS: Final = {
    "mixed": "xray.proxy.socks.ServerConfig",
    "http": "xray.proxy.http.ServerConfig",
    "dokodemo-door": "xray.proxy.dokodemo.Config",
}


class Sending(NamedTuple):
    """One outbound. `host` is empty where it has no server of its own that is known here."""

    tag: str
    protocol: str
    host: str = ""
    port: int = 0
    user: str = ""
    source: str = ""
    interface: str = ""


class Listening(NamedTuple):
    """One inbound; `target` is a forward's."""

    tag: str
    protocol: str
    """`mixed`, `http` or `dokodemo-door`."""
    host: str
    ports: tuple[int, ...]
    asks_password: bool = False
    has_udp: bool = False
    target: tuple[str, int] | None = None
    level: int = 0


def outbounds_listed(outbounds: Iterable[Sending]) -> bytes:
    """A ListOutboundsResponse."""
    return b"".join(message(1, _outbound(each)) for each in outbounds)


def inbounds_listed(inbounds: Iterable[Listening], *, only_tags: bool = False) -> bytes:
    """A ListInboundsResponse."""
    return b"".join(message(1, text(1, each.tag) if only_tags else _inbound(each)) for each in inbounds)


def _outbound(each: Sending) -> bytes:
    socket = message(6, text(13, each.interface)) if each.interface else b""
    sender = message(1, _address(each.source)) if each.source else b""
    sender += message(2, text(5, "tcp") + socket) if socket else b""
    return (
        text(1, each.tag)
        + message(2, _typed(_SENDER, sender))
        + message(3, _typed(_OUTBOUNDS.get(each.protocol, each.protocol), _client(each)))
    )


def _client(each: Sending) -> bytes:
    if not each.host:
        return b""
    account = message(3, _typed(f"xray.proxy.{each.protocol}.Account", text(1, each.user)))
    user = message(3, account) if each.user else b""
    return message(1, message(1, _address(each.host)) + number(2, each.port) + user)


def _inbound(each: Listening) -> bytes:
    spans = b"".join(message(1, number(1, port) + number(2, port)) for port in each.ports)
    receiver = message(1, spans) + message(2, _address(each.host))
    return (
        text(1, each.tag)
        + message(2, _typed(_RECEIVER, receiver))
        + message(3, _typed(_INBOUNDS.get(each.protocol, each.protocol), _server(each)))
    )


def _server(each: Listening) -> bytes:
    if each.protocol == "mixed":
        return number(1, int(each.asks_password)) + number(4, int(each.has_udp)) + number(6, each.level)
    if each.protocol == "http" or each.target is None:
        return number(4, each.level)
    host, port = each.target
    return message(1, _address(host)) + number(2, port) + number(6, each.level)


def _typed(name: str, value: bytes) -> bytes:
    return text(1, name) + message(2, value)


def _address(host: str) -> bytes:
    """An IPOrDomain."""
    try:
        return message(1, ip_address(host.partition("%")[0]).packed)
    except ValueError:
        return text(2, host)
