"""`outbounds`: which of them we reach by our own sockets, which through a core, and which carry nothing."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from reachline.doors.observatory.fields import Block
from reachline.doors.observatory.relay import Core, hop
from reachline.doors.observatory.values import Outbound, Reach
from reachline.doors.origin import Path
from reachline.doors.wording import dotted, nearest
from reachline.model import Endpoint
from reachline.talk.hop import Hop, Scheme
from reachline.talk.secure import Secure, bare_name, is_address
from reachline.wire.socks5 import MAX_TEXT

__all__ = ["read_outbounds"]

_ALIASES: Final = {"direct": "freedom", "block": "blackhole"}
_SILENT: Final = {
    "blackhole": "drops whatever it gets",
    "dns": "answers DNS questions only",
    "loopback": "leads back into routing",
}
_FOREIGN: Final = (
    "vless",
    "vmess",
    "trojan",
    "shadowsocks",
    "wireguard",
    "hysteria",
    "hysteria2",
    "tuic",
    "anytls",
    "ssh",
    "masque",
)
_NATIVE: Final = ("freedom", "socks", "http")
_KNOWN: Final = (*_NATIVE, *_ALIASES, *_SILENT, *_FOREIGN)
_HOST: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?")
_MOST_HOPS: Final = 8
"""Proxies of one chain, as in the reach door."""
_LONGEST_TAG: Final = 255
"""Characters: no tag that people write has more, and it becomes a label of metrics."""


class _Read(NamedTuple):
    outbound: Outbound
    dialer: str
    """The outbound that its own connection goes through; empty: none."""
    at: Path


def read_outbounds(root: Block, core: Core | None) -> tuple[tuple[Outbound, Path], ...]:
    """All of them with their places, in the document's order."""
    read = [_one(block) for block in root.blocks("outbounds")]
    _unique(root, read)
    by_tag = {each.outbound.tag: each for each in read if each.outbound.tag}
    chained = [_chained(root, each, by_tag) for each in read]
    return tuple((_through(each, core), at.at) for each, at in zip(chained, read, strict=True))


def _one(block: Block) -> _Read:
    tag = block.text("tag")
    if len(tag) > _LONGEST_TAG or not tag.isprintable():
        block.refuse("tag", f"must be printable and of at most {_LONGEST_TAG} characters")
    written = block.text("protocol", needed=True)
    protocol = _ALIASES.get(written.lower(), written.lower())
    if written and protocol not in _KNOWN:
        close = nearest(protocol, _KNOWN)
        block.refuse(
            "protocol", "is no outbound protocol", f"did you mean {close}?" if close else f"known: {', '.join(_KNOWN)}"
        )
    stream, proxy = block.block("streamSettings"), block.block("proxySettings")
    sockopt = None if stream is None else stream.block("sockopt")
    source, why = _source(block)
    interface = "" if sockopt is None else sockopt.text("interface")
    dialer = _dialer(block, proxy, sockopt)
    base = Outbound(tag=tag, protocol=protocol, reach=Reach.NATIVE, source=source, interface=interface, why=why)
    settings = block.block("settings") or Block({}, block.at("settings"), block.found)
    found = _reached(base, block, settings, stream)
    block.aside("mux", "targetStrategy", "domainStrategy")
    block.done()
    return _Read(found, dialer, block.path)


def _source(block: Block) -> tuple[str, str]:
    """`sendThrough`, and why it cannot be had here."""
    text = block.text("sendThrough")
    if not text:
        return "", ""
    if text in {"origin", "srcip"}:
        return "", f"sendThrough {text} depends on who connects"
    address, slash, _ = text.partition("/")
    if not is_address(address):
        block.refuse("sendThrough", "must be an address of this machine, origin or srcip")
        return "", ""
    return ("", "sendThrough is a range, of which Xray takes any address") if slash else (address, "")


def _dialer(block: Block, proxy: Block | None, sockopt: Block | None) -> str:
    by_proxy = "" if proxy is None else proxy.text("tag")
    by_socket = "" if sockopt is None else sockopt.text("dialerProxy")
    if by_proxy and by_socket:
        block.refuse(
            "proxySettings", "excludes streamSettings.sockopt.dialerProxy, which is set too", "keep one of them"
        )
    return by_socket or by_proxy


def _reached(base: Outbound, block: Block, settings: Block, stream: Block | None) -> Outbound:
    if base.protocol in _SILENT:
        return replace(base, reach=Reach.NONE, why=_SILENT[base.protocol])
    if base.protocol in _FOREIGN:
        return replace(base, reach=Reach.CORE, why=f"speaks {base.protocol}")
    if base.protocol not in _NATIVE:
        return replace(base, reach=Reach.NONE, why="is of an unknown protocol")
    if why := base.why or _unspoken(block, settings, stream, base.protocol):
        return replace(base, reach=Reach.CORE, why=why)
    if base.protocol == "freedom":
        return base
    made = _proxy(settings, base.protocol, None if stream is None else _secure(stream))
    return replace(base, hops=(made,)) if made else replace(base, reach=Reach.NONE, why="is not readable")


