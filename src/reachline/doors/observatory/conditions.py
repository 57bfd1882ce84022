"""Conditions of routing rules as sets. What would need more than a connection's addresses, names and account is refused by name."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Final

from reachline.doors.observatory.fields import Block
from reachline.doors.observatory.matching import Addresses, Conditions, Names, Ports, Users, ranges_of
from reachline.errors import RemoteProtocolError
from reachline.wire import geodata

__all__ = ["Geodata", "read_conditions", "read_ports"]

Geodata = Callable[[str], bytes | None]
"""The bytes of a file of lists by its name, None: there is none."""

_LONGEST: Final = 1_000
"""Characters of a pattern; names have 253 at most."""
_MOST_RANGES: Final = 1_000
"""Of ports in one text."""
_NETWORKS: Final = frozenset(("tcp", "udp"))
_UNSEEN: Final = {
    "attrs": "asks for headers of the request, which are not looked into",
    "process": "asks for the program behind a connection, which is not looked for",
    "vlessRoute": "asks for a part of a VLESS id, and VLESS is not served here",
    "localOS": "asks for the system's name",
}
"""Left out, a rule with these would match more than its author meant."""


def read_conditions(block: Block, load: Geodata, *, sniffs: bool) -> Conditions | None:
    """What a rule asks for; None where it cannot be had. `sniffs`: an inbound of the document asks to look into connections."""
    before = len(block.found)
    for name, why in _UNSEEN.items():
        if block.has(name):
            block.refuse(name, why, "take the rule out, or leave it to Xray")
    if block.has("protocol"):
        _protocol(block, sniffs=sniffs)
    inbounds = tuple(each for each in block.texts("inboundTag") if each)
    found = Conditions(
        inbounds=frozenset(inbounds) if block.has("inboundTag") else None,
        networks=_networks(block),
        ports=read_ports(block, "port") if block.has("port") else None,
        source_ports=read_ports(block, "sourcePort") if block.has("sourcePort") else None,
        local_ports=read_ports(block, "localPort") if block.has("localPort") else None,
        users=_users(block) if block.has("user") else None,
        domains=_domains(block, load),
        sources=_addresses(block, "sourceIP" if block.has("sourceIP") else "source", load),
        locals=_addresses(block, "localIP", load),
        addresses=_addresses(block, "ip", load),
    )
    if len(block.found) == before and all(each is None for each in found) and not block.has("protocol"):
        block.found.refuse(
            block.path, "has no condition", "Xray says: this rule has no effective fields", about_key=True
        )
    return found


def _protocol(block: Block, *, sniffs: bool) -> None:
    if sniffs:
        rule = "needs a look into the connection (sniffing), which is not done here"
        block.refuse("protocol", rule, "take the rule out, or switch sniffing off: then it never matches, as in Xray")
    else:
        block.warn("protocol", "never matches: no inbound looks into connections (sniffing), as in Xray")


def _networks(block: Block) -> frozenset[str] | None:
    if not block.has("network"):
        return None
    found = tuple(each.lower() for each in block.texts("network"))
    if wrong := [each for each in found if each not in _NETWORKS | {"unix"}]:
        block.refuse("network", f"must be tcp, udp or both, and not {wrong[0]!r}", '"tcp,udp"')
    return frozenset(found)


def read_ports(block: Block, name: str) -> Ports:
    """A number, or a text with numbers and ranges parted by commas."""
    value = block.raw(name)
    if isinstance(value, bool) or not isinstance(value, int | str):
        block.refuse(name, "must be a port, or a text with ports and ranges", '"53,443,1000-2000"')
        return ()
    parts = [each.strip() for each in str(value).split(",") if each.strip()]
    found = [_range(each) for each in parts[:_MOST_RANGES]]
    if not parts or len(parts) > _MOST_RANGES or None in found:
        block.refuse(name, "must be ports from 0 to 65535 and ranges of them", '"53,443,1000-2000"')
    return tuple(each for each in found if each is not None)


def _range(text: str) -> tuple[int, int] | None:
    first, _, last = text.partition("-")
    numbers = (first.strip(), (last or first).strip())
    if not all(each.isdecimal() and each.isascii() and len(each) <= 5 for each in numbers):
        return None
    low, high = map(int, numbers)
    return (low, high) if low <= high <= 65_535 else None


def _users(block: Block) -> Users:
    texts = [each for each in block.texts("user") if each]
    patterns = [_pattern(block, "user", each[7:]) for each in texts if each.startswith("regexp:") and len(each) > 7]
    names = frozenset(each for each in texts if not (each.startswith("regexp:") and len(each) > 7))
    return Users(names, tuple(each for each in patterns if each is not None))


def _pattern(block: Block, name: str, text: str) -> re.Pattern[str] | None:
    if len(text) > _LONGEST:
        block.refuse(name, f"has a pattern of more than {_LONGEST} characters")
        return None
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        block.refuse(name, f"holds a pattern that cannot be used here ({error}): {text[:60]!r}")
        return None


def _domains(block: Block, load: Geodata) -> Names | None:
    """`domains` takes the place of `domain`, as Xray has it."""
    name = "domains" if block.has("domains") else "domain"
    if not block.has(name):
        return None
    full: set[str] = set()
    below: set[str] = set()
    keywords: list[str] = []
    patterns: list[re.Pattern[str]] = []
    for kind, value in _named(block, name, load):
        match kind:
            case geodata.Kind.FULL:
                full.add(value.lower())
            case geodata.Kind.DOMAIN:
                below.add(value.lower())
            case geodata.Kind.KEYWORD:
                keywords.append(value.lower())
            case geodata.Kind.REGEXP:
                if (found := _pattern(block, name, value)) is not None:
                    patterns.append(found)
    return Names(frozenset(full), frozenset(below), tuple(keywords), tuple(patterns))


_KINDS: Final = {
    "regexp": geodata.Kind.REGEXP,
    "domain": geodata.Kind.DOMAIN,
    "full": geodata.Kind.FULL,
    "keyword": geodata.Kind.KEYWORD,
}


def _named(block: Block, name: str, load: Geodata) -> list[tuple[geodata.Kind, str]]:
    """All entries of a field, those of its lists among them. A plain text is looked for anywhere in a name."""
    found: list[tuple[geodata.Kind, str]] = []
    for text in block.texts(name):
        word, colon, rest = text.partition(":")
        if colon and word in {"geosite", "ext", "ext-domain"}:
            found += [(site.kind, site.value) for site in _sites(block, name, text, load)]
        elif colon and word in _KINDS:
            found.append((_KINDS[word], rest))
        elif colon and word == "dotless":
            if "." in rest:
                block.refuse(name, f"holds {text[:60]!r}, and what has no dots cannot hold one")
            pattern = f"^[^.]*{re.escape(rest)}[^.]*$" if rest else "^[^.]*$"
            found.append((geodata.Kind.REGEXP, pattern))
        elif text:
            found.append((geodata.Kind.KEYWORD, text))
    return found


def _sites(block: Block, name: str, text: str, load: Geodata) -> Sequence[geodata.Site]:
    file, code = _file_of(text, "geosite.dat")
    code, _, attributes = code.partition("@")
    data = _loaded(block, name, file, text, load)
    if data is None:
        return ()
    try:
        found = geodata.sites(data, code, attributes)
    except RemoteProtocolError as error:
        block.refuse(name, f"names {file}, which is no file of lists: {error}")
        return ()
    if found is None:
        block.refuse(name, f"names a list that {file} does not hold: {code!r}")
    return found or ()


def _file_of(text: str, usual: str) -> tuple[str, str]:
    word, _, rest = text.partition(":")
    if word.startswith("geo"):
        return usual, rest
    file, _, code = rest.partition(":")
    return file, code


def _loaded(block: Block, name: str, file: str, text: str, load: Geodata) -> bytes | None:
    data = load(file)
    if data is None:
        hint = "put the file beside the document, or name its directory with --geodata"
        block.refuse(name, f"holds {text[:60]!r}, and {file or 'the file'} is not there", hint)
    return data


def _addresses(block: Block, name: str, load: Geodata) -> tuple[Addresses, ...] | None:
    """One set of all plain networks, one of all that are turned round each."""
    if not block.has(name):
        return None
    four: list[tuple[int, int]] = []
    six: list[tuple[int, int]] = []
    sets: list[Addresses] = []
    for text in block.texts(name):
        plain = text.lstrip("!")
        turned = (len(text) - len(plain)) % 2 == 1
        if plain.startswith(("geoip:", "ext:", "ext-ip:")):
            sets += _listed(block, name, plain, load, turned=turned)
            continue
        network = _network(block, name, plain)
        if network is None:
            continue
        bits, entry = network.max_prefixlen, (int(network.network_address), network.prefixlen)
        if turned:
            sets.append(_set([entry] if bits == 32 else [], [entry] if bits == 128 else [], turned=True))
        else:
            (four if bits == 32 else six).append(entry)
    return (_set(four, six, turned=False), *sets)


def _set(four: Sequence[tuple[int, int]], six: Sequence[tuple[int, int]], *, turned: bool) -> Addresses:
    return Addresses(ranges_of(four, 32), ranges_of(six, 128), turned)


def _network(block: Block, name: str, text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        hint = '"10.0.0.0/8", "2001:db8::/32", "geoip:private"'
        block.refuse(name, f"holds {text[:60]!r}, which is no address and no network", hint)
        return None


def _listed(block: Block, name: str, text: str, load: Geodata, *, turned: bool) -> list[Addresses]:
    file, code = _file_of(text, "geoip.dat")
    plain = code.lstrip("!")
    turned = turned is not ((len(code) - len(plain)) % 2 == 1)
    data = _loaded(block, name, file, text, load)
    if data is None:
        return []
    try:
        found = geodata.networks(data, plain)
    except RemoteProtocolError as error:
        block.refuse(name, f"names {file}, which is no file of lists: {error}")
        return []
    if found is None:
        block.refuse(name, f"names a list that {file} does not hold: {plain!r}")
        return []
    return [_set(found.four, found.six, turned=turned is not found.is_reversed)]
