"""Who gets a connection that a rule gives to a balancer, and who hears how it went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from reachline.core.observing import Told
from reachline.doors.observatory import Settings, machines, observed
from reachline.net.observing import Observing, Outlet

__all__ = ["Guide", "Own"]

_NS: Final = 1_000_000_000


class Guide(Protocol):
    """Running observers and balancers, as whoever carries sees them."""

    def pick(self, balancer: str, tried: frozenset[str]) -> str | None:
        """The outbound of a connection made now, none of those that were `tried` for it; None: nobody may have it."""

    def called(self, tag: str, passed: bool) -> None:
        """A connection by this outbound was made, or could not be for a reason that is not its target's."""


class Own:
    """Observer and balancers of a document, run here. Written by the loop that runs it."""

    def __init__(
        self, settings: Settings, rng: Random, *, now: int, told: Callable[[Told], None] | None = None
    ) -> None:
        """`now` in nanoseconds since 1970. To be made on the loop that runs it."""
        made = machines(settings, now=now, rng=rng)
        self._balancers: Final = made.balancers
        self._rng: Final = rng
        self._loop: Final = asyncio.get_running_loop()
        asked = frozenset(observed(settings))
        outlets = {
            each.tag: Outlet(each.hops, each.source, each.interface) for each in settings.outbounds if each.tag in asked
        }
        self._observing: Final = None if made.observer is None else Observing(made.observer, outlets, told=told)

    async def run(self) -> None:
        """Observe until cancelled."""
        if self._observing is None:
            await asyncio.Event().wait()
        else:
            await self._observing.run()

    def pick(self, balancer: str, tried: frozenset[str]) -> str | None:
        """By the balancer; a second one among those that its strategy chooses from, unless an override names the first."""
        found = self._balancers.get(balancer)
        if found is None:
            return None
        now = self._now()
        tag = found.pick(now, self._rng).tag
        if tag not in tried or found.overridden():
            return None if tag in tried else tag
        others = [each for each in found.targets(now) if each not in tried]
        return self._rng.choice(others) if others else None

    def called(self, tag: str, passed: bool) -> None:
        """Evidence beside the observer's own."""
        if self._observing is not None:
            self._observing.called(tag, passed)

    def _now(self) -> int:
        return round(self._loop.time() * _NS) if self._observing is None else self._observing.now()
