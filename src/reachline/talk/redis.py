"""Redis: AUTH and SELECT where asked for, then PING, or EXISTS of one key; all sent at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from reachline.errors import RemoteProtocolError, one_line
from reachline.model import Endpoint, Failure
from reachline.talk.options import Options
from reachline.talk.secure import Secure
from reachline.talk.way import Way, needs_port
from reachline.wire import redis

__all__ = ["RedisProbe", "RedisTalk"]

_MOST: Final = 512
"""Bytes of a key, a user or a password."""
_LAST_BASE: Final = 16_383
"""The highest number a database can have in any set-up (the default has 16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisProbe:
    """Options: exists, user, password, db, tls; with TLS also sni, alpn, expect_alpn, verify, ca, min_tls."""

    way: ClassVar[Way] = Way.STREAM
    secure: Secure | None = None
    request: bytes = field(repr=False)
    """All commands at once: each one's reply comes in order."""
    wants: tuple[str, ...]
    """What each reply must be."""

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> RedisProbe:
        needs_port(endpoint, options)
        secure = Secure.read(endpoint, options) if options.flag("tls", endpoint.scheme == "rediss") else None
        user, password = options.parsed("user", "", _word), options.parsed("password", "", _word)
        if user and not password:
            options.refuse("user", "needs a password")
        base = options.parsed("db", _base(endpoint, options), _number)
        key = options.parsed("exists", "", _word)
        asked: list[tuple[str, ...]] = []
        wants = []
        if password:
            asked.append(("AUTH", user, password) if user else ("AUTH", password))
            wants.append("+OK")
        if base:
            asked.append(("SELECT", str(base)))
            wants.append("+OK")
        asked.append(("EXISTS", key) if key else ("PING",))
        wants.append(":1" if key else "+PONG")
        return cls(secure=secure, request=b"".join(redis.command(*words) for words in asked), wants=tuple(wants))

    def where(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    def talk(self, endpoint: Endpoint, nonce: int) -> RedisTalk:
        del endpoint, nonce
        return RedisTalk(self)


class RedisTalk:
    """The commands and their replies; the first that is not as wanted ends it."""

    answered: ClassVar[bool] = True
    status: ClassVar[int] = 0
    __slots__ = ("_broken", "_left", "_probe", "_replies", "_unwanted", "note")

    def __init__(self, probe: RedisProbe) -> None:
        self.note = ""
        self._probe = probe
        self._replies = redis.Replies()
        self._left = list(reversed(probe.wants))
        self._unwanted = ""
        self._broken = ""

    def begin(self) -> bytes:
        return self._probe.request

    def received(self, data: bytes) -> bytes | None:
        try:
            replies = self._replies.feed(data)
        except RemoteProtocolError as error:
            self._broken = str(error)
            return None
        for reply in replies:
            if not self._left:
                break
            if reply.sort + reply.text != self._left.pop():
                self._unwanted = _words(reply)
                return None
        return b"" if self._left else None

    def closed(self) -> Failure | None:
        if self._unwanted:
            self.note = self._unwanted
            return Failure.STATUS
        if self._broken:
            self.note = self._broken
            return Failure.PROTOCOL
        if not self._left:
            return None
        self.note = "closed within the replies" if self._replies.started else "closed without an answer"
        return Failure.PROTOCOL if self._replies.started else Failure.RESET


def _words(reply: redis.Reply) -> str:
    """What came in place of what was wanted. An error's own words: NOAUTH, LOADING, MOVED 3999 10.0.0.7:6381 and the like."""
    if reply.sort == "-":
        return one_line(reply.text[:200])[:200] or "an error without words"
    if reply.sort == ":":
        return "the key does not exist"
    return f"unexpected reply {reply.text[:40]!r}"


def _base(endpoint: Endpoint, options: Options) -> int:
    """The database of `redis://host/2`."""
    path = endpoint.path.strip("/") if endpoint.scheme in {"redis", "rediss"} else ""
    try:
        return _number(path or "0")
    except ValueError as error:
        options.refuse("to", f"{error}", "write it as redis://host:6379/2, or without a path")
        return 0


def _number(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) <= 5 and int(text) <= _LAST_BASE):
        raise ValueError(f"must be the number of a database, 0 to {_LAST_BASE}")
    return int(text)


def _word(text: str) -> str:
    if not text or len(text.encode()) > _MOST:
        raise ValueError(f"must be 1 to {_MOST} bytes")
    return text
