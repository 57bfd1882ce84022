"""What a scenario asks, held against a run's figures. A bound on something that never came is broken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from reachline.simulate.ran import Figure
from reachline.simulate.scenarios import BShare, Limits, OpenAfter

__all__ = ["Row", "held", "passed"]

_INFORMATION: Final = frozenset({"note", "document_claim_t_drain", "literal_measured"})
_NAMES: Final = frozenset({"direction_named", "group_named", "cause_named"})
_TOLERANCE: Final = 0.01
"""Of shares that must be so."""
_SHARE_OF_SEEDS: Final = 0.95


class Row(NamedTuple):
    """One run: who, where, what came of it."""

    scenario: str
    contender: str
    seed: int
    metrics: Mapping[str, Figure]
    limits: Mapping[str, bool]

    @property
    def ok(self) -> bool:
        """Whether every limit holds."""
        return all(self.limits.values())


def held(limits: Limits, found: Mapping[str, Figure], *, has_calls: bool) -> dict[str, bool]:
    """Each limit of the scenario, and whether it holds in this run."""
    result: dict[str, bool] = {}
    for name in type(limits).model_fields:
        wanted = getattr(limits, name)
        if wanted is None or name in _INFORMATION:
            continue
        if isinstance(wanted, OpenAfter):
            bound = wanted.with_passive if has_calls else wanted.active_only
            if bound is not None:
                result[name] = _within(found.get(name), bound)
        else:
            result[name] = _holds(name, wanted, found)
    return result


def _holds(name: str, wanted: object, found: Mapping[str, Figure]) -> bool:
    figure = found.get(name)
    match wanted:
        case bool():
            return figure is wanted
        case str():
            return name in _NAMES and wanted in str(found.get("said", "")).split()
        case int() | float():
            return _within(figure, float(wanted))
        case BShare():
            return _are(figure, (wanted.healthy, wanted.one_down, wanted.both_down))
        case list():
            return _are(figure, wanted)
        case _:
            return False


def _within(figure: Figure, bound: float) -> bool:
    return isinstance(figure, int | float) and not isinstance(figure, bool) and figure <= bound + 1e-9


def _are(figure: Figure, wanted: Sequence[float]) -> bool:
    if not isinstance(figure, list) or len(figure) != len(wanted):
        return False
    return all(abs(one - two) <= _TOLERANCE + 1e-9 for one, two in zip(figure, wanted, strict=True))


def passed(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, bool]]:
    """For each scenario and contender its limits over all seeds: bounds hold where they do in 95 % of them, truths in every one."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.scenario, row.contender), []).append(row)
    return {key: {name: _over(runs, name) for name in runs[0].limits} for key, runs in found.items()}


def _over(runs: Sequence[Row], name: str) -> bool:
    fine = sum(run.limits[name] for run in runs)
    needed = len(runs) if isinstance(runs[0].metrics.get(name), bool) else math.ceil(_SHARE_OF_SEEDS * len(runs))
    return fine >= needed
