"""Who may send evidence. As everywhere in the center: a token where one is asked for, TLS as the port has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

from reachline.center.api.guard import shows
from reachline.center.roster import Roster
from reachline.errors import RemoteProtocolError
from reachline.model import Seconds, VantageId
from reachline.net.rpc import Call
from reachline.wire.telling import Teller

__all__ = ["INTRODUCTION", "admit", "bearer", "first", "token_in"]

_FIRST: Final[Seconds] = 5.0
"""Who opens a stream says at once who it is; who does not holds it for nothing."""
INTRODUCTION: Final = 1 << 20
"""Bytes by which a stream of evidence may begin, for they are read before anybody knows whose it is: ten times what an Envoy with
all its extensions says of itself, and a fiftieth of a second's work.
"""


async def first(frames: AsyncIterator[bytes], *, most: int | None = None) -> bytes:
    """The first message of a stream; RemoteProtocolError where none comes in time, or one of more bytes than `most`."""
    try:
        async with asyncio.timeout(_FIRST):
            data = await anext(frames)
    except (TimeoutError, StopAsyncIteration):
        raise RemoteProtocolError(f"no message within {_FIRST:.0f} s") from None
    if most is not None and len(data) > most:
        raise RemoteProtocolError(f"the first message of a stream has {len(data)} bytes, at most {most} are read")
    return data


def bearer(call: Call) -> str:
    """The token that a stream was opened with, or empty text."""
    kind, _, value = call.metadata.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def token_in(metadata: Mapping[str, object] | None) -> str:
    """`reachline.token` of a node's metadata, or empty text: where gRPC puts it, which sends no metadata of ours with its stream."""
    ours = (metadata or {}).get("reachline")
    token = ours.get("token") if isinstance(ours, Mapping) else None
    return token if isinstance(token, str) else ""


def admit(call: Call, teller: Teller, roster: Roster, token: str) -> None:
    """Returns where a data plane's calls are taken: it shows the token the document gives its node id among the agents, or else
    the center's, which SDKs show too. PermissionError says which is missing.
    """
    said = call.metadata.get("authorization", f"Bearer {teller.token}")
    own = roster.token(VantageId(teller.id))
    if (asked := own or token) and not shows(said, asked):
        whose = f"its own, as agent {teller.id!r} of the document" if own else "the center's"
        raise PermissionError(f"node {teller.id!r} did not give its token ({whose}): metadata authorization: Bearer …")
