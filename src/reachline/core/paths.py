"""Which share of the equal paths behind a line is dead: routers pick one by hashing addresses and ports, so one bad path of n
takes down the connects from some source ports for good and leaves all others alone. Pure: time and chance are arguments.

A connect that nobody answered while others of its line got through is tried again from *the same port*. If it passes, a packet
was lost, and that is all. If it fails every time, its port leads to a dead path, and a survey follows: connects from ports
drawn evenly over the whole range, which the kernel's own choice is not (Linux gives `connect` even ports only). The survey's
dead share, with its interval, says 1/n. Known dead ports are asked again from time to time, so that a repair is seen.
"""

from __future__ import annotations

import math
from enum import Enum
from random import Random
from typing import Final

from reachline.core.shares import Finding, is_beyond, parts_of, pattern_of
from reachline.model import Seconds

__all__ = ["FAILS", "SURVEY", "End", "Paths"]

FAILS: Final = 3
"""Failures in a row, each a second apart at least, that make a port dead: of single losses of 10 % one port in a thousand."""
SURVEY: Final = 1_024
"""Ports of a survey at most: they tell 1/16 from its neighbours…"""
_ENOUGH: Final = 512
"""…as these tell 1/8 in 99 of 100 runs: from here on the likeliest is said, sure or not."""
_STAGE: Final = 64
"""After so many, and after twice as many each time, a survey is looked at: is the answer sure? In between it is not, for a living
port is known at once and a dead one after seconds, so that whoever looks meanwhile sees too few dead.
"""
_CONTROLS: Final = 4
"""Fresh ports tried beside a doubted one where no survey goes on, so that it is known whether others get through just then."""
_DOUBTED: Final = 8
"""Ports doubted at once, as suspects or again: enough to be sure, few enough not to matter."""
_VOIDS: Final = 16
"""Tries in a row that tell nothing before the question is dropped: the line fails as a whole."""
_AGAIN: Final[Seconds] = 20.0
"""Between two looks at known dead ports: a repair is seen within half a minute."""
_ANEW: Final[Seconds] = 600.0
"""Between two whole surveys, and after one that found nothing: the number of paths changes when people change it."""


class End(Enum):
    """How a try ended."""

    ANSWERED = 0
    SILENT = 1
    VOID = 2
    """Silent, but nobody else of the line got through meanwhile either."""
    UNUSABLE = 3
    """We could not leave from this port."""


