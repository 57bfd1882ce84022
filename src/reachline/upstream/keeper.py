"""What keeps one cluster current: its discovery, its checks and its timers as tasks of one loop. Ends with its cancellation.

Made anew for each driver (the client's thread, and again after a fork); what is known stays with the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from reachline.abc import Discovery
from reachline.core.checking import After, Verdict
from reachline.members import Update
from reachline.model import Seconds
from reachline.net.waiting import aside, within
from reachline.upstream.checks import Checks, Questions, Target
from reachline.upstream.kept import KeptCluster
from reachline.upstream.roll import Row

__all__ = ["Keeper"]

_LOOK: Final[Seconds] = 1.0
"""The longest nap: events are written once a second at least."""


class Keeper:
    """Written by the loop that runs `run`; `stir` is called there too."""

    def __init__(
        self,
        cluster: KeptCluster,
        discovery: Discovery,
        *,
        settled: Callable[[str], None] = lambda _: None,
        seed: int = 0,
        questions: Callable[[Target], Questions] | None = None,
    ) -> None:
        """`settled` hears once that the first endpoints are there, and checked; `questions` stands in for the network."""
        self._cluster, self._discovery, self._settled = cluster, discovery, settled
        self._stirred: Final = asyncio.Event()
        self._is_settled = False
        self._warm_until: Seconds | None = None
        """From the first update on: when the first checks have had time enough."""
        check = cluster.settings.check
        self._checks = (
            None
            if check is None
            else Checks(
                cluster.name,
                check.asked,
                check.rules,
                seed=seed,
                told=self._checked,
                has_traffic=lambda: cluster.is_called,
                questions=questions,
            )
        )

    def stir(self) -> None:
        """Look at the timers and the events now."""
        self._stirred.set()

    async def run(self) -> None:
        """Until cancelled; the events that wait are written then."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._tend())
                if self._checks is not None:
                    group.create_task(self._checks.run())
        finally:
            self._cluster.events.flush()

    async def _follow(self) -> None:
        is_first = True
        async with aclosing(self._discovery.watch()) as updates:
            async for update in updates:
                self._take(update, is_first=is_first)
                is_first = False

    def _take(self, update: Update, *, is_first: bool) -> None:
        """An update, unless it is a first one that found nothing while endpoints are known from before (after a fork)."""
        if is_first and update.trouble and not update.membership.members and self._cluster.rows():
            self._cluster.trouble = update.trouble
        else:
            self._cluster.update(update)
        self._retarget()
        if self._warm_until is None:
            self._warm_until = asyncio.get_running_loop().time() + self._cluster.settings.warm
        self._look_settled()
        self.stir()

    def _checked(self, key: str, after: After, verdict: Verdict) -> None:
        """A check's result; an endpoint that discovery no longer names goes by its first failure."""
        if not self._cluster.checked(key, after, verdict):
            # Later: this one is told from within the task that would be ended.
            asyncio.get_running_loop().call_soon(self._retarget)
        if not self._is_settled:
            self.stir()

    def _retarget(self) -> None:
        if self._checks is not None:
            targets = [_target(row) for row in self._cluster.rows() if not row.member.check.is_off]
            self._checks.replace(targets, pending=self._cluster.settings.waits_for_check)

    def _look_settled(self) -> None:
        if self._is_settled or self._warm_until is None:
            return
        is_warm = self._cluster.is_current and (self._checks is None or self._checks.is_settled)
        if is_warm or asyncio.get_running_loop().time() >= self._warm_until:
            self._is_settled = True
            self._settled(self._cluster.name)

    async def _tend(self) -> None:
        """Turn what is due, write events."""
        loop, cluster = asyncio.get_running_loop(), self._cluster
        while True:
            due = cluster.deadline()
            wait = _LOOK if due is None else min(max(0.0, due - loop.time()), _LOOK)
            await within(self._stirred, wait)
            self._stirred.clear()
            if self._checks is not None:
                for key in cluster.take_failed():
                    self._checks.failed_by_call(key)
            if (due := cluster.deadline()) is not None and due <= loop.time():
                if cluster.is_large:
                    # Aside, so that neither checks nor discovery wait for it; callers do not in any case.
                    await aside(cluster.turn, name=f"reachline {cluster.name}")
                else:
                    cluster.turn()
            cluster.events.flush()
            self._look_settled()


def _target(row: Row) -> Target:
    """Where an endpoint's checks go, and whom they ask for."""
    member = row.member
    at = member.check
    return Target(
        row.key, at.host or member.address.host, at.port or member.address.port, at.hostname or member.hostname
    )
