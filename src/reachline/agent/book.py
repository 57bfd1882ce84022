"""All that one agent probes: the newest plan taken up slice by slice, each line and kind with its jobs and its window.

Knows no time: when a round is due is its owner's, who hears of what begins and ends.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final, Protocol

from reachline.agent.jobs import endpoint_of, jobs_of, unlimited, way_of
from reachline.agent.leaving import Leaving, Outflow, Sources
from reachline.agent.pace import Close
from reachline.agent.probed import SLOTS, Probed
from reachline.core.ring import Columns
from reachline.core.window import Window, max_age
from reachline.errors import ConfigError
from reachline.model import Kind
from reachline.net.engine import Job
from reachline.wire.frame import LinePlan, ProbePlan

__all__ = ["Book"]

log = logging.getLogger("reachline.agent")

_STEPS: Final = 20
"""Lines of a new plan taken up between two looks at other work: two milliseconds."""
_CHEAP: Final = 32
"""Of what costs little: so many lines are one step."""
_ENTERED: Final = 8
"""Of first rounds: so many are one step."""
_OVER: Final = object()


class Owner(Protocol):
    """Who sends what the book says."""

    def began(self, probed: Probed) -> None:
        """It is in the book; its first round is not due yet."""

    def enter(self, probed: Probed, *, at_once: bool) -> None:
        """All of its plan is in the book: its first round may come."""

    def stopped(self, probed: Probed) -> None:
        """It is no longer in the book."""

    def settled(self) -> None:
        """The newest plan is in the book, whole."""


class Book:
    """What is probed. Written by its owner, on one loop."""

    def __init__(self, owner: Owner, *, sources: Sequence[str], close: Close) -> None:
        self.lines: dict[str, tuple[Probed, ...]] = {}
        """All kinds of each line, in the plan's order. Not to be written."""
        self.by_base: dict[int, Probed] = {}
        """By the first of its tokens. Not to be written."""
        self.sources = Sources(sources)
        self.outflow = Outflow(close)
        self._owner, self._close = owner, close
        self._columns = Columns()
        self._bases = count(0, SLOTS)
        self._plan: tuple[LinePlan, ...] = ()
        self._adoption: Iterator[None] = iter(())
        """What is still to be done for the newest plan."""
        self._begun: list[tuple[Probed, bool]] = []
        """Probes that wait for their first round, and whether it is to be at once."""
        self._step: asyncio.Handle | None = None

    @property
    def is_adopting(self) -> bool:
        """Whether the newest plan is still being taken up."""
        return self._step is not None

    def adopt(self, plan: tuple[LinePlan, ...], *, at_once: bool) -> None:
        """Take up these lines and no others: a few dozen at once, more of them slice by slice on the running loop."""
        self._plan = plan
        self._adoption = self._adopting(plan, at_once=at_once)
        self._go_on()

    def look(self) -> None:
        """Take up the plan anew where the addresses of this machine are others than they were."""
        if self.sources.look():
            self.adopt(self._plan, at_once=False)

    def close(self) -> None:
        """Take up no more."""
        if self._step:
            self._step.cancel()

    def _go_on(self) -> None:
        """One slice of what the newest plan asks for."""
        self.close()
        self._step = None
        for _ in range(_STEPS):
            if next(self._adoption, _OVER) is _OVER:
                return
        # What was made now stays: a collector that went through all of it again and again would hold the loop for 100 ms.
        gc.freeze()
        self._step = asyncio.get_running_loop().call_soon(self._go_on)

    def _adopting(self, plan: tuple[LinePlan, ...], *, at_once: bool) -> Iterator[None]:
        """Everything a new plan asks for, in steps. After each of them all is consistent, and another plan may come."""
        outflow = Outflow(self._close)
        for number, line in enumerate(plan):
            outflow.add(line)
            if not number % _CHEAP:
                yield
        self.outflow = outflow
        for name in self.lines.keys() - {line.line for line in plan}:
            for probed in self.lines.pop(name):
                self._end(probed)
            yield
        for line in plan:
            self._take(line, at_once=at_once)
            yield
        self.lines = {line.line: self.lines[line.line] for line in plan if line.line in self.lines}
        # Only now is it known by how much all intervals are stretched.
        yield from self._enter()
        self._owner.settled()

    def _enter(self) -> Iterator[None]:
        while self._begun:
            probed, at_once = self._begun.pop()
            if self.by_base.get(probed.base) is probed:
                self._owner.enter(probed, at_once=at_once)
            if not len(self._begun) % _ENTERED:
                yield

    def _take(self, line: LinePlan, *, at_once: bool) -> None:
        """Begin what the line asks for and is not yet done, end what it does not ask for any more."""
        leaving = self.outflow.leaving(line, self.sources.of(line))
        wanted = {plan.kind: plan for plan in line.probes if plan.kind is not Kind.PASSIVE}
        known = {probed.kind: probed for probed in self.lines.get(line.line, ())}
        for kind in known.keys() - wanted.keys():
            self._end(known[kind])
        found = []
        for kind, plan in wanted.items():
            before = known.get(kind)
            if before and _is_same(before, line, plan, leaving):
                before.follow(line, plan)
                found.append(before)
                continue
            found.append(self._begin(line, plan, leaving, before))
            self._begun.append((found[-1], at_once))
        if found:
            self.lines[line.line] = tuple(found)
        else:
            self.lines.pop(line.line, None)

    def _begin(self, line: LinePlan, plan: ProbePlan, leaving: Leaving, before: Probed | None) -> Probed:
        if before:
            self._stop(before)
        base = next(self._bases)
        jobs, error = _jobs(line, plan, leaving, base)
        window, is_same = self._window(line, plan, before)
        window.slow_us, window.crawl_us = plan.slow_us, plan.crawl_us
        probed = self.by_base[base] = Probed(line, plan, window, base=base, jobs=jobs, leaving=leaving)
        probed.error = error
        if before and is_same:
            probed.inherit(before)
        self._owner.began(probed)
        return probed

    def _window(self, line: LinePlan, plan: ProbePlan, before: Probed | None) -> tuple[Window, bool]:
        """The window to go on with, and whether it is the one there was: same endpoint, same way, same question."""
        age, alpha = max_age(plan.interval_ms / 1_000, plan.max_age_ms / 1_000), line.alpha_milli / 1_000
        shape = (plan.window, age)
        if before and before.window.shape == shape and way_of(before.line, before.plan) == way_of(line, plan):
            before.window.alpha = alpha
            return before.window, True
        if before:
            before.window.close()
        return Window(self._columns, plan.kind, size=plan.window, age=age, alpha=alpha), False

    def _end(self, probed: Probed) -> None:
        self._stop(probed)
        probed.window.close()

    def _stop(self, probed: Probed) -> None:
        del self.by_base[probed.base]
        self._owner.stopped(probed)


def _is_same(before: Probed, line: LinePlan, plan: ProbePlan, leaving: Leaving) -> bool:
    """Whether it can go on as it is: at most what counts as slow is another."""
    same_plan = (before.plan, before.line) == (plan, line)
    return before.leaving == leaving and (same_plan or unlimited(before.line, before.plan) == unlimited(line, plan))


def _jobs(line: LinePlan, plan: ProbePlan, leaving: Leaving, base: int) -> tuple[tuple[Job, ...], str]:
    """The jobs, or why there are none: a line that cannot be probed is reported as such, and the others go on."""
    try:
        return jobs_of(line, plan, endpoint_of(line), leaving, token=base), ""
    except (ConfigError, ValueError) as error:
        log.warning("probe_refused", extra={"line": line.line, "kind": plan.kind.value, "reason": str(error)})
        return (), str(error)
