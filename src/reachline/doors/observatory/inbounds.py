"""`inbounds` as they are served here: where, for whom, and what they speak. An open relay is refused, and what is not spoken by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, NamedTuple

from reachline.doors.findings import Findings
from reachline.doors.observatory.conditions import read_ports
from reachline.doors.observatory.fields import Block, problem_of
from reachline.errors import ConfigError
from reachline.talk.secure import is_address
from reachline.wire.socks5 import MAX_TEXT

__all__ = ["Entry", "Served", "read_inbound", "read_inbounds"]

_MOST_PORTS: Final = 256
"""Listening sockets of one inbound."""
_MOST_ACCOUNTS: Final = 10_000
_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})


class Entry(Enum):
    """What an inbound speaks."""

    MIXED = "mixed"
    """SOCKS5, SOCKS4, SOCKS4a and HTTP, told apart by the first byte: Xray's `socks` does so as well."""
    HTTP = "http"
    FORWARD = "dokodemo-door"
    """Nothing: every connection goes to one address."""


_ENTRIES: Final = {
    "socks": Entry.MIXED,
    "mixed": Entry.MIXED,
    "http": Entry.HTTP,
    "dokodemo-door": Entry.FORWARD,
    "tunnel": Entry.FORWARD,
}


class Served(NamedTuple):
    """One inbound."""

    tag: str
    entry: Entry
    host: str
    ports: tuple[int, ...]
    accounts: Mapping[str, str] = _NOBODY
    """Passwords by user; none: everybody comes in."""
    has_udp: bool = False
    udp_host: str = ""
    """What a client is told to send datagrams to; empty: the address it came to."""
    target: tuple[str, int] | None = None
    """Of a forward; port 0: the one that was connected to."""
    level: int = 0
    """Of the document's policy."""
    place: str = ""
    """Its path, for messages."""


def read_inbounds(root: Block) -> tuple[Served, ...]:
    """Those that are served. One of another protocol is refused: who needs it would find nobody there."""
    found = [_served(block) for block in root.blocks("inbounds")]
    if not found and not len(root.found):
        root.refuse(
            "inbounds",
            "is needed: without one nobody can connect",
            '[{"protocol": "socks", "listen": "127.0.0.1", "port": 1080}]',
        )
    return tuple(each for each in found if each is not None)


def read_inbound(value: Mapping[str, object]) -> Served:
    """One that came over an API, as a document would have it. ConfigError where it is not served here."""
    found = Findings()
    served = _served(Block(value, (), found))
    problems = [problem_of(each, value, "api") for each in found if each.is_error]
    if problems or served is None:
        raise ConfigError(*problems)
    return served


def _served(block: Block) -> Served | None:
    protocol = block.text("protocol").lower()
    entry = _ENTRIES.get(protocol)
    if entry is None:
        known = ", ".join(_ENTRIES)
        block.refuse("protocol", "is not served here", f"served are {known}; leave this inbound to Xray")
        return None
    settings = block.block("settings") or Block({}, block.at("settings"), block.found)
    _no_stream(block)
    host = _host(block)
    accounts = _accounts(settings, entry)
    ports = _ports(block)
    if entry is not Entry.FORWARD and not accounts and not _is_loopback(host):
        rule = "would be an open relay: everybody who reaches this machine could use it"
        hint = '"listen": "127.0.0.1", or accounts' + (' and "auth": "password"' if entry is Entry.MIXED else "")
        block.refuse("listen", rule, hint)
    elif entry is Entry.FORWARD and not block.has("listen"):
        block.refuse("listen", "is needed: without it everybody who reaches this machine could connect", '"127.0.0.1"')
    if (sniffing := block.block("sniffing")) is not None and sniffing.flag("enabled"):
        block.warn("sniffing", "is not done here: connections are routed by the name or address that they ask for")
    return Served(
        tag=block.text("tag"),
        entry=entry,
        host=host,
        ports=ports,
        accounts=accounts,
        has_udp=entry is Entry.MIXED and settings.flag("udp"),
        udp_host=_udp_host(settings) if entry is Entry.MIXED else "",
        target=_target(settings) if entry is Entry.FORWARD else None,
        level=settings.whole("userLevel", least=0),
        place=".".join(map(str, block.path)),
    )


