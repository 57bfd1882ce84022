"""How far an agent trusts itself now, and why not: its score of doubt, its reasons in words, and whether its results count."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from reachline.agent import trust
from reachline.agent.notices import CALM, Notices
from reachline.agent.passive import Passive
from reachline.agent.prober import Prober
from reachline.agent.references import EVERY_MS, References, Through, is_own
from reachline.doors.addresses import parse_target
from reachline.model import HELPERS, Seconds, Zone
from reachline.wire.frame import LinePlan

__all__ = ["SelfCheck"]

log = logging.getLogger("reachline.agent")

_TOLD: Final = 16
"""References by name: nobody reads more, and a center takes no heartbeat with hundreds."""
_TIMEOUT: Final[Seconds] = EVERY_MS / 1_000
"""Of every reference."""


class _Reason(NamedTuple):
    """Why we doubt: `name` stays the same while it lasts, `text` has the numbers."""

    name: str
    text: str
    worst: int = trust.MOST
    """How far it can raise the score."""


class SelfCheck:
    """One agent's opinion of itself. Written by the task that reports."""

    def __init__(self, prober: Prober, passive: Passive, references: References) -> None:
        self._prober, self._passive, self._references = prober, passive, references
        self._sure: Seconds = 0.0
        """Until then the references answered, if there are any."""
        self._reasons: tuple[_Reason, ...] = ()
        self._void = ""
        self._loud: Seconds = -math.inf
        """From when on a change of that is told again: a check that flaps cannot flood the log."""
        self._is_told = False
        self._notices = Notices()
        self._counted: tuple[Seconds, Through] = (-math.inf, Through())
        self._bad = set[str]()
        """Lines that are bad now, perhaps with some that are no longer lines."""
        self._were_bad: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        """Those at the look before the last, and at the last."""
        self.score = 0

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why we doubt ourselves, in words; empty where we do not, or no longer and the score is still fading."""
        return tuple(reason.text for reason in self._reasons)

    @property
    def is_void(self) -> bool:
        """Whether our own end is broken: what we measure is no evidence."""
        return bool(self._void)

    def turned(self, line: str) -> None:
        """Our own quick opinion of a line did, by one of its kinds."""
        zones = [probed.zone for probed in self._prober.lines.get(line, ()) if probed.kind not in HELPERS]
        if watched := self._passive.watched.get(line):
            zones.append(watched.zone)
        if Zone.F in zones:
            self._bad.add(line)
        else:
            self._bad.discard(line)

    def look(self, now: Seconds) -> None:
        """Once a heartbeat: the score, and its reasons."""
        self.check(now)
        self._reasons = tuple(self._found(now))
        self.score = trust.doubt(self.score, max((reason.worst for reason in self._reasons), default=0))
        began, over = self._notices.look([reason.name for reason in self._reasons], now)
        if began or over:
            log.warning("doubt_changed", extra={"score": self.score, "reasons": "; ".join(self.doubts) or "none"})

    def check(self, now: Seconds) -> None:
        """Whether what we measure counts. The end of a cut is found here, and its samples taken back."""
        was, self._void = self._void, self._references.cut_off(self._prober.lines, lambda: self._through(now))
        if was and not self._void:
            self._prober.revoke(self._sure)
            self._passive.revoke(self._sure)
        if self._void != was:
            self._tell_void(was, now)
        if not self._void:
            # Whatever answers now was asked at most its interval and its timeout ago: only until then we are sure.
            blind = self._prober.factor * self._references.blind_ms / 1_000 + _TIMEOUT
            self._sure = max(self._sure, now - blind)

    def _tell_void(self, was: str, now: Seconds) -> None:
        """What is told to begin is told to end; neither once more within a minute."""
        if self._void and now >= self._loud:
            self._loud, self._is_told = now + CALM, True
            log.warning("results_void", extra={"reason": self._void})
        elif not self._void and self._is_told:
            self._is_told = False
            log.warning("results_count_again", extra={"reason": was})

    def _found(self, now: Seconds) -> list[_Reason]:
        found = []
        late = self._prober.worst_late()
        if worst := trust.of_timers(int(1_000 * late)):
            found.append(_Reason("timers", f"own timers fired {late:.2f} s late", worst))
        lost = self._references.lost(self._prober.lines, lambda: self._through(now))
        found += [_Reason(name, f"{name} does not answer") for name in lost[:_TOLD]]
        if len(lost) > _TOLD:
            found.append(_Reason("more references", f"{len(lost) - _TOLD} more references do not answer"))
        if at_once := self._at_once():
            found.append(_Reason("at once", at_once))
        if self._void:
            found.append(_Reason("void", f"results are void: {self._void}"))
        return found

    def _at_once(self) -> str:
        """More than half of our lines turned bad within two heartbeats, in words; empty where not."""
        self._bad = {line for line in self._bad if self._plan(line) is not None}
        bad, before = frozenset(self._bad), self._were_bad
        self._were_bad = (before[1], bad)
        plans = [plan for line in bad - before[0] if (plan := self._plan(line)) is not None]
        # Few turn, mostly: all lines are counted only where some did.
        lines = self._lines() if len(plans) > 1 else 0
        if not lines or not trust.at_once([_groups(plan) for plan in plans], lines):
            return ""
        # Told once: from here on they are lines that are bad.
        self._were_bad = (bad, bad)
        return f"{len(plans)} of {lines} lines turned bad at once"

    def _plan(self, line: str) -> LinePlan | None:
        if probes := self._prober.lines.get(line):
            return probes[0].line
        watched = self._passive.watched.get(line)
        return watched.line if watched else None

    def _lines(self) -> int:
        return sum(not is_own(line) for line in self._prober.lines.keys() | self._passive.watched.keys())

    def _through(self, now: Seconds) -> Through:
        """Counted once a second at most: of very many lines it takes milliseconds."""
        if now - self._counted[0] >= _TIMEOUT:
            rounds = list(self._newest_rounds())
            self._counted = now, Through(ok=sum(rounds), known=len(rounds))
        return self._counted[1]

    def _newest_rounds(self) -> Iterator[bool]:
        """How the newest round of each line ended, by any kind; passive ones with them, as long as they say anything."""
        watched = self._passive.watched
        for line in self._prober.lines.keys() | watched.keys():
            if is_own(line):
                continue
            windows = [probed.window for probed in self._prober.lines.get(line, ())]
            if line in watched:
                windows.append(watched[line].window)
            ends = [window.rounds.last_ok for window in windows]
            if any(ends) or False in ends:
                yield any(ends)


def _groups(line: LinePlan) -> frozenset[str]:
    """What is known that the line shares with others: its groups, and the host it goes to."""
    try:
        host = parse_target(line.target).host
    except ValueError:
        host = line.target
    return frozenset((*line.groups, f"host {host}"))