class Paths:
    """What is known of the paths behind one line, and which port is to be tried next. Written by whoever probes the line."""

    __slots__ = (
        "_again",
        "_anew",
        "_controls",
        "_doubted",
        "_drawn",
        "_goal",
        "_is_resting",
        "_known",
        "_missed",
        "_ports",
        "_said",
        "_survey",
        "_tries",
        "_voids",
        "_waiting",
        "_whole",
    )

    def __init__(self, ports: range) -> None:
        self._ports = ports
        self._whole = min(SURVEY, len(ports) // 2)  # a small range is not drawn empty
        self._doubted: dict[int, int] = {}
        """Failures in a row of ports whose end is not known yet…"""
        self._waiting: list[int] = []
        """…and those of them that are to be tried again."""
        self._known: dict[int, bool] = {}
        """Ports found dead, and whether they were found alive again. The first one begins the survey."""
        self._drawn: set[int] = set()
        """Ports of the survey, drawn evenly, with those under way…"""
        self._survey: dict[int, bool] = {}
        """…and whether each is alive."""
        self._said: Finding | None = None
        """What the last survey found."""
        self._is_resting = False
        """The survey is over until `_anew`; known dead ports are asked `_again`."""
        self._forget()

    def _forget(self) -> None:
        for kept in (self._doubted, self._waiting, self._known, self._drawn, self._survey):
            kept.clear()
        self._said, self._is_resting = None, False
        self._again = self._anew = math.inf
        self._goal = min(_STAGE, self._whole)
        self._controls = self._voids = self._tries = self._missed = 0

    # -- what is to be done ------------------------------------------------------------------------------------------------

    def suspect(self, port: int, now: Seconds) -> None:
        """A connect from this port got no answer, while others did."""
        if self._is_resting and not self._said and now >= self._anew:
            self._forget()
        if not (self._is_resting or self._known or port in self._doubted or len(self._doubted) >= _DOUBTED):
            self._doubt(port, 1)

    def due(self, now: Seconds) -> Seconds | None:
        """When the next try is due: `now` while a question is open, later where an answer grows old; None: not by itself."""
        if self._waiting or self._may_draw() or self._wants_control():
            return now
        return self._again if self._again < math.inf else None

    def draw(self, now: Seconds, rng: Random) -> int | None:
        """The port to try now, or None: nothing to ask, or all answers are under way."""
        if now >= self._again and not self._doubted:
            self._look_again(now)
        if self._waiting:
            self._controls = 0 if self._may_draw() else _CONTROLS
            return self._waiting.pop(0)
        if self._may_draw():
            # As many odd as even ones: most even ports may be in use, and paths may be chosen by that very bit.
            odd = sum(port % 2 for port in self._drawn)
            port = self._fresh(rng, 2 * odd < len(self._drawn))
            self._drawn.add(port)
            return port
        if self._wants_control():
            self._controls -= 1
            return self._fresh(rng, rng.random() < 0.5)
        return None

    def ended(self, port: int, end: End, now: Seconds) -> None:
        """A try from this port ended."""
        if end is End.ANSWERED:
            self._voids = 0
        if port not in self._doubted and port not in self._drawn:
            return  # a control, or a question that was dropped
        fails = self._doubted.pop(port, 0)
        match end:
            case End.UNUSABLE:
                self._drawn.discard(port)
            case End.VOID:
                self._doubt(port, fails)
                self._give_up()
            case End.SILENT if fails + 1 < FAILS:
                self._doubt(port, fails + 1)
            case End.SILENT:
                self._settle(port, alive=False, now=now)
            case End.ANSWERED:
                self._tries, self._missed = self._tries + 1 + fails, self._missed + fails
                self._settle(port, alive=True, now=now)

    # -- what is known -----------------------------------------------------------------------------------------------------

    @property
    def finding(self) -> Finding | None:
        """What is known; None: nothing speaks for a dead path. While a first survey goes on it has no name yet."""
        if self._said or not self._known:
            return self._said
        return Finding(self._dead, len(self._survey))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self._is_resting or self._doubted or self._known)

    # -- ours --------------------------------------------------------------------------------------------------------------

    @property
    def _dead(self) -> int:
        return sum(not alive for alive in self._survey.values())

    def _doubt(self, port: int, fails: int) -> None:
        self._doubted[port] = fails
        self._waiting.append(port)

    def _may_draw(self) -> bool:
        return bool(self._known) and not self._is_resting and len(self._drawn) < self._goal

    def _wants_control(self) -> bool:
        return self._controls > 0 and bool(self._doubted)

    def _fresh(self, rng: Random, is_odd: bool) -> int:
        while True:
            port = rng.choice(self._ports)
            if port % 2 == is_odd and not (port in self._drawn or port in self._doubted or port in self._known):
                return port

    def _give_up(self) -> None:
        self._voids += 1
        if self._voids < _VOIDS:
            return
        if self._said is None:
            self._forget()
        self._voids = 0
        self._doubted.clear()
        self._waiting.clear()

    def _settle(self, port: int, *, alive: bool, now: Seconds) -> None:
        """The port's end is known."""
        if not alive or port in self._known:
            self._known[port] = alive
        if self._is_resting:
            self._judge_again()
            return
        if port in self._drawn:
            self._survey[port] = alive
        if self._doubted:
            return
        if not self._known:
            self._forget()
        elif len(self._survey) == len(self._drawn) >= self._goal:
            self._conclude(now)

    def _conclude(self, now: Seconds) -> None:
        """What does the survey say so far, and is it over: because that is sure, or there is nothing more to ask?"""
        known = {port for port, alive in self._known.items() if not alive}
        shown = pattern_of(known, [port for port, alive in self._survey.items() if alive])
        parts, is_sure = (shown.parts, True) if shown else parts_of(self._dead, len(self._survey))
        by_loss = (self._missed / max(1, self._tries)) ** FAILS
        is_found = shown or is_beyond(self._dead, len(self._survey), by_loss)
        is_over = is_sure or self._goal >= self._whole
        if is_over or self._goal >= _ENOUGH:
            self._said = Finding(self._dead, len(self._survey), parts, shown) if is_found else None
        if not is_over:
            self._goal = min(2 * self._goal, self._whole)
            return
        self._is_resting, self._again, self._anew = True, now + _AGAIN if is_found else math.inf, now + _ANEW
        self._drawn.clear()
        self._survey.clear()

    def _look_again(self, now: Seconds) -> None:
        """Are the known dead ports dead still? From time to time all is asked anew; the answer there is stays until then."""
        self._again = now + _AGAIN
        self._known = dict.fromkeys((port for port, alive in self._known.items() if not alive), False)
        if now >= self._anew:
            self._is_resting, self._anew, self._goal = False, math.inf, min(_STAGE, self._whole)
            self._tries = self._missed = 0
        for port in list(self._known)[:_DOUBTED]:
            self._doubt(port, 0)

    def _judge_again(self) -> None:
        """Repaired, once most of the dead ports that were asked again pass."""
        if 2 * sum(self._known.values()) > min(_DOUBTED, len(self._known)):
            self._forget()
