"""A center's snapshot as an observation: what agents and votes decided of lines, for whoever reads statuses of outbounds."""

from __future__ import annotations

from typing import Final

from reachline.core.observing.values import DEAD_MS, Status
from reachline.model import Gate, Health, Snapshot, Standing

__all__ = ["Standings"]

_WELL: Final = frozenset((Health.HEALTHY, Health.DEGRADED))


class Standings:
    """An `Observation` of the newest snapshot. Written by whoever follows the center.

    A snapshot says who is well and why not; it says no latency, and nobody of whom nothing is known yet.
    """

    __slots__ = ("_edition", "_statuses")

    def __init__(self) -> None:
        self._statuses: tuple[Status, ...] = ()
        self._edition = 0

    def put(self, snapshot: Snapshot) -> None:
        """This one counts from now on. The tag of a line is its name, without its cluster."""
        known = sorted(snapshot.standings, key=lambda each: each.line)
        self._statuses = tuple(_status(each) for each in known if each.health is not Health.UNKNOWN)
        self._edition += 1

    def statuses(self, now: int) -> tuple[Status, ...]:  # noqa: ARG002  (one signature)
        """By the lines' names."""
        return self._statuses

    def edition(self, now: int) -> int:  # noqa: ARG002  (one signature)
        """One more with each snapshot."""
        return self._edition


def _status(standing: Standing) -> Status:
    """Alive is who gets traffic or its trial."""
    alive = standing.health in _WELL and standing.gate is not Gate.OPEN
    return Status(standing.line.partition("/")[2], alive, 0 if alive else DEAD_MS, standing.reason)
