"""The addresses of lines that the document names: data planes take numbers only. Followed by DNS; the last good answer stays.

One loop. Each name is followed by a task of its own, which ends when no line has the name any more.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from reachline.center.xds.layout import Host
from reachline.discovery import DnsSettings, Family, StrictDns
from reachline.members import Address, Member
from reachline.net.names import Names as Resolver

__all__ = ["Names"]

log = logging.getLogger("reachline.center")

_FAMILIES: Final = {4: Family.V4, 6: Family.V6}
_Known = TypeVar("_Known")
_ANY_PORT: Final = 1
"""Discovery follows endpoints; of these only the addresses are wanted."""


class Names:
    """What is known of every name. Written by its own tasks; read by whoever renders."""

    def __init__(
        self,
        *,
        rng: Random,
        changed: Callable[[], None],
        settings: DnsSettings | None = None,
        resolver: Callable[[], Resolver | None] = lambda: None,
    ) -> None:
        """`changed` is called after every change of `addresses`; `resolver` asks elsewhere than this machine does.

        Of `settings` all counts but the family, and how long answers count: for ever, until there is another.
        """
        self.addresses: Mapping[Host, tuple[str, ...]] = {}
        """By name; a name that was never answered is missing."""
        self.troubles: Mapping[Host, str] = {}
        """What is wrong, in words."""
        self._wanted: frozenset[Host] = frozenset()
        self._stirred = asyncio.Event()
        self._heard: set[Host] = set()
        self._rng, self._changed, self._resolver = rng, changed, resolver
        # An answer that names nobody, or none at all, is a name server's trouble, not the endpoints'.
        self._settings = replace(settings or DnsSettings(), empty_for=math.inf, stale_after=math.inf)

    def want(self, hosts: Iterable[Host]) -> None:
        """From now on these names, and no others, are followed. What is known of one ends with its task, not before: one that is
        wanted again meanwhile is told nothing new.
        """
        wanted = frozenset(hosts)
        if wanted != self._wanted:
            self._wanted = wanted
            self._stirred.set()

    @property
    def pending(self) -> frozenset[Host]:
        """Names whose first question is not over."""
        return self._wanted - self._heard

    async def run(self) -> None:
        """Follows names until cancelled."""
        following: dict[Host, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._stirred.clear()
                for host in following.keys() - self._wanted:
                    following.pop(host).cancel()
                    self._forget(host)
                for host in self._wanted - following.keys():
                    following[host] = tasks.create_task(self._follow(host), name=f"name {host.name}")
                await self._stirred.wait()

    def _forget(self, host: Host) -> None:
        self._heard.discard(host)
        self.addresses = _without(self.addresses, host)
        self.troubles = _without(self.troubles, host)

    async def _follow(self, host: Host) -> None:
        target = Member(address=Address(host.name, _ANY_PORT))
        settings = replace(self._settings, family=_FAMILIES.get(host.family, Family.V4_FIRST))
        rng = Random(self._rng.getrandbits(64))
        watch = StrictDns([target], settings, rng=rng, names=self._resolver()).watch()
        async for update in watch:
            self._take(host, tuple(member.address.host for member in update.membership.members), update.trouble)

    def _take(self, host: Host, addresses: tuple[str, ...], trouble: str) -> None:
        if host not in self._wanted:
            return
        is_first = host not in self._heard
        self._heard.add(host)
        self.troubles = {**self.troubles, host: trouble} if trouble else _without(self.troubles, host)
        if addresses and addresses != self.addresses.get(host):
            self.addresses = {**self.addresses, host: addresses}
            log.info("name_resolved", extra={"host": host.name, "addresses": ", ".join(addresses)})
        elif not is_first:
            return
        self._changed()


def _without(known: Mapping[Host, _Known], host: Host) -> dict[Host, _Known]:
    return {each: said for each, said in known.items() if each != host}
