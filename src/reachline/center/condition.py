"""What agents said of themselves and their hosts lately: reasons of doubt, vitals. In memory, bounded, never evidence."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from reachline.core import vitals
from reachline.wire import live
from reachline.wire.frame import Heartbeat

__all__ = ["FRESH_MS", "KEPT_MS", "Condition", "Said"]

_NUMBER: Final = re.compile(r"(?<!\S)\d+(\.\d+)?(?!\S)")
"""Those of an address are part of a longer word."""
_MOST: Final = 128
"""Things kept of one agent, the oldest left out first: a host in trouble says some five a heartbeat."""
KEPT_MS: Final = 900_000
"""As long as a line's own history."""
FRESH_MS: Final = 30_000
"""What was said this lately is so now: vitals come with a heartbeat of ten seconds, where there is any to tell."""


class Said(NamedTuple):
    """One thing, when it was heard."""

    at_ms: int
    name: str
    """Of `core.vitals`, or `doubt`."""
    where: str
    value: int
    whole: int
    text: str


class Condition:
    """One agent's. Written by the owner's task."""

    def __init__(self) -> None:
        self._said: deque[Said] = deque(maxlen=_MOST)
        self._doubts = frozenset[str]()
        """Those of the last heartbeat, without their numbers."""

    def take(self, heartbeat: Heartbeat, now_ms: int) -> None:
        """What a heartbeat says; a doubt is kept when it is new."""
        doubts = {_NUMBER.sub("#", text): text for text in heartbeat.doubts}
        for name, text in doubts.items():
            if name not in self._doubts:
                self._said.append(Said(now_ms, "doubt", name, heartbeat.doubt, 0, f"doubts itself: {text}"))
        self._doubts = frozenset(doubts)
        for vital in heartbeat.vitals:
            text = vitals.told(vital.name, vital.where, vital.value, vital.whole)
            self._said.append(Said(now_ms, vital.name, vital.where, vital.value, vital.whole, text))

    def between(self, from_ms: int, until_ms: int) -> Iterator[Said]:
        """What was said then, the newest word on each thing, oldest first."""
        newest = {(one.name, one.where): one for one in self._said if from_ms <= one.at_ms <= until_ms}
        return iter(sorted(newest.values()))

    def rows(self, now_ms: int) -> list[live.VitalRow]:
        """Vitals of the last quarter of an hour, the newest word on each, for people."""
        return [_row(one, now_ms) for one in self.between(now_ms - KEPT_MS, now_ms) if one.name in vitals.NAMES]

    def fresh(self, now_ms: int) -> Iterable[Said]:
        """Vitals that are so now."""
        return (one for one in self.between(now_ms - FRESH_MS, now_ms) if one.name in vitals.NAMES)


def _row(one: Said, now_ms: int) -> live.VitalRow:
    return {
        "name": one.name,
        "where": one.where,
        "value": one.value,
        "whole": one.whole or None,
        "text": one.text,
        "age": round((now_ms - one.at_ms) / 1000, 3),
    }
