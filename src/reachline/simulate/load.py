"""What load does to a line: slower from the knee on, failing beyond its capacity. The world's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from reachline.simulate.paths import Odds, State, odds, overs
from reachline.simulate.scenarios import Scenario

__all__ = ["Loads"]

_GRAIN: Final = 50
"""Steps of a line's utilisation, 2 % each: finer moves make no new weather."""
_OVER: Final = 1.2
"""The utilisation for which the file says how many calls fail."""


class Loads:
    """Offered load of each line, as a share of its capacity. Written by the world, once a second."""

    def __init__(self, scenario: Scenario) -> None:
        self._model = scenario.capacity_model
        self._capacity = {name: line.capacity_rps for name, line in scenario.lines.items()}
        self.used: dict[str, float] = dict.fromkeys(scenario.lines, 0.0)
        """Offered load / capacity; 0 where nobody said how much a line carries."""
        self.offered: dict[str, float] = dict.fromkeys(scenario.lines, 0.0)
        self._grains: dict[str, int] = dict.fromkeys(scenario.lines, 0)

    def weigh(self, shares: Mapping[str, float], rps: float, retried: Mapping[str, int]) -> bool:
        """Take the shares of now and the retries of the last second; whether the weather changes by it."""
        was = dict(self._grains)
        for line, share in shares.items():
            offered = self.offered[line] = share * rps + retried.get(line, 0)
            if capacity := self._capacity[line]:
                self.used[line] = offered / capacity
                self._grains[line] = max(0, round(_GRAIN * (self.used[line] - self._model.knee)))
        return was != self._grains

    def slowed(self, line: str, state: State) -> State:
        """The state under load: a longer tail."""
        if not (grain := self._grains[line]):
            return state
        beyond = grain / _GRAIN / (1.0 - self._model.knee)
        return state._replace(p95=state.p95 * (1.0 + (self._model.p95_factor_at_100pct - 1.0) * beyond))

    def burdened(self, line: str, state: State, timeout_ms: float, marks_us: Sequence[int] = ()) -> Odds:
        """How calls end under load."""
        slowed = self.slowed(line, state)
        found = odds(slowed, timeout_ms)
        if marks_us:
            found = found._replace(overs=overs(slowed, timeout_ms, marks_us))
        over = self._model.knee + self._grains[line] / _GRAIN - 1.0
        if over <= 0.0:
            return found
        lost = min(1.0, self._model.fail_at_120pct * over / (_OVER - 1.0))
        kept = 1.0 - lost
        return found._replace(
            ok=found.ok * kept,
            unreachable=found.unreachable * kept,
            reset=found.reset * kept,
            late=found.late * kept + lost,
            errors=found.errors * kept,
        )
