"""Observer and balancers of a document, running: one object for whoever asks, chooses by them or tells them how a connection went."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from reachline.core.observing import Status, Strategy, Told
from reachline.doors.observatory import Reach, Settings, machines, observed, rules
from reachline.model import Seconds
from reachline.net.observing import Observing, Outlet

__all__ = ["Answering", "Running"]

_NS: Final = 1_000_000_000
_SPREADING: Final = frozenset((Strategy.RANDOM, Strategy.ROUND_ROBIN))
_AGE: Final[Seconds] = 1.0
"""Between two looks at what may have become too old where nothing else happens: it has been valid for two windows, of seconds each."""
_LEISURE: Final = 2
"""Times that a look at figures may be put off: among 5 000 that are asked once a minute those are 5 s old then, and looking takes half."""
_GRAIN: Final = 100
"""Parts of an interval between two batches of requests, a tenth of what chance moves each by, strictly none…"""
_FINEST: Final = 100_000_000
"""…but so many nanoseconds at least, which is what chance moves them by where the interval is the shortest…"""
_COARSEST: Final = 250_000_000
"""…and so many at most: a doubt is settled by a few requests one after the other, within seconds."""


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

    def __init__(
        self, settings: Settings, rng: Random | None = None, *, told: Callable[[Told], None] | None = None
    ) -> None:
        self._rng: Final = rng or Random()
        self._told: Final = told
        self._changed: Final = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        """The next look."""
        self._figures: int | None = None
        """When it is at figures that are others; None: nobody has looked yet."""
        self._begin(settings)

    def _begin(self, settings: Settings) -> None:
        self._settings, self._figures = settings, None
        made = machines(settings, now=time.time_ns(), rng=self._rng, holds=True)
        self._balancers, self._held = made.balancers, made.held
        self._observing = None
        if made.observer is not None:
            self._observing = Observing(made.observer, _outlets(settings), told=self._heard, grain=_grain(settings))

    async def run(self) -> None:
        """Observe until cancelled."""
        try:
            while True:
                self._changed.clear()
                self._look()
                async with asyncio.TaskGroup() as tasks:
                    running = None if self._observing is None else tasks.create_task(self._observing.run())
                    await self._changed.wait()
                    if running is not None:
                        running.cancel()
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _heard(self, told: Told) -> None:
        """A result: soon there may be something else to choose by, at once where an outbound came to life or died."""
        if self._held is not None:
            due, now = self._held.due(turned=True) if told.changed else self._figures, self._now()
            if due is None or due <= now:
                self._look()
            else:
                self._look_within((due - now) / _NS)
        if self._told is not None:
            self._told(told)

    def _look(self) -> None:
        """What balancers choose is worked out here, so that no connection waits for it."""
        held = self._held
        if held is None:
            return
        now = self._now()
        if held.look(now):
            for each in self._balancers.values():
                each.targets(now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = _LEISURE * ((held.due(turned=False) or now) - now)
        self._figures = now + wait
        self._look_within(max(_AGE, wait / _NS))

    def _look_within(self, wait: Seconds) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + wait
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._look)

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
            self._look()
            for each in self._balancers.values():
                each.targets(self._now())
        else:
            self._begin(settings)
            self._changed.set()
        for tag, target in kept.items():
            if tag in self._balancers:
                self._balancers[tag].override(target)

    def statuses(self) -> tuple[Status, ...] | None:
        """See `Answering`."""
        return None if self._observing is None else self._observing.statuses()

    def shown(self) -> tuple[Status, ...] | None:
        """Those by which is chosen now: as of the last look, the same tuple until the next."""
        if self._held is None or self._observing is None:
            return self.statuses()
        return self._observing.dated(self._held.statuses(0))

    def targets(self, balancer: str) -> tuple[str, ...]:
        """See `Answering`."""
        return self._balancers[balancer].targets(self._now())

    def balancers(self) -> dict[str, bool]:
        """By tag, whether an Xray would spread among its candidates by itself, whoever is well."""
        found = self._settings.balancers
        return {tag: each.rules.strategy in _SPREADING for tag, each in found.items()}

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
        if not tried:
            return found.pick(self._now(), self._rng).tag
        others = found.instead(tried, self._now())
        return self._rng.choice(others) if others else None

    def keeps(self, balancer: str, tag: str) -> bool:
        """Whether a connection made now may go by this outbound too."""
        found = self._balancers.get(balancer)
        if found is None:
            return False
        override = found.overridden()
        return tag == override if override else tag in found.targets(self._now())

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


def _grain(settings: Settings) -> int:
    if settings.strict or settings.observatory is None:
        return 0
    return min(max(settings.observatory.rules.interval // _GRAIN, _FINEST), _COARSEST)


def _outlets(settings: Settings) -> dict[str, Outlet | None]:
    """Whatever is observed and has no way out fails at once, as in Xray."""
    asked = frozenset(observed(settings))
    return {
        each.tag: Outlet(each.hops, each.source, each.interface) if each.reach is Reach.NATIVE or each.hops else None
        for each in settings.outbounds
        if each.tag in asked
    }
