"""Mesh datagrams between two agents: their bytes and their seals. What each side counts is in `mesh_sides`.

A probe and its reply are of one size, so nothing is amplified. Both carry a keyed digest: the center gives each agent its own key,
and each other agent the key that is derived from that one and its own name; so an agent can speak for itself alone. What is not
exactly as it should be is dropped without an answer, and the reason is counted.

    0  "RLM" version kind ...  16 bytes of head: magic, version, kind (1 probe, 2 reply), nothing, sender
   16  session sequence sent   who asks when, by the asking agent's clock (us)
   36  received replied        by the answering agent's clock (us)
   52  birth span got replies  since when it counts, and how many: numbers seen, distinct arrivals, replies that left
   72  digest                  blake2b of all before

Known gap: a datagram that is caught, held back and let go is a delay, to us as to everybody.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = [
    "KEY",
    "SIZE",
    "VERSION",
    "Drop",
    "Probe",
    "Reply",
    "identity",
    "key_of",
    "pack_probe",
    "pack_reply",
    "pair_key",
    "read_probe",
    "read_reply",
    "reply_session",
]

VERSION: Final = 1
_MAGIC: Final = b"RLM"
_PROBE, _REPLY = 1, 2
_BODY: Final = struct.Struct("!3sBB3xQQIQqqQIII")
_DIGEST: Final = 16
SIZE: Final = _BODY.size + _DIGEST
"""Bytes of every datagram, either way."""
KEY: Final = 32
"""Bytes of a key."""


class Drop(StrEnum):
    """Why a datagram got no answer."""

    MALFORMED = "malformed"
    VERSION = "version"
    FORGED = "forged"
    REPLAYED = "replayed"
    """Seen before, or of a session that is over."""
    FLOOD = "flood"
    """More than an honest agent sends."""


class Probe(NamedTuple):
    """A question. `sender` is `identity` of the asking agent's name; sessions of one agent rise."""

    sender: int
    session: int
    sequence: int
    sent_us: int


class Reply(NamedTuple):
    """An answer: the question, when it came and left by the answering agent's clock, and that agent's counts."""

    sender: int
    session: int
    sequence: int
    sent_us: int
    received_us: int
    replied_us: int
    birth: int
    """Names one count: another birth, other numbers."""
    span: int
    """Sequences from the first that arrived to the highest."""
    got: int
    """Distinct ones of them that arrived."""
    replies: int
    """Replies that left, this one included: its number."""


def identity(agent: str) -> int:
    """An agent's name in eight bytes."""
    return int.from_bytes(hashlib.blake2b(agent.encode(), digest_size=8).digest())


def key_of(secret: bytes, agent: str) -> bytes:
    """The key an agent answers by, from the center's secret."""
    return hashlib.blake2b(agent.encode(), key=secret, digest_size=KEY).digest()


def pair_key(key: bytes, sender: int) -> bytes:
    """The key by which one sender may ask the agent that answers by `key`."""
    return hashlib.blake2b(sender.to_bytes(8), key=key, digest_size=KEY).digest()


def pack_probe(probe: Probe, key: bytes) -> bytes:
    """The datagram, as long as its reply."""
    return _sealed(_BODY.pack(_MAGIC, VERSION, _PROBE, *probe, 0, 0, 0, 0, 0, 0), key)


def pack_reply(reply: Reply, key: bytes) -> bytes:
    """The datagram."""
    return _sealed(_BODY.pack(_MAGIC, VERSION, _REPLY, *reply), key)


def _sealed(body: bytes, key: bytes) -> bytes:
    return body + hashlib.blake2b(body, key=key, digest_size=_DIGEST).digest()


def _is_sealed(data: bytes, key: bytes) -> bool:
    body = data[: _BODY.size]
    return hmac.compare_digest(hashlib.blake2b(body, key=key, digest_size=_DIGEST).digest(), data[_BODY.size :])


def _checked(data: bytes, kind: int) -> Drop | None:
    """What is wrong with it at first sight."""
    if len(data) != SIZE or data[:3] != _MAGIC:
        return Drop.MALFORMED
    if data[3] != VERSION:
        return Drop.VERSION
    return None if data[4] == kind else Drop.MALFORMED


def reply_session(data: bytes) -> int | Drop:
    """The session that a datagram claims to be a reply in: whose key to try."""
    if wrong := _checked(data, _REPLY):
        return wrong
    session: int = _BODY.unpack_from(data)[4]
    return session


def read_reply(data: bytes, key: bytes) -> Reply | Drop:
    """The reply in a datagram."""
    if wrong := _checked(data, _REPLY):
        return wrong
    return Reply(*_BODY.unpack_from(data)[3:]) if _is_sealed(data, key) else Drop.FORGED


def read_probe(data: bytes, key: bytes) -> Probe | Drop:
    """The probe in a datagram; `key` is that of the agent that answers."""
    if wrong := _checked(data, _PROBE):
        return wrong
    probe = Probe(*_BODY.unpack_from(data)[3:7])
    return probe if _is_sealed(data, pair_key(key, probe.sender)) else Drop.FORGED
