"""A cluster of lines whose calls a test makes up, for the tests of outlier detection."""

from __future__ import annotations

from collections.abc import Mapping

from reachline.core.outlier import Outliers
from reachline.core.outlier_events import Action, Event, Saw
from reachline.core.outlier_rules import OutlierRules

SECOND = 1_000


def lines(count: int) -> tuple[str, ...]:
    return tuple(f"c/l{number}" for number in range(count))


class World:
    """Lines l0, l1, … of a cluster, its time, and all that was decided."""

    def __init__(self, count: int, rules: OutlierRules, *, seed: int = 7) -> None:
        self.now_ms = 0
        self.events: list[Event] = []
        self.outliers = Outliers(rules, seed=seed, now_ms=0)
        self.priorities: Mapping[str, int] = dict.fromkeys(lines(count), 0)
        self.outliers.replace(self.priorities, 0)

    def call(self, number: int, code: int = 200, times: int = 1) -> list[Event]:
        return self.see(number, Saw.ANSWERED, code=code, times=times)

    def see(
        self, number: int, saw: Saw, *, code: int | None = None, times: int = 1, took_us: int | None = None
    ) -> list[Event]:
        found = [
            event
            for _ in range(times)
            for event in self.outliers.saw(f"c/l{number}", saw, self.now_ms, code=code, took_us=took_us)
        ]
        self.events += found
        return found

    def calls(self, *rates: tuple[int, int]) -> None:
        """Of each line in turn: (ok, failed) calls, never more than one failure in a row where that can be."""
        for number, (ok, failed) in enumerate(rates):
            for turn in range(max(ok, failed)):
                if turn < failed:
                    self.call(number, 500)
                if turn < ok:
                    self.call(number)

    def at(self, seconds: float) -> list[Event]:
        """Let time pass, every deadline kept on the way."""
        found: list[Event] = []
        until = round(seconds * SECOND)
        while (due := self.outliers.deadline()) <= until:
            self.now_ms = due
            found += self.outliers.turn(due)
        self.now_ms = until
        self.events += found
        return found

    @property
    def out(self) -> list[str]:
        return sorted(each.removeprefix("c/") for each in self.outliers.ejected)

    @property
    def level(self) -> int:
        monitor = self.outliers.monitor("c/l0")
        assert monitor is not None
        return monitor.level

    def count(self, name: str) -> int:
        return self.outliers.counts.get(f"ejections_{name}", 0)


def told(events: list[Event]) -> list[tuple[float, str, str, str]]:
    """(second, line, action, why or detector)."""
    return [
        (
            each.at_ms / SECOND,
            each.line.removeprefix("c/"),
            each.action.value,
            each.why or each.detector.value.lower(),
        )
        for each in events
    ]


def ejections(events: list[Event]) -> list[Event]:
    return [each for each in events if each.action is Action.EJECT and each.enforced]
