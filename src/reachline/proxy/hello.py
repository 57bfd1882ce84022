"""The first message of a TLS client, as much as choosing a filter chain needs: the name it asks for and its protocols. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["MOST", "Hello", "read"]

MOST: Final = 16_384 + 5
"""Bytes of one record; a client's first message that needs more is none that we know."""
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SNI, _ALPN = 0, 16


class Hello(NamedTuple):
    """What the client said. `is_tls` False: it speaks something else."""

    is_tls: bool
    server_name: str = ""
    alpn: tuple[str, ...] = ()


_PLAIN: Final = Hello(False)


def read(data: bytes) -> Hello | None:
    """The message in what has come so far; None: more of it is needed."""
    if not data:
        return None
    if data[0] != _HANDSHAKE or (len(data) > 1 and data[1] != 3):
        return _PLAIN
    if len(data) < 5:
        return None
    size = int.from_bytes(data[3:5], "big")
    if len(data) < 5 + size:
        return None if size <= MOST else _PLAIN
    try:
        return _hello(data[5 : 5 + size])
    except IndexError:
        return _PLAIN


def _hello(body: bytes) -> Hello:
    if body[0] != _CLIENT_HELLO:
        return _PLAIN
    at = 4 + 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(_cut(body, at, 2), "big")
    at += 1 + body[at]
    if at == len(body):
        return Hello(True)
    end = at + 2 + int.from_bytes(_cut(body, at, 2), "big")
    at += 2
    name, alpn = "", tuple[str, ...]()
    while at + 4 <= min(end, len(body)):
        kind, size = int.from_bytes(body[at : at + 2], "big"), int.from_bytes(body[at + 2 : at + 4], "big")
        value = _cut(body, at + 4, size)
        at += 4 + size
        if kind == _SNI and len(value) > 5:
            name = _cut(value, 5, int.from_bytes(value[3:5], "big")).decode("ascii", "replace").lower()
        elif kind == _ALPN:
            alpn = tuple(_texts(value[2:]))
    return Hello(True, name, alpn)


def _texts(value: bytes) -> list[str]:
    found, at = [], 0
    while at < len(value):
        found.append(_cut(value, at + 1, value[at]).decode("ascii", "replace"))
        at += 1 + value[at]
    return found


def _cut(data: bytes, at: int, size: int) -> bytes:
    """IndexError where it is not all there."""
    if at + size > len(data):
        raise IndexError
    return data[at : at + size]
