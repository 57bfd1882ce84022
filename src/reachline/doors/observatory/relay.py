"""What a proxy core needs so that we reach outbounds which only it speaks: one SOCKS inbound on the loopback, one account for each.

Xray takes the name of a SOCKS account for the connection's `user`, which a routing rule sends to the outbound. One port, any number
of outbounds. The document is merged behind the user's own by `-confdir`; as a `routing` block replaces the one before, it carries
that as well, behind its own rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reachline.model import Endpoint
from reachline.talk.hop import Hop, Scheme

__all__ = ["Core", "account", "document", "hop"]

_TAG = "reachline-socks"
"""The inbound's, which no document is known to use."""


class Core(NamedTuple):
    """A SOCKS5 address where a core takes one account for each outbound."""

    host: str
    port: int
    password: str
    """Of all its accounts."""


def account(tag: str) -> str:
    """The user that stands for an outbound: of plain characters and bounded, whatever the tag."""
    return f"reachline-{hashlib.blake2s(tag.encode(), digest_size=6).hexdigest()}"


def hop(core: Core, tag: str) -> Hop:
    """The way through the core to an outbound; names are resolved behind it."""
    family = 6 if ":" in core.host else 4 if core.host.replace(".", "").isdigit() else 0
    endpoint = Endpoint(scheme=Scheme.SOCKS5H.value, host=core.host, port=core.port, family=family)
    return Hop(scheme=Scheme.SOCKS5H, endpoint=endpoint, user=account(tag), password=core.password)


def document(tags: Iterable[str], core: Core, *, routing: Mapping[str, object] | None = None) -> dict[str, object]:
    """The document for these outbounds, ready for a JSON encoder. `routing` is the user's own block."""
    wanted = tuple(dict.fromkeys(tags))
    users = [{"user": account(tag), "pass": core.password} for tag in wanted]
    inbound = {
        "tag": _TAG,
        "listen": core.host,
        "port": core.port,
        "protocol": "socks",
        "settings": {"auth": "password", "accounts": users, "udp": False},
    }
    ours = [{"inboundTag": [_TAG], "user": [account(tag)], "outboundTag": tag} for tag in wanted]
    rest = dict(routing or {})
    key = next((name for name in rest if name.casefold() == "rules"), "rules")
    theirs = rest.get(key)
    return {"inbounds": [inbound], "routing": {**rest, key: [*ours, *(theirs if isinstance(theirs, list) else [])]}}
