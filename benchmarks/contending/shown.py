"""Figures over seeds in the words of the page: the middle and the span of them, and what a scenario asks of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from benchmarks.contending.stored import Stored

from reachline.simulate.ran import Figure
from reachline.simulate.scenarios import BShare, Limits, OpenAfter, Scenario

__all__ = ["PER", "UNITS", "asked", "bad_rates", "number", "shown", "title"]

PER: Final = 10_000
"""Bad calls are told of so many: all figures are then small and none is a row of zeros."""
TITLES: Final[Mapping[str, str]] = {
    "t_detect": "noticed after",
    "t_drain": "traffic gone after",
    "t_drain_25pct": "down to a quarter after",
    "t_open_after_down_class": "opened after",
    "sdk_local_avoid": "client avoids after",
    "t_restore_first": "first tried after repair",
    "t_restore_full": "full again after repair",
    "t_agent_quarantine": "vantage mistrusted after",
    "t_detect_after_return": "noticed after center's return",
    "bad_requests": "bad calls",
    "false_trips_per_h": "false trips",
    "composite": "score",
    "false_degrades_per_h": "falsely degraded",
    "decisions_per_h": "decisions",
    "false_close": "closed too soon",
    "needless_shift": "needless shift",
    "overload_peak": "highest load",
    "overload_s": "overloaded",
}
"""Others are shown by their own name."""
UNITS: Final[Mapping[str, str]] = {
    **{name: "s" for name in TITLES if name.startswith("t_")},
    "sdk_local_avoid": "s",
    "overload_s": "s",
    "composite": "of 100",
    "bad_requests": f"of {PER:,}".replace(",", " "),
    "false_trips_per_h": "a line-hour",
    "false_degrades_per_h": "a line-hour",
    "decisions_per_h": "a line-hour",
}
_SCALES: Final[Mapping[str, float]] = {"bad_requests": PER}
_UNBOUND: Final = frozenset({"note", "document_claim_t_drain", "literal_measured"})


def title(name: str) -> str:
    """A column's head, with the unit."""
    unit = f" ({UNITS[name]})" if name in UNITS else ""
    return TITLES.get(name, f"`{name}`") + unit


def bad_rates(runs: Sequence[Stored]) -> list[float]:
    """Of so many calls those that did not end well, the oracle's too: what is left after it cannot be below nothing, and would hide who
    did as well as it did.
    """
    return [PER * _number(run.metrics["bad_calls"]) / max(1.0, _number(run.metrics["calls"])) for run in runs]


def shown(name: str, runs: Sequence[Stored]) -> str:
    """The median over runs, and their span where they differ; what never came is later than all that came."""
    figures = [run.metrics.get(name) for run in runs]
    if not any(name in run.metrics for run in runs):
        return _yes(runs, name) if name in runs[0].limits and runs[0].contender.startswith("reachline") else "–"
    if all(isinstance(each, bool) for each in figures):
        return _yes(runs, name)
    if any(isinstance(each, list) for each in figures):
        return _listed([each for each in figures if isinstance(each, list)])
    return _spanned([math.inf if each is None else _SCALES.get(name, 1.0) * _number(each) for each in figures])


def _yes(runs: Sequence[Stored], name: str) -> str:
    fine = sum(run.limits.get(name, bool(run.metrics.get(name))) for run in runs)
    return "yes" if fine == len(runs) else "no" if not fine else f"in {fine} of {len(runs)}"


def _listed(figures: Sequence[Sequence[float]]) -> str:
    return " / ".join(_spanned(each) for each in zip(*figures, strict=True))


def _spanned(figures: Sequence[float]) -> str:
    low, high = min(figures), max(figures)
    middle = number(median(figures))
    return middle if number(low) == number(high) else f"{middle} ({number(low)} … {number(high)})"


def number(figure: float) -> str:
    """Three digits, thousands apart; "never" for what is beyond all numbers."""
    if math.isinf(figure) or math.isnan(figure):
        return "never"
    if abs(figure) >= 100:
        return f"{figure:,.0f}".replace(",", " ")
    return f"{figure:.3g}" if abs(figure) >= 1e-3 or not figure else f"{figure:.1g}"


def _number(figure: Figure) -> float:
    return float(figure) if isinstance(figure, int | float) else 0.0


def asked(scenario: Scenario) -> dict[str, str]:
    """What the scenario asks, by the figure's name, in words."""
    found = {}
    for name in type(scenario.limits).model_fields:
        wanted = getattr(scenario.limits, name)
        if wanted is not None and name not in _UNBOUND:
            found[name] = _wanted(scenario.limits, name, has_calls=scenario.traffic.rps > 0)
    return found


def _wanted(limits: Limits, name: str, *, has_calls: bool) -> str:
    match getattr(limits, name):
        case bool() as truth:
            return "yes" if truth else "no"
        case str() as word:
            return word
        case OpenAfter() as after:
            bound = after.with_passive if has_calls else after.active_only
            return f"≤ {number(bound)}" if bound is not None else "–"
        case BShare() as share:
            return " / ".join(number(each) for each in (share.healthy, share.one_down, share.both_down))
        case list() as shares:
            return " / ".join(number(float(each)) for each in shares)
        case wanted:
            return f"≤ {number(_SCALES.get(name, 1.0) * float(wanted))}"
