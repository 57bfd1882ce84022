"""A document with what was changed over an API since it was read: outbounds that came and went, put where Xray puts them.

A new outbound comes last. Whoever removed the first one, the default, left nobody in its place: the next to come takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from reachline.doors.observatory.merging import Merged, Source, merge, tag_of
from reachline.doors.origin import Path, Places

__all__ = ["Changes", "changed", "own_tags"]

_NAME: Final = "api"
"""What stands for the file's name in messages about an outbound that came over the API."""
_NOBODY: Final[Mapping[str, object]] = {"protocol": "blackhole"}
"""In the place of a default outbound that was removed: whoever is sent there goes nowhere."""


class Changes(NamedTuple):
    """Since the document was read. The blocks are outbounds as it would have them."""

    front: Mapping[str, object] | None = None
    """The default one, where the document's own was removed."""
    back: tuple[Mapping[str, object], ...] = ()
    removed: frozenset[str] = frozenset()
    is_headless: bool = False
    """The default one was removed, and none came since."""

    def added(self, outbound: Mapping[str, object]) -> Changes:
        """With this outbound, whose tag is free."""
        if self.is_headless:
            return self._replace(front=outbound, is_headless=False)
        return self._replace(back=(*self.back, outbound))

    def without(self, tag: str, *, is_default: bool) -> Changes:
        """Without the outbound of this tag."""
        headless = self._replace(is_headless=self.is_headless or is_default)
        if self.front is not None and tag_of(self.front) == tag:
            return headless._replace(front=None)
        kept = tuple(each for each in self.back if tag_of(each) != tag)
        if len(kept) < len(self.back):
            return headless._replace(back=kept)
        return headless._replace(removed=self.removed | {tag})

    def settled(self, tags: Iterable[str]) -> Changes:
        """After the document was written anew with these outbounds: what it says itself is its own again.

        Whoever came over the API stays while the document has no such tag; whoever was removed stays away while it has one.
        """
        order = tuple(tags)
        known = frozenset(order)
        removed = self.removed & known
        loses_first = bool(order) and order[0] in removed
        back = tuple(each for each in self.back if tag_of(each) not in known)
        if self.front is None or tag_of(self.front) in known:
            return Changes(None, back, removed, loses_first)
        if loses_first:
            return Changes(self.front, back, removed)
        return Changes(None, (self.front, *back), removed)


def own_tags(sources: Sequence[Source], *, remarks: str | None = None) -> tuple[str, ...]:
    """Tags of the outbounds that stand in a document's files; ConfigError where it is none."""
    outbounds = merge(sources, remarks=remarks).value.get("outbounds")
    return tuple(map(tag_of, outbounds)) if isinstance(outbounds, list) else ()


def changed(merged: Merged, changes: Changes) -> Merged:
    """The document as it stands now."""
    if changes == Changes():
        return merged
    present = merged.value.get("outbounds")
    items = list(present) if isinstance(present, list) else []
    own = [
        (each, merged.origin(("outbounds", number)))
        for number, each in enumerate(items)
        if tag_of(each) not in changes.removed or not tag_of(each)
    ]
    there = (len(merged.files), ())
    first = _NOBODY if changes.is_headless else changes.front
    joined: list[tuple[object, tuple[int, Path]]] = [(each, there) for each in (() if first is None else (first,))]
    joined += own + [(each, there) for each in changes.back]
    origins = {at: each for at, each in merged.origins.items() if at[:1] != ("outbounds",) or len(at) == 1}
    origins |= {("outbounds", number): origin for number, (_, origin) in enumerate(joined)}
    value = {**merged.value, "outbounds": [each for each, _ in joined]}
    return Merged(value, (*merged.files, Places(name=_NAME)), origins)