def _unspoken(block: Block, settings: Block, stream: Block | None, protocol: str) -> str:
    """What such an outbound asks for that our own sockets do not do."""
    mux = block.block("mux")
    if mux is not None and mux.flag("enabled") and protocol != "freedom":
        return "multiplexes its connections (mux)"
    if protocol == "freedom" and settings.has("redirect"):
        return "redirects all connections (redirect)"
    if protocol == "http" and settings.has("headers"):
        return "sends headers of its own to the proxy"
    if stream is None:
        return ""
    network = (stream.text("network") or stream.text("method") or "raw").lower()
    if network not in {"raw", "tcp"} and protocol != "freedom":
        return f"is carried by {network}"
    security = stream.text("security", "none").lower()
    if security in {"", "none"} or (security == "tls" and protocol == "http"):
        return ""
    return f"is secured by {security}"


def _secure(stream: Block) -> Block | None:
    if stream.text("security", "none").lower() != "tls":
        return None
    return stream.block("tlsSettings") or Block({}, stream.at("tlsSettings"), stream.found)


def _proxy(settings: Block, protocol: str, tls: Block | None) -> Hop | None:
    """The proxy of a socks or http outbound: fields of its settings, or the one item of `servers`."""
    server, user, password = settings, settings.text("user"), settings.text("pass")
    servers = settings.blocks("servers")
    settings.aside("level", "email", "headers", "address", "port", "servers", "version")
    if not settings.has("address"):
        if len(servers) != 1:
            settings.refuse(
                "servers",
                f"must have one item, it has {len(servers)}",
                "several proxies are several outbounds and a balancer",
            )
            return None
        server = servers[0]
        users = server.blocks("users")
        if users:
            user, password = users[0].text("user"), users[0].text("pass")
            if len(users) > 1:
                server.warn("users", f"has {len(users)} users: Xray takes any, here the first signs in")
    before = len(settings.found)
    host, port = server.text("address", needed=True), server.whole("port", least=1, most=65_535)
    host = host.removeprefix("[").removesuffix("]")
    if host and not (is_address(host) or _HOST.fullmatch(host)):
        server.refuse("address", "must be a DNS name or an IP address")
    if not server.has("port"):
        server.refuse("port", "is needed, a whole number from 1 to 65535")
    if max(len(user.encode()), len(password.encode())) > MAX_TEXT:
        server.refuse("users", f"has a user or password of more than {MAX_TEXT} bytes")
    if protocol == "http" and ":" in user:
        server.refuse("users", "has a user with a colon, which Basic cannot say")
    if len(settings.found) > before:
        return None
    return _hop(protocol, host, port, (user, password), tls)


def _hop(protocol: str, host: str, port: int, login: tuple[str, str], tls: Block | None) -> Hop:
    scheme = Scheme.SOCKS5H if protocol == "socks" else Scheme.HTTP if tls is None else Scheme.HTTPS
    secure = None
    if tls is not None:
        verify = not tls.flag("allowInsecure")
        secure = Secure(name=bare_name(host), sni=tls.text("serverName"), alpn=("http/1.1",), verify=verify)
    family = ipaddress.ip_address(host.partition("%")[0]).version if is_address(host) else 0
    endpoint = Endpoint(scheme=scheme.value, host=host, port=port, family=family)
    return Hop(scheme=scheme, endpoint=endpoint, user=login[0], password=login[1], secure=secure)


def _unique(root: Block, read: list[_Read]) -> None:
    first: dict[str, _Read] = {}
    for each in read:
        tag = each.outbound.tag
        if tag and tag in first:
            rule = f"stands here a second time (first in {dotted(first[tag].at)})"
            root.found.refuse((*each.at, "tag"), rule, "Xray refuses it: existing tag found")
        first.setdefault(tag, each)


def _chained(root: Block, read: _Read, by_tag: Mapping[str, _Read]) -> Outbound:
    """An outbound with the proxies that its own connections go through in front of its own."""
    outbound, seen = read.outbound, [read]
    while dialer := seen[-1].dialer:
        following = by_tag.get(dialer)
        if following is None:
            root.found.refuse(read.at, f"goes through {dialer!r}, which is no outbound", about_key=True)
            return replace(outbound, reach=Reach.NONE, why=f"goes through {dialer!r}, which is no outbound")
        if following in seen:
            names = " → ".join(repr(each.outbound.tag) for each in (*seen, following))
            root.found.refuse(read.at, f"goes through itself: {names}", about_key=True)
            return replace(outbound, reach=Reach.NONE, why="goes through itself")
        seen.append(following)
    if len(seen) == 1 or outbound.reach is not Reach.NATIVE:
        return outbound
    if other := next((each.outbound for each in seen if each.outbound.reach is not Reach.NATIVE), None):
        return replace(outbound, reach=Reach.CORE, hops=(), why=f"goes through {other.tag!r}, which {other.why}")
    hops = tuple(each for link in reversed(seen) for each in link.outbound.hops)
    if len(hops) > _MOST_HOPS:
        root.found.refuse(read.at, f"goes through {len(hops)} proxies, at most {_MOST_HOPS} are", about_key=True)
    last = seen[-1].outbound
    return replace(outbound, hops=hops, source=last.source, interface=last.interface)


def _through(outbound: Outbound, core: Core | None) -> Outbound:
    """By way of the core where only that speaks it."""
    if outbound.reach is not Reach.CORE or not outbound.tag or core is None:
        return outbound
    return replace(outbound, hops=(hop(core, outbound.tag),), source="", interface="")
