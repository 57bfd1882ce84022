"""What a DNS response says of one name: its addresses in the order sent, and how long they may be kept. Knows no cache."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from reachline.wire.dns import Message, rcode_name

__all__ = ["Answered", "Found", "read"]

_NXDOMAIN: Final = 3


class Answered(Enum):
    """How a question ended. The first three are answers, the last one is none."""

    FOUND = 0
    EMPTY = 1
    """The name exists and has no such record."""
    MISSING = 2
    """The name does not exist."""
    FAILED = 3
    """SERVFAIL and the like, or nobody answered."""


class Found(NamedTuple):
    """One name's addresses of one family."""

    answered: Answered
    addresses: tuple[str, ...] = ()
    """Numeric, each once, as sent."""
    ttl: int | None = None
    """Seconds: the smallest of the records that lead from the name to the addresses."""
    error: str = ""
    """In words, where there are no addresses."""


def read(message: Message, name: str, kind: str) -> Found:
    """What `message` says of `name` by records of `kind` (A or AAAA), following its CNAMEs; other names' records are ignored."""
    if message.rcode == _NXDOMAIN:
        return Found(Answered.MISSING, error="name does not exist")
    if message.rcode:
        return Found(Answered.FAILED, error=f"the name server says {rcode_name(message.rcode)}")
    aliases = {each.name: each for each in message.answers if each.kind == "CNAME"}
    at, ttls = name.rstrip(".").lower(), []
    for _ in range(len(aliases)):
        if (alias := aliases.get(at)) is None:
            break
        at = alias.data
        ttls.append(alias.ttl)
    records = [each for each in message.answers if each.name == at and each.kind == kind]
    if not records:
        return Found(Answered.EMPTY, error="name has no address")
    addresses = tuple(dict.fromkeys(each.data for each in records))
    return Found(Answered.FOUND, addresses, min([*ttls, *(each.ttl for each in records)]))
