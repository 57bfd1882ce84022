"""Names followed over time, and the cluster that comes of their addresses. One loop, no task; shared by both DNS kinds."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from reachline.discovery.naming import DnsSettings, Name, deadline, heard, in_use, trouble
from reachline.members import Member, Membership, Update, compare
from reachline.model import Seconds
from reachline.net.names import Names
from reachline.net.waiting import within
from reachline.wire.dns_answer import Found

__all__ = ["Build", "Following", "NameView"]

_log: Final = logging.getLogger("reachline.discovery")

_LOOK: Final[Seconds] = 3_600.0
"""The longest nap: timers of a loop need an end."""
Build = Callable[[Mapping[str, tuple[str, ...]]], tuple[Membership, tuple[str, ...]]]
"""(addresses by name) -> (the cluster, what is odd about it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameView:
    """One name as an operator sees it; instants are the loop's."""

    host: str
    is_ready: bool
    addresses: tuple[str, ...]
    error: str
    failures: int
    due: Seconds


class Following:
    """All names of one cluster. Written by the loop that iterates `watch`."""

    def __init__(
        self, targets: Sequence[Member], settings: DnsSettings, *, rng: Random, names: Names | None, build: Build
    ) -> None:
        self._settings, self._rng, self._build = settings, rng, build
        self._resolver = names
        self._hosts: Final = tuple(dict.fromkeys(each.address.host for each in targets))
        self._names: dict[str, Name] = {}
        self._asking: set[str] = set()
        self._stirred = asyncio.Event()
        self._told: Update | None = None

    def view(self) -> tuple[NameView, ...]:
        """Every name in the order given."""
        now = asyncio.get_running_loop().time()
        return tuple(
            NameView(
                host=each.host,
                is_ready=each.is_ready,
                addresses=in_use(each, now, self._settings),
                error=each.error,
                failures=each.failures,
                due=each.due,
            )
            for each in self._names.values()
        )

    async def watch(self) -> AsyncGenerator[Update, None]:
        """As `abc.Discovery` says. One iteration at a time."""
        now = asyncio.get_running_loop().time
        begin = now()
        self._names = {host: Name(host=host, due=begin) for host in self._hosts}
        self._asking, self._stirred, self._told = set(), asyncio.Event(), None
        names = self._resolver or Names()
        try:
            while True:
                self._stirred.clear()
                self._ask(names, now())
                if (update := self._update(begin, now())) is not None:
                    yield update
                await within(self._stirred, min(self._next(begin, now()) - now(), _LOOK))
        finally:
            names.close()

    def _ask(self, names: Names, now: Seconds) -> None:
        for host, name in self._names.items():
            if host not in self._asking and name.due <= now:
                self._asking.add(host)
                names.ask(host, self._settings.family.kinds, partial(self._heard, host))

    def _heard(self, host: str, found: Mapping[str, Found]) -> None:
        before = self._names[host]
        after = heard(before, found, asyncio.get_running_loop().time(), self._settings, self._rng)
        self._names[host] = after
        self._asking.discard(host)
        self._stirred.set()
        if after.error and after.error != before.error:
            _log.warning("name_not_resolved", extra={"host": host, "reason": after.error})

    def _is_ready(self, begin: Seconds, now: Seconds) -> bool:
        ready = [each.is_ready for each in self._names.values()]
        return now >= begin + self._settings.initial_wait or all(ready) or (self._settings.ready_any and any(ready))

    def _update(self, begin: Seconds, now: Seconds) -> Update | None:
        """What is to be told now, if anything."""
        if self._told is None and not self._is_ready(begin, now):
            return None
        addresses = {host: in_use(each, now, self._settings) for host, each in self._names.items()}
        membership, notices = self._build(addresses)
        troubles = [trouble(each, now, self._settings) for each in self._names.values()]
        said = "; ".join(filter(None, troubles)) if self._names else "no names are written down"
        before = Membership() if self._told is None else self._told.membership
        update = compare(before, membership, trouble=said, notices=notices)
        told = self._told
        if told is not None and not update.is_change and (told.trouble, told.notices) == (said, notices):
            return None
        self._told = update
        return update

    def _next(self, begin: Seconds, now: Seconds) -> Seconds:
        """When to look again by itself. A name being asked calls back, but its addresses may end meanwhile."""
        moments = [
            deadline(replace(each, due=math.inf) if each.host in self._asking else each, now, self._settings)
            for each in self._names.values()
        ]
        if self._told is None:
            moments.append(begin + self._settings.initial_wait)
        return min(moments, default=math.inf)
