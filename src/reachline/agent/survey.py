"""Asks again from source ports that got no answer, and surveys ports where one leads nowhere: which path of n is dead?

What is asked next, and what the answers mean, is `core.paths`; this sends it, at a bounded pace, for a few lines at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random
from typing import Final, NamedTuple

from reachline.agent.pace import Pace
from reachline.agent.probed import Probed
from reachline.core.paths import End, Paths
from reachline.core.shares import Finding
from reachline.model import Failure, Kind, Seconds
from reachline.net import sources
from reachline.net.engine import Engine, Job
from reachline.talk import build

__all__ = ["Surveyor"]

log = logging.getLogger("reachline.agent")

_GAP: Final[Seconds] = 0.04
"""Between two tries on one line: 512 ports take twenty seconds, and five times what a line in doubt is sent anyway bothers nobody."""
_AT_ONCE: Final = 8
"""Lines with a question at once: 200 tries a second. A path that many lines share is found on these."""


_MOST: Final = 64
"""Lines asked about or asked again from time to time: enough to see what is dead, and 200 tries a second at the very most."""


class _Case:
    """One line in question, and how its suspect attempt left. Written by the surveyor."""

    __slots__ = ("flying", "job", "paths", "probed", "source")

    def __init__(self, probed: Probed, paths: Paths, job: Job) -> None:
        self.probed, self.paths, self.job = probed, paths, job
        self.flying = 0
        """Tries under way."""
        self.source = job.source
        """Bound with the port: on all addresses of this machine a port is in use more often than on one."""


class _Try(NamedTuple):
    """One connect under way."""

    case: _Case
    port: int
    began: Seconds


class Surveyor:
    """All questions of one agent. Written by its prober, on its loop."""

    def __init__(
        self, engine: Engine, pace: Pace, *, rng: Random, ports: range, told: Callable[[Probed], None]
    ) -> None:
        """`told` hears of a line of which something was found, or is no longer so."""
        self._told = told
        self._engine, self._pace, self._rng, self._ports = engine, pace, rng, ports
        self._loop = asyncio.get_running_loop()
        self._cases: dict[int, _Case] = {}
        """By the base of the line's tokens."""
        self._tries: dict[int, _Try] = {}
        """By token: all are negative, so that they meet no round's."""
        self._tokens = count(-1, -1)
        self._timer: asyncio.TimerHandle | None = None

    def suspect(self, probed: Probed, job: Job, port: int) -> None:
        """A connect of a round got no answer from this port, while others of its line do."""
        now = self._loop.time()
        case = self._cases.get(probed.base)
        if case is None:
            asking = sum(bool(other.flying) for other in self._cases.values())
            if asking >= _AT_ONCE or len(self._cases) >= _MOST:
                return
            case = _Case(probed, probed.paths or Paths(self._ports), job)
            case.source = job.source or sources.chosen(self._engine.address(job))
        if case.job.source != job.source:
            return
        case.paths.suspect(port, now)
        if case.paths.due(now) is not None:
            self._cases[probed.base], probed.paths = case, case.paths
            self._arm(now)

    def ended(self, token: int, failure: Failure | None) -> None:
        """A try ended."""
        if (tried := self._tries.pop(token, None)) is None:
            return
        now, (case, port, began) = self._loop.time(), tried
        case.flying -= 1
        before, end = case.paths.finding, _end_of(failure, passed=case.probed.passed >= began)
        if end is End.ANSWERED:
            case.probed.passed = now
        case.paths.ended(port, end, now)
        if _tell(case, before, case.paths.finding):
            self._told(case.probed)
        if case.flying or case.paths.due(now) is not None:
            self._arm(now)
            return
        # Nothing is left to ask. What was learnt stays: after a survey that found nothing there is peace for a while.
        del self._cases[case.probed.base]
        if case.paths.is_idle:
            case.probed.paths = None

    def forget(self, probed: Probed) -> None:
        """The line is not probed any more."""
        probed.paths = None
        if (case := self._cases.pop(probed.base, None)) is None:
            return
        for token in [token for token, tried in self._tries.items() if tried.case is case]:
            del self._tries[token]

    def close(self) -> None:
        """No more tries."""
        if self._timer:
            self._timer.cancel()
        self._cases.clear()
        self._tries.clear()

    def _arm(self, now: Seconds) -> None:
        """Set the timer for the next try that is due, a gap after the last at the earliest."""
        dues = [due for case in self._cases.values() if (due := case.paths.due(now)) is not None]
        if not dues:
            return
        at = max(min(dues), now + _GAP)
        if self._timer is None or at < self._timer.when():
            if self._timer:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._turn)

    def _turn(self) -> None:
        self._timer = None
        now = self._loop.time()
        for case in tuple(self._cases.values()):
            due = case.paths.due(now)
            if due is not None and due <= now and self._pace.has_room(case.probed.claims, now):
                port = case.paths.draw(now, self._rng)
                if port is not None:
                    self._try(case, port, now)
        self._arm(now)

    def _try(self, case: _Case, port: int, now: Seconds) -> None:
        """A connect and nothing else, given up at the timeout: its SYN is not sent again."""
        token = next(self._tokens)
        self._tries[token] = _Try(case, port, now)
        case.flying += 1
        probe = build(Kind.TCP, case.job.endpoint, {})
        self._engine.start(
            replace(case.job, token=token, probe=probe, patience=0.0, source=case.source, port=port), at=now
        )


def _end_of(failure: Failure | None, *, passed: bool) -> End:
    """What a try's end says of its port. Whoever refuses has been reached."""
    match failure:
        case None | Failure.REFUSED | Failure.RESET:
            return End.ANSWERED
        case Failure.TIMEOUT:
            return End.SILENT if passed else End.VOID
        case Failure.AGENT:
            return End.UNUSABLE
        case _:
            return End.VOID


def _tell(case: _Case, before: Finding | None, after: Finding | None) -> bool:
    """Whether there are news, which are in the log then."""
    line = case.probed.line.line
    if after is None and before is not None:
        log.info("paths_recovered", extra={"line": line, "parts": before.parts})
        return True
    if after is not None and after.parts is not None and (before is None or before.parts != after.parts):
        bucket = after.pattern.bucket if after.pattern else None
        figures = {"parts": after.parts, "bucket": bucket, "dead": after.dead, "tried": after.tried}
        log.warning("path_dead", extra={"line": line, **figures})
        return True
    return False
