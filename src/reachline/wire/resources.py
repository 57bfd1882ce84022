"""What a control plane has to say, as immutable values: rendered resources by type and name, with versions from their content.

A version is a hash of what it names, so that it means the same after a restart, on every stream and in every process.
Refuses to know protobuf (bodies are bytes here), clusters and clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from reachline.errors import LocalProtocolError

__all__ = ["EMPTY", "LARGEST", "Differences", "Rendered", "Resources", "Shelf", "differs", "rendered"]

LARGEST: Final = 32 << 20
"""Bytes of one resource: a million endpoints. What is larger is no configuration, and would stop a loop for too long."""
_VERSION: Final = 8
"""Bytes of a version: two contents in 2**32 share one by chance; a cluster changes less often than that in a century."""
_SUM: Final = 2 ** (8 * _VERSION)


class Rendered(NamedTuple):
    """One resource as it is sent, serialised once for all who want it."""

    type_url: str
    name: str
    version: str
    """Of its content."""
    body: bytes
    """Its message."""


def rendered(type_url: str, name: str, body: bytes) -> Rendered:
    """The resource with the version of its content. LocalProtocolError where it has no name, or is above `LARGEST`."""
    if not name:
        raise LocalProtocolError(f"a {type_url} without a name cannot be served")
    if len(body) > LARGEST:
        raise LocalProtocolError(f"{name}: {len(body)} bytes, at most {LARGEST} are served ({type_url})")
    return Rendered(type_url, name, blake2b(body, digest_size=_VERSION).hexdigest(), body)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Shelf:
    """All resources of one type. Two shelves are the same one or are compared by `version`."""

    by_name: Mapping[str, Rendered] = field(default_factory=dict)
    total: int = 0
    """Sum of its resources' hashes: in any order, and one change costs one subtraction and one addition."""

    @property
    def version(self) -> str:
        """Of all of its content."""
        return f"{self.total:0{2 * _VERSION}x}"

    def replaced(self, changed: Iterable[Rendered] = (), gone: Iterable[str] = ()) -> Shelf:
        """The shelf with other resources; itself where nothing differs."""
        by_name, total = dict(self.by_name), self.total
        for name in gone:
            if before := by_name.pop(name, None):
                total -= _hash(before)
        for one in changed:
            before = by_name.get(one.name)
            if before is not None and before.version == one.version:
                continue
            total += _hash(one) - (_hash(before) if before else 0)
            by_name[one.name] = one
        total %= _SUM
        return self if total == self.total else Shelf(MappingProxyType(by_name), total)


def _hash(one: Rendered) -> int:
    text = f"{one.name}\0{one.version}".encode()
    return int.from_bytes(blake2b(text, digest_size=_VERSION).digest(), "big")


_NONE: Final = Shelf()


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """Everything that one audience is told: type URL → shelf. Replaced whole; what did not change is shared with the last."""

    shelves: Mapping[str, Shelf] = field(default_factory=dict)

    def shelf(self, type_url: str) -> Shelf:
        """The resources of a type; the same empty one for a type that has none."""
        return self.shelves.get(type_url, _NONE)

    def get(self, type_url: str, name: str) -> Rendered | None:
        """One resource, or None."""
        return self.shelf(type_url).by_name.get(name)

    def replaced(self, changed: Iterable[Rendered] = (), gone: Iterable[tuple[str, str]] = ()) -> Resources:
        """With `changed` in place of what had their names, and without `gone` (type URL, name); itself where nothing differs."""
        by_type: dict[str, tuple[list[Rendered], list[str]]] = {}
        for one in changed:
            by_type.setdefault(one.type_url, ([], []))[0].append(one)
        for type_url, name in gone:
            by_type.setdefault(type_url, ([], []))[1].append(name)
        shelves = {url: self.shelf(url).replaced(*parts) for url, parts in by_type.items()}
        if all(shelf is self.shelf(url) for url, shelf in shelves.items()):
            return self
        return Resources(MappingProxyType({**self.shelves, **shelves}))


EMPTY: Final = Resources()


class Differences:
    """Names that differ between two shelves, found once for all streams that stand at the same one. On one loop."""

    _KEPT: Final = 8
    """Pairs: streams stand at the last shelf or at one of a few before it."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], tuple[Shelf, Shelf, tuple[str, ...]]] = {}
        self._numbers: WeakKeyDictionary[Shelf, int] = WeakKeyDictionary()
        self._numbered = 0

    def between(self, before: Shelf, after: Shelf) -> tuple[str, ...]:
        """Names changed, new or gone."""
        if before is after:
            return ()
        key = id(before), id(after)
        if (kept := self._found.get(key)) is None:
            old, new = before.by_name, after.by_name
            # Most resources are the same objects in both, so identity answers first.
            names = [name for name, one in new.items() if old.get(name) is not one and differs(old.get(name), one)]
            names += [name for name in old if name not in new]
            # The shelves are kept beside their ids, so that the ids stay theirs.
            kept = self._found[key] = before, after, tuple(names)
            while len(self._found) > self._KEPT:
                del self._found[next(iter(self._found))]
        return kept[2]

    def number(self, shelf: Shelf) -> int:
        """Of a shelf, the same for all streams; one that is told later has a higher one."""
        if (number := self._numbers.get(shelf)) is None:
            self._numbered += 1
            number = self._numbers[shelf] = self._numbered
        return number


def differs(before: Rendered | None, after: Rendered) -> bool:
    """Whether `after` is news to who has `before`."""
    return before is None or before.version != after.version
