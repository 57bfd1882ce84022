"""What agents are told of long hauls: their usual round trips, which move what counts as slow. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reachline.core.baseline import HOUR_MS
from reachline.core.ledger import Ledger
from reachline.model import Kind, LineId, Scope

__all__ = ["Usual"]


class Usual:
    """Reads the ledgers' habits for plans, and notices when these may have moved. Asked by the owner's loop."""

    def __init__(self, ledgers: Mapping[Scope, Ledger], clock: Callable[[], int]) -> None:
        self._ledgers, self._clock = ledgers, clock
        self._seen = self._number()

    def of(self, line: LineId) -> dict[Kind, int]:
        """A line's usual round trips, microseconds by kind; empty where none is known or asked for."""
        ledger = self._ledgers.get(Scope(cluster=line.partition("/")[0]))
        return ledger.poll.habits.usual(line, self._clock()) if ledger else {}

    def has_moved(self) -> bool:
        """Whether plans made before the last question may be others now."""
        before, self._seen = self._seen, self._number()
        return before != self._seen

    def _number(self) -> tuple[int, int]:
        """The hour, and how often an hour of some line ended, where agents count by what is usual."""
        fast = [one for one in self._ledgers.values() if one.rules.questions and one.rules.baseline.degraded_milli]
        return (self._clock() // HOUR_MS, sum(ledger.poll.habits.turns for ledger in fast)) if fast else (0, 0)