def _no_stream(block: Block) -> None:
    """Inbounds of plain TCP only."""
    stream = block.block("streamSettings")
    if stream is None:
        return
    network = (stream.text("network") or stream.text("method") or "raw").lower()
    security = stream.text("security", "none").lower()
    if network not in {"raw", "tcp"} or security not in {"", "none"}:
        word = security if network in {"raw", "tcp"} else network
        block.refuse(
            "streamSettings", f"asks for {word}, and inbounds are plain TCP here", "leave this inbound to Xray"
        )
    sockopt = stream.block("sockopt")
    if sockopt is not None and sockopt.text("tproxy", "off").lower() not in {"", "off"}:
        block.refuse("streamSettings", "asks for tproxy, which is not done here", "leave this inbound to Xray")


def _host(block: Block) -> str:
    """Xray listens everywhere where nothing is said."""
    text = block.text("listen")
    if text.startswith(("/", "@")):
        block.refuse("listen", "is a Unix socket, where nobody is served here", '"127.0.0.1"')
        return "127.0.0.1"
    host = text.removeprefix("[").removesuffix("]")
    if host == "localhost":
        return "127.0.0.1"
    if host and not is_address(host):
        block.refuse("listen", "must be an address of this machine", '"127.0.0.1"')
        return "127.0.0.1"
    return host or "0.0.0.0"


def _is_loopback(host: str) -> bool:
    return ip_address(host.partition("%")[0]).is_loopback


def _ports(block: Block) -> tuple[int, ...]:
    if not block.has("port"):
        block.refuse("port", "is needed")
        return ()
    ranges = read_ports(block, "port")
    if sum(last - first + 1 for first, last in ranges) > _MOST_PORTS:
        block.refuse("port", f"must be at most {_MOST_PORTS} ports")
        return ()
    return tuple(dict.fromkeys(port for first, last in ranges for port in range(first, last + 1)))


def _accounts(settings: Block, entry: Entry) -> Mapping[str, str]:
    """Of SOCKS only where `auth` says so; of HTTP wherever there are any."""
    if entry is Entry.FORWARD:
        return _NOBODY
    found: dict[str, str] = {}
    blocks = settings.blocks("accounts") or settings.blocks("users")
    for block in blocks[:_MOST_ACCOUNTS]:
        user, password = block.text("user", needed=True), block.text("pass")
        if max(len(user.encode()), len(password.encode())) > MAX_TEXT:
            block.refuse("user", f"or its password has more than {MAX_TEXT} bytes")
        found[user] = password
    if len(blocks) > _MOST_ACCOUNTS:
        settings.refuse("accounts", f"must have at most {_MOST_ACCOUNTS} items")
    if entry is Entry.HTTP:
        return found
    auth = settings.text("auth", "noauth").lower()
    if auth not in {"noauth", "password"}:
        settings.refuse("auth", "must be noauth or password")
    if auth != "password":
        if found:
            settings.warn("auth", "lets everybody in, whatever the accounts", '"auth": "password" asks for them')
        return _NOBODY
    if not found:
        settings.refuse("accounts", "is needed where auth is password: nobody could come in")
    return found


def _udp_host(settings: Block) -> str:
    text = settings.text("ip")
    if text and not is_address(text):
        settings.refuse("ip", "must be an address of this machine")
        return ""
    return text


def _target(settings: Block) -> tuple[str, int] | None:
    if settings.flag("followRedirect"):
        rule = "takes the address from the firewall's redirect, which is not done here"
        settings.refuse("followRedirect", rule, "name the target by address and port, or leave this inbound to Xray")
    if settings.has("portMap"):
        settings.refuse("portMap", "is not read here", "an inbound for each port does the same")
    if "tcp" not in {each.strip().lower() for each in settings.texts("network") or ("tcp",)}:
        settings.refuse("network", "must hold tcp: datagrams are not forwarded here")
    host = settings.text("address", needed=not settings.flag("followRedirect"))
    return host.removeprefix("[").removesuffix("]"), settings.whole("port", least=0, most=65_535)
