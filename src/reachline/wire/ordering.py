"""Orders as the HTTP contract writes them: what a center takes, and what it tells of them. Standard library only.

Durations are seconds, instants Unix seconds. Refuses by `RemoteProtocolError`, which names the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple, NotRequired, TypedDict

from reachline.core.orders import Action
from reachline.core.preview import Effect, Foreseen
from reachline.errors import RemoteProtocolError
from reachline.model import Seconds, Standing
from reachline.wire.view import GATES, HEALTHS

__all__ = [
    "ACTIONS",
    "MAX_WEIGHT",
    "UNDRAIN",
    "Asked",
    "EffectDocument",
    "EffectRow",
    "OrderBody",
    "OrderRow",
    "OrdersDocument",
    "PlacedDocument",
    "SideRow",
    "effect",
    "flag",
    "read_order",
    "text",
]

UNDRAIN: Final = "undrain"
ACTIONS: Final = ("drain", UNDRAIN, "weight", "standby", "open", "close")
MAX_WEIGHT: Final = 1_000_000
"""As of a line in the document."""
LONGEST: Final[Seconds] = 366 * 86_400.0
"""A year: what is meant for longer belongs into the document."""
_MAX_TEXT: Final = 500
"""Characters of a target or a reason."""


OrderBody = TypedDict(
    "OrderBody",
    {
        "action": str,
        "target": str,
        "for": NotRequired[float],
        "reason": NotRequired[str],
        "weight": NotRequired[int],
        "force": NotRequired[bool],
    },
)
"""`POST /api/v1/orders`. `for` is seconds; without it the order is in force until it is undone."""


class OrderRow(TypedDict):
    """One order. `state`: `in_force`, `over` (its time came) or `undone`; `waiting` names lines that it cannot open yet."""

    id: int
    action: str
    target: str
    lines: list[str]
    waiting: list[str]
    by: str
    reason: str
    since: float
    until: float | None
    weight: int | None
    force: bool
    state: str
    ended: float | None
    ended_by: str
    ended_reason: str


class OrdersDocument(TypedDict):
    """`GET /api/v1/orders`: newest first."""

    orders: list[OrderRow]


class SideRow(TypedDict):
    """A line on one side of an order; `share` is its part of the cluster's traffic, 0…1."""

    health: str
    breaker: str
    weight: int
    share: float


class EffectRow(TypedDict):
    """One line before and after."""

    line: str
    before: SideRow
    after: SideRow


class EffectDocument(TypedDict):
    """What an order does, or would do, to one cluster."""

    cluster: str
    panic: str
    waiting: list[str]
    lines: list[EffectRow]


class PlacedDocument(TypedDict):
    """The answer to an order, an undrain or an undo. `orders` are those given or ended; with `dry_run` none yet."""

    dry_run: bool
    orders: list[OrderRow]
    effects: list[EffectDocument]
    within: float
    """Seconds until the next tick, by which it is in force."""
    journalled: bool


class Asked(NamedTuple):
    """An order as somebody asks for it."""

    action: Action | None
    """None: undrain."""
    target: str
    lasts: Seconds | None
    why: str
    weight: int
    force: bool


def read_order(document: object) -> Asked:
    """The order in a parsed body; RemoteProtocolError names the field that is wrong."""
    if not isinstance(document, Mapping):
        raise RemoteProtocolError("order: must be an object")
    if strange := sorted(map(str, document.keys() - {"action", "target", "for", "reason", "weight", "force"})):
        raise RemoteProtocolError(
            f"order.{strange[0]}: unknown key; action, target, for, reason, weight, force are known"
        )
    action = document.get("action")
    if action not in ACTIONS:
        raise RemoteProtocolError(f"order.action: must be one of {', '.join(ACTIONS)}, got {action!r}")
    return Asked(
        None if action == UNDRAIN else Action(action),
        text(document, "target", of="order", least=1),
        _lasts(document.get("for")),
        text(document, "reason", of="order"),
        _weight(document, is_weight=action == Action.WEIGHT),
        flag(document, "force", of="order"),
    )


def flag(document: Mapping[object, object], key: str, *, of: str) -> bool:
    """A key of what somebody asks for (`of`: how it is named to them); false where it is not said."""
    value = document.get(key, False)
    if not isinstance(value, bool):
        raise RemoteProtocolError(f"{of}.{key}: must be true or false")
    return value


def text(document: Mapping[object, object], key: str, *, of: str, least: int = 0) -> str:
    """Likewise a line of text, of so many characters at least; empty where it is not said."""
    value = document.get(key, "")
    if not isinstance(value, str) or not least <= len(value) <= _MAX_TEXT:
        raise RemoteProtocolError(f"{of}.{key}: must be a text of {least} to {_MAX_TEXT} characters")
    if not value.isprintable():
        raise RemoteProtocolError(f"{of}.{key}: must be printable, on one line")
    return value


def _lasts(value: object) -> Seconds | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RemoteProtocolError("order.for: must be seconds")
    if not 1 <= value <= LONGEST:
        raise RemoteProtocolError(f"order.for: must be from 1 s to a year ({LONGEST:.0f} s), got {value:g}")
    return float(value)


def _weight(document: Mapping[object, object], *, is_weight: bool) -> int:
    weight = document.get("weight")
    if not is_weight:
        if weight is not None:
            raise RemoteProtocolError("order.weight: only a weight order has one")
        return 0
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MAX_WEIGHT:
        told = f"order.weight: must be a whole number from 1 to {MAX_WEIGHT}, got {weight!r}"
        raise RemoteProtocolError(f"{told}; `drain` takes all traffic away")
    return weight


def effect(cluster: str, found: Foreseen) -> EffectDocument:
    """What an order does to one cluster."""
    before = sum(one.before.weight for one in found.effects)
    after = sum(one.after.weight for one in found.effects)
    return {
        "cluster": cluster,
        "panic": found.panic,
        "waiting": list(found.waiting),
        "lines": [_row(one, before, after) for one in found.effects],
    }


def _row(one: Effect, before: int, after: int) -> EffectRow:
    return {"line": one.line, "before": _side(one.before, before), "after": _side(one.after, after)}


def _side(standing: Standing, total: int) -> SideRow:
    return {
        "health": HEALTHS[standing.health],
        "breaker": GATES[standing.gate],
        "weight": standing.weight,
        "share": round(standing.weight / total, 4) if total else 0.0,
    }
