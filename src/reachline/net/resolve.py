"""Names to addresses, off the hot path: cached, deduplicated, family honoured, failure a value.

The system's resolver does the work in threads of our own that nobody waits for: a name server that hangs for ten seconds
holds neither the loop nor the end of the process.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from reachline.model import Seconds

__all__ = ["Answer", "Resolver", "nameserver"]

_FAMILIES: Final = {0: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}
_TEMPORARY: Final = socket.EAI_AGAIN
_WORDS: Final = {
    socket.EAI_NONAME: "name does not resolve",
    socket.EAI_AGAIN: "the name server does not answer",
    socket.EAI_FAIL: "the name server refuses",
}
if hasattr(socket, "EAI_NODATA"):
    _WORDS[socket.EAI_NODATA] = "name has no address"
if hasattr(socket, "EAI_ADDRFAMILY"):
    _WORDS[socket.EAI_ADDRFAMILY] = "name has no address of this family"

STALE: Final[Seconds] = 300.0
"""While name servers do not answer, the last addresses serve this long: an outage of names is not one of lines."""

Lookup = Callable[[str, int], tuple[str, ...]]
"""(host, family) -> numeric addresses; OSError (gaierror) where there are none. Blocks."""


class Answer(NamedTuple):
    """What a name means now: numeric addresses of one family in the resolver's order, or why there are none."""

    addresses: tuple[str, ...] = ()
    error: str = ""
    until: Seconds = 0.0
    """Monotonic; asked again after it."""
    born: Seconds = 0.0
    """Monotonic; when the addresses were true for the last time."""


def look_up(host: str, family: int) -> tuple[str, ...]:
    """What getaddrinfo says, each address once. Blocks."""
    found = socket.getaddrinfo(host, 0, family=_FAMILIES[family], type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class Resolver:
    """The cache of one event loop. Written by that loop's thread only."""

    def __init__(
        self, *, keep: Seconds = 30.0, keep_failure: Seconds = 5.0, limit: int = 16, lookup: Lookup = look_up
    ) -> None:
        """`keep` is the floor of an answer's life, `keep_failure` that of a failure, `limit` lookups run at once."""
        self._keep = keep
        self._keep_failure = keep_failure
        self._limit = limit
        self._lookup = lookup
        self._answers: dict[tuple[str, int], Answer] = {}
        self._asking: dict[tuple[str, int], list[Callable[[Answer], None]]] = {}
        self._queue: deque[tuple[str, int]] = deque()
        self._doubtful: deque[tuple[str, int]] = deque()
        """Names without an address last time: they wait for all others, and have half of the lookups at most. A thousand names
        that a slow server does not know must not keep a good one waiting.
        """
        self._retried: set[tuple[str, int]] = set()
        """Those of them that are looked up now."""
        self._running = 0
        self._swept: Seconds = 0.0
        self._closed = False

    def cached(self, host: str, family: int) -> Answer | None:
        """The answer at hand (fresh, or stale while it is asked again), None while there is none."""
        answer = self._answers.get((host, family))
        if answer is not None and answer.until <= time.monotonic():
            self.ask(host, family, _nobody)
        return answer

    def ask(self, host: str, family: int, then: Callable[[Answer], None]) -> None:
        """Look the name up unless that is under way; `then` is called once, on the loop."""
        key = (host, family)
        if self._closed:
            return
        if (waiting := self._asking.get(key)) is not None:
            waiting.append(then)
            return
        self._asking[key] = [then]
        last = self._answers.get(key)
        (self._queue if last is None or last.addresses else self._doubtful).append(key)
        self._next()

    def close(self) -> None:
        """Give up all lookups; no callback comes after it."""
        self._closed = True
        self._asking.clear()
        self._queue.clear()
        self._doubtful.clear()

    def _next(self) -> None:
        while self._running < self._limit:
            if self._queue:
                key = self._queue.popleft()
            elif self._doubtful and len(self._retried) < max(1, self._limit // 2):
                key = self._doubtful.popleft()
                self._retried.add(key)
            else:
                return
            self._running += 1
            loop = asyncio.get_running_loop()
            worker = threading.Thread(target=self._work, args=(key, loop), name=f"resolve {key[0]}", daemon=True)
            worker.start()

    def _work(self, key: tuple[str, int], loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own; touches nothing of ours but the lookup."""
        addresses: tuple[str, ...] = ()
        error, temporary = "", False
        try:
            addresses = self._lookup(*key)
        except socket.gaierror as failed:
            error, temporary = _WORDS.get(failed.errno or 0, failed.strerror or str(failed)), failed.errno == _TEMPORARY
        except (OSError, UnicodeError) as failed:
            error = f"name cannot be looked up: {failed}"
        try:
            loop.call_soon_threadsafe(self._answered, key, addresses, error, temporary)
        except RuntimeError:
            return  # the loop is gone, and with it everybody who asked

    def _answered(self, key: tuple[str, int], addresses: tuple[str, ...], error: str, temporary: bool) -> None:
        self._running -= 1
        self._retried.discard(key)
        if self._closed:
            return
        now = time.monotonic()
        answer = self._answer(self._answers.get(key), addresses, error if addresses or error else "name has no address")
        if temporary and (last := self._answers.get(key)) and last.addresses and now - last.born < STALE:
            answer = last._replace(until=now + self._keep_failure)
        self._answers[key] = answer
        self._sweep(now)
        for then in self._asking.pop(key, ()):
            then(answer)
        self._next()

    def _sweep(self, now: Seconds) -> None:
        """Answers that ran out long ago go: whoever probes a name has it looked up again."""
        if now - self._swept < STALE:
            return
        self._swept = now
        for key in [key for key, answer in self._answers.items() if now - answer.until > STALE]:
            del self._answers[key]

    def _answer(self, last: Answer | None, addresses: tuple[str, ...], error: str) -> Answer:
        """Stays with the address that was in use while it is still one of them: a line's figures should be of one path."""
        now = time.monotonic()
        if not addresses:
            return Answer(error=error, until=now + self._keep_failure, born=now)
        if last and last.addresses and (stay := last.addresses[0]) in addresses:
            addresses = (stay, *(other for other in addresses if other != stay))
        return Answer(addresses=addresses, until=now + self._keep, born=now)


def _nobody(_: Answer) -> None:
    """For a lookup that only freshens the cache."""


def nameserver(path: Path = Path("/etc/resolv.conf")) -> str:
    """The address of this machine's first name server; empty where none is configured."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    words = (line.split() for line in lines)
    return next((found[1] for found in words if len(found) > 1 and found[0] == "nameserver"), "")
