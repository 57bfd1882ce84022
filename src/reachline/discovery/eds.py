"""`eds`: a cluster's endpoints by a control plane, over a stream that is shared (`net.ads`)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from reachline.errors import ConfigError, Problem
from reachline.members import Membership, Update, compare
from reachline.model import Seconds
from reachline.net.ads import Ads
from reachline.net.waiting import within
from reachline.wire.ads import EDS, News, Told

if TYPE_CHECKING:
    from reachline.wire.xds import Assignment

__all__ = ["Eds"]

_REST: Final[Seconds] = 3_600.0
"""The longest nap: timers of a loop need an end."""


class Eds:
    """One cluster's endpoints by EDS; a `Discovery`. What was assigned last holds until something else is, or it is stale.

    Written by the loop that iterates `watch`, which is the one that runs `ads`.
    """

    def __init__(self, ads: Ads, name: str, *, initial_fetch_timeout: Seconds = 15.0) -> None:
        """`name` of the assignment: the cluster's, or its `service_name`.

        `initial_fetch_timeout`: how long the first update may wait for it (`math.inf`: as long as it takes).
        """
        if not name or not name.isprintable():
            raise ConfigError(Problem(place="eds", path="name", value=ascii(name), rule="must name an assignment"))
        if not initial_fetch_timeout > 0:
            rule = "must be above 0 s; math.inf waits as long as it takes"
            raise ConfigError(
                Problem(place="eds", path="initial_fetch_timeout", value=repr(initial_fetch_timeout), rule=rule)
            )
        self.name: Final = name
        self._ads, self._patience = ads, initial_fetch_timeout
        self._stirred = asyncio.Event()
        self._assignment: Assignment | None = None
        self._since: Seconds = 0.0
        """When it was assigned last."""
        self._reason = ""
        """Why what came last does not count."""
        self._is_settled = False
        """Whether the control plane has said something of it."""

    async def watch(self) -> AsyncGenerator[Update, None]:
        """As `abc.Discovery` says. One iteration at a time."""
        now = asyncio.get_running_loop().time
        begin, told = now(), None
        self._assignment, self._reason, self._is_settled = None, "", False
        self._stirred = asyncio.Event()
        end = self._ads.subscribe(EDS, self.name, self._heard)
        try:
            while True:
                self._stirred.clear()
                if self._is_settled or told is not None or now() >= begin + self._patience:
                    update = self._update(told, now())
                    if told is None or update.is_change or _said(update) != _said(told):
                        told = update
                        yield update
                await within(self._stirred, min(self._next(begin, told, now()) - now(), _REST))
        finally:
            end()

    def _heard(self, told: Told | None) -> None:
        self._stirred.set()
        if told is None:
            return
        match told.news:
            case News.HERE:
                self._assignment = cast("Assignment", told.value)
                self._since = asyncio.get_running_loop().time()
                self._reason, self._is_settled = "", True
            case News.GONE:
                # As Envoy: an assignment is deleted with its cluster, and an answer without it is no order to drop all traffic.
                self._reason, self._is_settled = told.reason, True
            case News.EXPIRED:
                # This one is: whoever gives a time to live wants no endpoints after it.
                self._assignment, self._reason = None, told.reason
            case News.REFUSED:
                self._reason = f"refused: {told.reason}"
                self._is_settled |= bool(told.name)

    def _is_stale(self, now: Seconds) -> bool:
        return now >= self._since + self._stale_after()

    def _stale_after(self) -> Seconds:
        after = self._assignment.membership.stale_after if self._assignment else None
        return math.inf if after is None else after

    def _update(self, told: Update | None, now: Seconds) -> Update:
        membership = self._assignment.membership if self._assignment else Membership()
        troubles = [self._reason, self._ads.trouble]
        if self._assignment is None and not any(troubles):
            troubles = [f"the control plane has not assigned endpoints to {self.name} yet"]
        if self._assignment is not None and self._is_stale(now):
            membership = replace(membership, members=())
            troubles.insert(0, f"not said again for {self._stale_after():g} s (endpoint_stale_after)")
        before = told.membership if told else Membership()
        notices = self._assignment.notices if self._assignment else ()
        return compare(before, membership, trouble="; ".join(filter(None, troubles)), notices=notices)

    def _next(self, begin: Seconds, told: Update | None, now: Seconds) -> Seconds:
        """When something happens by itself."""
        if told is None:
            return begin + self._patience
        return math.inf if self._assignment is None or self._is_stale(now) else self._since + self._stale_after()


def _said(update: Update) -> tuple[str, tuple[str, ...]]:
    return update.trouble, update.notices
