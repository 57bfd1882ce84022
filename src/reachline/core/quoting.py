"""What `explain` says of trust and of the business's own calls, with their counts. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from reachline.core import words
from reachline.core.business import Word
from reachline.core.conflict import is_overriding
from reachline.core.rules import Rules
from reachline.core.scope import Cause
from reachline.core.tick import LineView
from reachline.core.trust import FULL, is_quarantined
from reachline.model import Zone

__all__ = ["business", "cause", "notes", "trusted"]

_FEW: Final = 4
"""Names that fit a row of an explanation."""
_ASPECTS: Final = {
    "failed": "failing",
    "slow": "slowness above the degraded limit",
    "crawl": "slowness above the failed limit",
}


def cause(found: Cause) -> str:
    """Who is at fault instead of the line, in words."""
    what = _ASPECTS[found.aspect]
    if found.kind == "service":
        name = f"of service {found.name}" if found.name else "of calls that name no service"
        return f"a service fault: the {what} {name} is as bad on the other lines, and is not held against this one"
    return f"a client fault: the {what} is that of {found.name} alone, and is not held against this line"


def business(view: LineView, rules: Rules, now_ms: int) -> tuple[str, ...]:
    """What the business says of the line now, and what follows from it; empty where nobody calls it."""
    if view.plane_ms is not None:
        since = words.duration(now_ms - view.plane_ms)
        plane = f"for {since} all lines have been bad at once though calls go well: the observers' own plane is broken, no line is judged by it"
    else:
        plane = ""
    if not view.word.calls:
        return (plane,) if plane else ()
    told = [
        plane,
        _said(view.word, rules),
        _named(view.callers),
        *map(cause, view.word.causes),
        _quarrel(view, rules, now_ms),
    ]
    return tuple(filter(None, told))


def _said(word: Word, rules: Rules) -> str:
    span = words.duration(rules.business.span_ms)
    calls = f"{word.calls} calls of {word.clients} processes in {span}"
    if word.zone is Zone.N:
        few = f"too few for a verdict ({rules.business.minimum} calls of {rules.business.clients} processes are asked)"
        return f"{calls}: {'nothing is left to judge the line by' if word.causes else few}"
    if not word.metric:
        return f"{calls}: {words.zone(word.zone)}"
    share = words.percent(word.numerator, word.denominator)
    what = f"{words.called(word.metric)} {word.numerator} of {word.denominator} ({share})"
    return f"{calls}: {words.zone(word.zone)}, {what}, limit {words.percent(word.limit, 1_000)}"


def _named(callers: Sequence[str]) -> str:
    """Whose calls these are: a data plane by how it told of them."""
    if not callers:
        return ""
    shown = ", ".join(callers[:_FEW])
    return f"told by {shown}" + (f" and {len(callers) - _FEW} more" if len(callers) > _FEW else "")


def _quarrel(view: LineView, rules: Rules, now_ms: int) -> str:
    matter, limits = view.matter, rules.business
    if is_overriding(matter, now_ms, limits):
        left = words.duration(matter.conflict_ms + limits.hold_ms - now_ms)
        believed = "trust moved for it" if rules.questions else "it is believed instead of them"
        return f"it contradicted the vantages for {limits.conflict_ticks} ticks in a row: {believed}, for {left} more at least"
    if matter.conflicts:
        return f"it contradicts the vantages, {matter.conflicts} ticks in a row ({limits.conflict_ticks} decide)"
    return ""


def notes(excused: Iterable[tuple[Cause, ...]], plane_ms: int | None) -> tuple[str, ...]:
    """What is wrong in a whole cluster that is no line's fault, a sentence each."""
    blamed = sorted({(found.kind, found.name) for causes in excused for found in causes})
    told = [
        f"{kind} {name or 'without a name'}: its calls fail or are slow, and no line is at fault"
        for kind, name in blamed
    ]
    if plane_ms is not None:
        told.insert(0, "observers: all lines turned bad at once though calls go well; no line is judged by it")
    return tuple(told)


def trusted(view: LineView) -> tuple[str, ...]:
    """The vantages whose word does not count fully, each with its trust."""
    return tuple(
        f"{vantage} is trusted {trust.micro // 10_000} of {FULL // 10_000}"
        + (", in quarantine" if is_quarantined(trust) else "")
        for vantage, trust in view.trusts
    )
