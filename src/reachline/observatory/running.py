"""Observer and balancers of a document, running: one object for whoever asks, chooses by them or tells them how a connection went."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from reachline.core.observing import Status, Told
from reachline.doors.observatory import Reach, Settings, machines, observed, rules
from reachline.net.observing import Observing, Outlet

__all__ = ["Answering", "Running"]


class Answering(Protocol):
    """What interfaces show: this role's observers answer it, and so may any judge of lines."""

    def statuses(self) -> tuple[Status, ...] | None:
        """What is known now, in the observer's order; None: nothing observes."""

    def targets(self, balancer: str) -> tuple[str, ...]:
        """Among whom it chooses, the best first, whatever the override; LookupError where there is no such balancer."""

    def overridden(self, balancer: str) -> str:
        """Whom the override names, empty: none is set; LookupError as above."""

    def override(self, balancer: str, target: str) -> None:
        """Choose this outbound from now on, empty: by strategy again; LookupError where there is no such balancer or outbound."""


class Running:
    """Written by the loop that runs it. `run` has to run for anything to be observed."""

    def __init__(self, settings: Settings, rng: Random, *, told: Callable[[Told], None] | None = None) -> None:
        self._rng: Final = rng
        self._told: Final = told
        self._changed: Final = asyncio.Event()
        self._begin(settings)

    def _begin(self, settings: Settings) -> None:
        self._settings = settings
        made = machines(settings, now=time.time_ns(), rng=self._rng)
        self._balancers = made.balancers
        self._observing = (
            None if made.observer is None else Observing(made.observer, _outlets(settings), told=self._told)
        )

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            self._changed.clear()
            async with asyncio.TaskGroup() as tasks:
                running = None if self._observing is None else tasks.create_task(self._observing.run())
                await self._changed.wait()
                if running is not None:
                    running.cancel()

    def swap(self, settings: Settings) -> None:
        """The document says this from now on. What is known stays where only outbounds changed; overrides stay where they can."""
        kept = {tag: each.overridden() for tag, each in self._balancers.items() if each.overridden()}
        if rules(settings) == rules(self._settings) and settings.strict == self._settings.strict:
            self._settings = settings
            if self._observing is not None:
                self._observing.outbounds(_outlets(settings))
            silent = [each.tag for each in settings.outbounds if each.reach is Reach.NONE]
            for each in self._balancers.values():
                each.outbounds([out.tag for out in settings.outbounds], silent)
        else:
            self._begin(settings)
            self._changed.set()
        for tag, target in kept.items():
            if tag in self._balancers:
                self._balancers[tag].override(target)

    def statuses(self) -> tuple[Status, ...] | None:
        """See `Answering`."""
        return None if self._observing is None else self._observing.statuses()

    def targets(self, balancer: str) -> tuple[str, ...]:
        """See `Answering`."""
        return self._balancers[balancer].targets(self._now())

    def overridden(self, balancer: str) -> str:
        """See `Answering`."""
        return self._balancers[balancer].overridden()

    def override(self, balancer: str, target: str) -> None:
        """See `Answering`."""
        if not self._balancers[balancer].override(target):
            raise LookupError(target)

    def pick(self, balancer: str, tried: frozenset[str]) -> str | None:
        """The outbound of a connection made now, none of those `tried` for it; None: nobody may have it."""
        found = self._balancers.get(balancer)
        if found is None:
            return None
        tag = found.pick(self._now(), self._rng).tag
        if tag not in tried or found.overridden():
            return None if tag in tried else tag
        others = [each for each in found.targets(self._now()) if each not in tried]
        return self._rng.choice(others) if others else None

    def called(self, tag: str, passed: bool) -> None:
        """A connection by this outbound was made, or could not be for a reason that is not its target's."""
        if self._observing is not None:
            self._observing.called(tag, passed)

    def check(self) -> None:
        """Ask every outbound now, beside the schedule."""
        if self._observing is not None:
            self._observing.check()

    def _now(self) -> int:
        return time.time_ns() if self._observing is None else self._observing.now()


def _outlets(settings: Settings) -> dict[str, Outlet | None]:
    """Whatever is observed and has no way out fails at once, as in Xray."""
    asked = frozenset(observed(settings))
    return {
        each.tag: Outlet(each.hops, each.source, each.interface) if each.reach is Reach.NATIVE or each.hops else None
        for each in settings.outbounds
        if each.tag in asked
    }
