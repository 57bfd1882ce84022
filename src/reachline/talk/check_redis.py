"""Active checks of Redis as Envoy's custom checker does them: PING, or a key that must not be there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from reachline.core.checking import Fault, Verdict
from reachline.errors import RemoteProtocolError, one_line
from reachline.talk.asking import GONE, Ask
from reachline.talk.secure import Secure
from reachline.wire import redis

__all__ = ["RedisCheck"]

_SHOWN: Final = 80
"""Characters of what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisCheck:
    """Envoy's Redis checker: PING that is answered by PONG, or EXISTS of a key that must NOT be there (a switch for maintenance)."""

    checker: ClassVar[str] = "REDIS"
    minds_idle_close: ClassVar[bool] = False
    by_connect: ClassVar[bool] = False
    key: str = ""
    secure: Secure | None = None

    def ask(self, authority: str) -> Ask:
        del authority
        return _Redis(self.key)


class _Redis:
    """One command and its reply."""

    __slots__ = ("_broken", "_key", "_replies", "_reply")

    def __init__(self, key: str) -> None:
        self._key = key
        self._replies = redis.Replies()
        self._reply: redis.Reply | None = None
        self._broken = ""

    @property
    def is_reusable(self) -> bool:
        return self._reply is not None

    def begin(self) -> bytes:
        return redis.command("EXISTS", self._key) if self._key else redis.command("PING")

    def received(self, data: bytes) -> bytes | None:
        try:
            replies = self._replies.feed(data)
        except RemoteProtocolError as error:
            self._broken = str(error)
            return None
        self._reply = replies[0] if replies else None
        return b"" if self._reply is None else None

    def verdict(self, *, closed: bool = False) -> Verdict:
        reply = self._reply
        if reply is None:
            return Verdict(Fault.NETWORK, note=self._broken or (GONE if closed else "no whole answer"))
        if (reply.sort, reply.text) == ((":", "0") if self._key else ("+", "PONG")):
            return Verdict()
        is_there = self._key and reply.sort == ":"
        said = f"the key {self._key} is there" if is_there else f"answered {one_line(reply.text[:_SHOWN])[:_SHOWN]}"
        return Verdict(Fault.ACTIVE, note=said)
