"""Structures with wrong values in right places: what flipping bytes of JSON or msgpack next to never makes."""

from __future__ import annotations

import marshal
from collections.abc import MutableMapping, MutableSequence
from itertools import repeat
from typing import Any, Final

__all__ = ["reshaped"]

ODD: Final[tuple[object, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63 - 1, 1.5, -0.0, 1e300, "", "x", "x" * 2_000, "\x00\x1b[2J", "tcp://10.0.0.1:443",
    "unknown", [], {}, [[]], [0] * 300, {"": None}, "shop/a", "1.1", "nan",
)  # fmt: skip
MOST: Final = 12
"""Bytes that are read: six wrong values leave nothing right in a small document."""
_NO_REFERENCES: Final = 2
"""Of marshal's formats the last in which one list that stands in two places becomes two."""
_WITHIN: Final = frozenset({dict, list})
Place = tuple[MutableMapping[str, object] | MutableSequence[object], str | int]


def reshaped(root: object, data: bytes) -> object:
    """A copy of `root` in which each two of the first bytes put an odd value, or another part of it, into one of its places."""
    made: dict[str, object] = {"": _copy(root)}
    for at in range(0, min(len(data), MOST) - 1, 2):
        places: list[Place] = []
        _places(made, places)
        container, key = places[data[at] % len(places)]
        choice = data[at + 1] % (len(ODD) + 2)
        if choice < len(ODD):
            value = _copy(ODD[choice])
        else:
            other, name = places[data[at + 1] % len(places)]
            value = _copy(_get(other, name))
        _set(container, key, value)
    return made[""]


def _places(value: object, into: list[Place]) -> None:
    """Every place a value stands in, outermost first."""
    if isinstance(value, dict):
        for key, each in value.items():
            into.append((value, key))
            if isinstance(each, (dict, list)):
                _places(each, into)
    elif isinstance(value, list):
        if _is_flat(value):
            into.extend(zip(repeat(value), range(len(value))))
            return
        for at, each in enumerate(value):
            into.append((value, at))
            if isinstance(each, (dict, list)):
                _places(each, into)


def _is_flat(value: list[object]) -> bool:
    """Whether nothing stands inside of its items: the longest lists here are such, and are gone through at once."""
    return _WITHIN.isdisjoint(map(type, value))


def _copy(value: Any) -> object:
    """What JSON knows, anew: several times as fast as `copy.deepcopy`, which half of the time would go to."""
    return marshal.loads(marshal.dumps(value, _NO_REFERENCES))


def _get(container: MutableMapping[str, object] | MutableSequence[object], key: str | int) -> object:
    if isinstance(container, MutableMapping):
        return container[str(key)]
    return container[int(key)]


def _set(container: MutableMapping[str, object] | MutableSequence[object], key: str | int, value: object) -> None:
    if isinstance(container, MutableMapping):
        container[str(key)] = value
    else:
        container[int(key)] = value
