"""One line as outlier detection sees it: what its calls came to, whether it is ejected, until when, and how waits grow.

Pure: time and chance come in as numbers. Refuses to know other lines and why one is an outlier.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from reachline.core.outlier_rules import Decay, Detector, Growth, OutlierRules, Return, ceiling_ms
from reachline.core.outlying import bucket

__all__ = [
    "Ejection",
    "Held",
    "Monitor",
    "chance",
    "due_ms",
    "ease",
    "eased_ms",
    "grown",
    "plan_ms",
    "wait_ms",
]

_GATEWAY: Final = frozenset((502, 503, 504))
_DOUBLINGS_MOST: Final = 40
"""2**40 times any base is past every ceiling; keeps the shift small."""


class Ejection(NamedTuple):
    """Why a line is out, since when, and what chance adds to its wait."""

    detector: Detector
    at_ms: int
    jitter_ms: int = 0


class Held(NamedTuple):
    """Why a line that was found to be an outlier was left in."""

    detector: Detector
    at_ms: int
    why: str
    """`cap`, `cap_priority`, `not_enforced`, or `alone` (others must find it too)."""


class Monitor:
    """Written by the one `Outliers` that holds it."""

    __slots__ = (
        "calm_ms", "ejection", "ejections", "external", "held", "last_external", "last_latencies", "last_local",
        "latencies", "level", "local", "priority", "rates", "returned_ms", "run_5xx", "run_gateway", "run_local",
        "went_ms",
    )  # fmt: skip

    def __init__(self, priority: int = 0) -> None:
        self.priority = priority
        self.run_5xx = self.run_gateway = self.run_local = 0
        """Failures in a row: any 5xx, of them 502 to 504, and of our own side of the connection."""
        self.external = [0, 0]
        """ok and total of the interval that runs…"""
        self.local = [0, 0]
        self.last_external, self.last_local = [0, 0], [0, 0]
        """…and of the last whole one."""
        self.latencies: dict[int, int] = {}
        self.last_latencies: dict[int, int] = {}
        self.rates: dict[Detector, int] = {}
        """Success rates of the last sweep, in 1/RATE, where there were calls enough; absent: none."""
        self.ejection: Ejection | None = None
        """The flag. None: the line is in."""
        self.ejections = 0
        self.level = 0
        """How many steps the next wait has grown; a step less for each that was forgiven."""
        self.went_ms: int | None = None
        """When it was last ejected…"""
        self.returned_ms: int | None = None
        """…and returned."""
        self.calm_ms = 0
        """When it returned or was last forgiven a step."""
        self.held: Held | None = None

    def answered(self, code: int, rules: OutlierRules) -> tuple[Detector, ...]:
        """An HTTP status, or one that stands for what happened: detectors that reach their threshold by it, in order."""
        self.external[1] += 1
        if not 500 <= code <= 599:
            self.external[0] += 1
            self.run_5xx = self.run_gateway = 0
            return ()
        self.run_gateway = self.run_gateway + 1 if code in _GATEWAY else 0
        self.run_5xx += 1
        found = []
        if self.run_gateway and self.run_gateway == rules.consecutive_gateway_failure:
            found.append(Detector.CONSECUTIVE_GATEWAY_FAILURE)
        if self.run_5xx == rules.consecutive_5xx:
            found.append(Detector.CONSECUTIVE_5XX)
        return tuple(found)

    def connected(self, *, ok: bool, rules: OutlierRules) -> tuple[Detector, ...]:
        """Split origins only: whether our side of a connection went well."""
        self.local[1] += 1
        if ok:
            self.local[0] += 1
            self.run_local = 0
            return ()
        self.run_local += 1
        return (
            (Detector.CONSECUTIVE_LOCAL_ORIGIN_FAILURE,)
            if self.run_local == rules.consecutive_local_origin_failure
            else ()
        )

    def timed(self, took_us: int) -> None:
        """How long a success took."""
        index = bucket(took_us)
        self.latencies[index] = self.latencies.get(index, 0) + 1

    def forget_run(self, detector: Detector) -> None:
        """A consecutive detector fired, whatever came of it: it counts anew, the others go on."""
        match detector:
            case Detector.CONSECUTIVE_5XX:
                self.run_5xx = 0
            case Detector.CONSECUTIVE_GATEWAY_FAILURE:
                self.run_gateway = 0
            case Detector.CONSECUTIVE_LOCAL_ORIGIN_FAILURE:
                self.run_local = 0
            case _:
                return

    def rotate(self) -> None:
        """An interval ends: what it counted can be read now, and until the next one ends."""
        self.last_external, self.external = self.external, [0, 0]
        self.last_local, self.local = self.local, [0, 0]
        self.last_latencies, self.latencies = self.latencies, {}
        self.rates = {}

    def eject(self, detector: Detector, now_ms: int, *, jitter_ms: int, rules: OutlierRules) -> None:
        """Out; the wait is a step longer than the last one unless that was the longest."""
        assert self.ejection is None
        self.ejection = Ejection(detector, now_ms, jitter_ms)
        self.ejections += 1
        self.went_ms = now_ms
        self.level = grown(self.level, rules)
        self.held = None

    def take_back(self, now_ms: int) -> None:
        """In again, with all runs at zero, so that old failures do not eject it at once."""
        self.ejection = None
        self.run_5xx = self.run_gateway = self.run_local = 0
        self.returned_ms = self.calm_ms = now_ms


def wait_ms(level: int, rules: OutlierRules) -> int:
    """How long an ejection of this level lasts, before jitter: base times level, or doubled each time; never above the ceiling."""
    if rules.growth is Growth.LINEAR:
        return min(rules.base_ejection_ms * level, ceiling_ms(rules))
    return min(rules.base_ejection_ms << min(max(level - 1, 0), _DOUBLINGS_MOST), ceiling_ms(rules)) if level else 0


def grown(level: int, rules: OutlierRules) -> int:
    """The level of the next ejection. It does not grow where that would not lengthen the wait, so that forgiving shows."""
    if rules.growth is Growth.LINEAR:
        return level + 1 if level * rules.base_ejection_ms < ceiling_ms(rules) + rules.base_ejection_ms else level
    return level + 1 if wait_ms(level, rules) < ceiling_ms(rules) else level


def due_ms(monitor: Monitor, rules: OutlierRules) -> int | None:
    """When its time is over; None: it is in."""
    out = monitor.ejection
    return None if out is None else out.at_ms + wait_ms(monitor.level, rules) + out.jitter_ms


def plan_ms(monitor: Monitor, rules: OutlierRules, next_sweep_ms: int) -> int | None:
    """When it returns if nothing else happens: when its time is over, or at the first sweep after that; None: it is in."""
    due = due_ms(monitor, rules)
    if due is None or rules.returns is Return.EXACT:
        return due
    return _sweep_from(due, next_sweep_ms, rules)


def eased_ms(monitor: Monitor, rules: OutlierRules, next_sweep_ms: int) -> int | None:
    """The sweep at which a line that stays in is forgiven one step; None: it is out, or there is nothing to forgive."""
    if monitor.ejection is not None or not monitor.level or monitor.returned_ms is None:
        return None
    if rules.decay is Decay.SWEEP:
        earliest = monitor.returned_ms + rules.interval_ms
    else:
        earliest = monitor.calm_ms + wait_ms(monitor.level, rules)
    return _sweep_from(earliest, next_sweep_ms, rules)


def ease(monitor: Monitor, now_ms: int, rules: OutlierRules) -> None:
    """At a sweep: forgive the line a step if that is due."""
    due = eased_ms(monitor, rules, now_ms)
    if due is not None and due <= now_ms:
        monitor.level -= 1
        monitor.calm_ms = now_ms


def _sweep_from(at_ms: int, next_sweep_ms: int, rules: OutlierRules) -> int:
    """The first sweep at or after a moment, if none is late."""
    return next_sweep_ms + -(-max(0, at_ms - next_sweep_ms) // rules.interval_ms) * rules.interval_ms


def chance(line: str, decision: int, seed: int) -> int:
    """64 bits that are the same in every replay: from the line, the decision's number and the run's seed."""
    text = f"{seed}\x00{line}\x00{decision}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
