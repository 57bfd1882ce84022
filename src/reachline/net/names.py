"""Names to addresses with their times to live, from the wire: what `getaddrinfo` does not tell.

Follows `/etc/hosts` and `/etc/resolv.conf` (read anew for each look-up, so that a change needs no restart), search domains
included. Remembers nothing: how long an answer holds is its asker's decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from reachline.errors import LocalProtocolError
from reachline.members import Address, is_numeric
from reachline.model import Seconds
from reachline.net.asking import Exchange
from reachline.net.hosts import ResolvConf, candidates, in_hosts, resolv_conf, text_at
from reachline.wire.dns import Message
from reachline.wire.dns_answer import Answered, Found, read

__all__ = ["Names", "Then"]

Then = Callable[[Mapping[str, Found]], None]
"""Takes what was found by record kind."""

_WIDTHS: Final = {"A": False, "AAAA": True}
"""Whether an address of this record has colons."""
_WORTH: Final = (Answered.FOUND, Answered.FAILED, Answered.EMPTY, Answered.MISSING)
"""Of several candidates' answers the first of these counts: a name server that failed may know the name."""


class Names:
    """The questions of one loop. Written by that loop's thread only; close it."""

    def __init__(
        self,
        *,
        servers: Sequence[Address] = (),
        search: Sequence[str] = (),
        wait: Seconds | None = None,
        tries: int | None = None,
        resolv: Path = Path("/etc/resolv.conf"),
        hosts: Path = Path("/etc/hosts"),
    ) -> None:
        """`servers` with their `search` domains (none: those of `resolv`), `wait` for one answer, `tries`: rounds over all servers.

        None: what `resolv` says.
        """
        self._servers, self._search = tuple(servers), tuple(search)
        self._wait, self._tries = wait, tries
        self._resolv, self._hosts = resolv, hosts
        self._running: set[_Lookup] = set()

    def ask(self, name: str, kinds: Sequence[str], then: Then) -> None:
        """Look `name` up by records of `kinds` (A, AAAA); `then` is called once, on the loop, later."""
        if is_numeric(name):
            known: tuple[str, ...] = (name,)
        else:
            known = in_hosts(text_at(self._hosts), name)
        lookup = _Lookup(name, tuple(kinds), self._conf(), self._over, then)
        self._running.add(lookup)
        lookup.begin(known)

    def close(self) -> None:
        """Give up all look-ups; no callback comes after it."""
        for lookup in self._running:
            lookup.close()
        self._running.clear()

    def _conf(self) -> ResolvConf:
        conf = resolv_conf(text_at(self._resolv))
        if self._servers:
            conf = replace(conf, servers=self._servers, search=self._search)
        return replace(conf, wait=self._wait or conf.wait, tries=self._tries or conf.tries)

    def _over(self, lookup: _Lookup) -> None:
        self._running.discard(lookup)


class _Lookup:
    """One name: its candidates one after the other, each by all kinds at once."""

    def __init__(
        self, name: str, kinds: tuple[str, ...], conf: ResolvConf, over: Callable[[_Lookup], None], then: Then
    ) -> None:
        self._kinds, self._conf, self._over, self._then = kinds, conf, over, then
        self._candidates = list(candidates(name, conf))
        self._open: dict[str, _Question] = {}
        self._answers: dict[str, Found] = {}
        self._best: dict[str, Found] = {}
        self._soon: asyncio.Handle | None = None

    def begin(self, known: tuple[str, ...]) -> None:
        """With the addresses that need no server, or by asking for the first candidate."""
        if known:
            found = {kind: _of_width(known, kind) for kind in self._kinds}
            self._soon = asyncio.get_running_loop().call_soon(self._end, found)
        else:
            self._next()

    def close(self) -> None:
        """Give up. Idempotent."""
        if self._soon is not None:
            self._soon.cancel()
        for question in self._open.values():
            question.close()
        self._open.clear()

    def _next(self) -> None:
        name = self._candidates.pop(0)
        self._answers = {}
        try:
            for kind in self._kinds:
                self._open[kind] = _Question(name, kind, self._conf, self._heard)
        except LocalProtocolError as error:
            # Too long with this search domain; without it, it may be one. Later, as every answer comes.
            self.close()
            found = Found(Answered.MISSING, error=str(error))
            self._soon = asyncio.get_running_loop().call_soon(self._all_heard, found)

    def _all_heard(self, found: Found) -> None:
        for kind in self._kinds:
            self._heard(kind, found)

    def _heard(self, kind: str, found: Found) -> None:
        self._open.pop(kind, None)
        self._answers[kind] = found
        best = self._best.get(kind)
        if best is None or _WORTH.index(found.answered) < _WORTH.index(best.answered):
            self._best[kind] = found
        if len(self._answers) < len(self._kinds):
            return
        if any(each.answered is Answered.FOUND for each in self._answers.values()):
            self._end(self._answers)
        elif self._candidates:
            self._next()
        else:
            self._end(self._best)

    def _end(self, found: Mapping[str, Found]) -> None:
        self._over(self)
        self._then(found)


class _Question:
    """One full name by one kind: every server in turn, for as many rounds as may be, until one of them knows."""

    def __init__(self, name: str, kind: str, conf: ResolvConf, then: Callable[[str, Found], None]) -> None:
        self._name, self._kind, self._conf, self._then = name, kind, conf, then
        self._left = list(conf.servers) * conf.tries
        self._exchange = self._asked()

    def close(self) -> None:
        self._exchange.close()

    def _asked(self) -> Exchange:
        return Exchange(self._left.pop(0), self._name, self._kind, wait=self._conf.wait, then=self._heard)

    def _heard(self, answer: Message | str) -> None:
        if isinstance(answer, str):
            found = Found(Answered.FAILED, error=answer)
        else:
            found = read(answer, self._name, self._kind)
        if found.answered is Answered.FAILED and self._left:
            self._exchange = self._asked()
        else:
            self._then(self._kind, found)


def _of_width(known: tuple[str, ...], kind: str) -> Found:
    addresses = tuple(each for each in known if (":" in each) is _WIDTHS[kind])
    if addresses:
        return Found(Answered.FOUND, addresses)
    return Found(Answered.EMPTY, error="name has no address of this family")
