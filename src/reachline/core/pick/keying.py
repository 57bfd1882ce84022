"""What a call is kept together by: header, cookie, source address, query parameter or state, hashed and combined as in Envoy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from reachline.core.hashing import xxh64, xxh64_chain

__all__ = ["Asked", "By", "HashPolicy", "cookie_for", "key_of"]

_ALL: Final = 0xFFFF_FFFF_FFFF_FFFF


class By(Enum):
    """What of a call is hashed."""

    HEADER = "header"
    COOKIE = "cookie"
    SOURCE_IP = "source_ip"
    QUERY_PARAMETER = "query_parameter"
    STATE = "filter_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashPolicy:
    """One part of a key. A `terminal` one is the last, once there is a key."""

    by: By
    name: str = ""
    """Of the header (any case), cookie, parameter or state; a source address needs none."""
    terminal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call as hashing sees it."""

    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names in lower case; all values of each, in the order sent."""
    path: str = ""
    """With its query."""
    source_ip: str = ""
    """Without a port."""
    state: Mapping[str, int] = field(default_factory=dict)
    """Hashes, 64 bits, that earlier stages left by name."""


def key_of(policies: Sequence[HashPolicy], asked: Asked) -> int | None:
    """The call's key, 0…2⁶⁴-1, or None where no policy finds anything.

    Parts combine as rotate-left-by-1 of what is there, xor the next: so that the same part twice does not cancel itself out.
    """
    key: int | None = None
    for policy in policies:
        part = _part(policy, asked)
        if part is not None:
            key = part if key is None else ((key << 1 | key >> 63) & _ALL) ^ part
        if policy.terminal and key is not None:
            break
    return key


def cookie_for(remote: str, local: str) -> str:
    """The value that Envoy gives a cookie which a caller has not: 16 hex digits, hashed of both ends' `address:port`.

    Its key is that of a call which sends the cookie back.
    """
    return f"{xxh64((remote + local).encode()):016x}"


def _part(policy: HashPolicy, asked: Asked) -> int | None:
    match policy.by:
        case By.HEADER:
            # Sorted, so that the order in which values were sent does not matter.
            values = sorted(value.encode() for value in asked.headers.get(policy.name.lower(), ()))
            return xxh64_chain(values) if values else None
        case By.COOKIE:
            cookie = _cookie(asked.headers.get("cookie", ()), policy.name)
            return xxh64(cookie.encode()) if cookie else None
        case By.SOURCE_IP:
            return xxh64(asked.source_ip.encode()) if asked.source_ip else None
        case By.QUERY_PARAMETER:
            value = _parameter(asked.path, policy.name)
            return None if value is None else xxh64(value.encode())
        case By.STATE:
            state = asked.state.get(policy.name)
            return None if state is None else state & _ALL


def _cookie(headers: Sequence[str], name: str) -> str:
    """The first cookie of that name, without the quotes around its value; empty without one."""
    for header in headers:
        for pair in header.split(";"):
            found, sign, value = pair.strip().partition("=")
            if sign and found == name:
                value = value.strip()
                return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value
    return ""


def _parameter(path: str, name: str) -> str | None:
    """The parameter's first value as it was sent, undecoded; empty text where it has none."""
    for pair in path.partition("#")[0].partition("?")[2].split("&"):
        found, _, value = pair.partition("=")
        if pair and found == name:
            return value
    return None
