"""What a client refused of what it was told (NACK): which resource it meant, and what it is told in its place.

A refused resource is not sent again before its content changes. Where an answer must be complete, what the client took
before stands in for it, for absence would delete it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from reachline.wire.resources import Rendered

__all__ = ["Refusals", "named"]

_RETRIES: Final = 8
"""NACKs in a row after which an answer is not tried again without what was refused: who refuses all of these refuses any."""


class _Refused(NamedTuple):
    version: str
    """That was refused; empty while newer content is on its way."""
    reason: str
    before: Rendered | None
    """What the client took before; None: nothing that we know of."""


class Refusals:
    """Of one type on one stream. Written by its owner."""

    __slots__ = ("_by_name", "_row")

    def __init__(self) -> None:
        self._by_name: dict[str, _Refused] = {}
        self._row = 0
        """NACKs since the last ACK."""

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def has(self, one: Rendered) -> bool:
        """Whether just this content was refused."""
        known = self._by_name.get(one.name)
        return known is not None and known.version == one.version

    def stands_in(self, one: Rendered) -> bool:
        """Whether `one` was told in the place of newer content that was refused."""
        known = self._by_name.get(one.name)
        return known is not None and known.before is one

    def instead(self, one: Rendered, *, has_older: bool) -> Rendered | None:
        """What a complete answer holds for `one`: itself, what was there before, or nothing.

        `has_older`: the client may have one of an earlier stream, which nothing would delete; then it is itself once more.
        """
        if not self.has(one):
            return one
        return self._by_name[one.name].before or (one if has_older else None)

    def refused(self, one: Rendered, reason: str, *, before: Rendered | None) -> None:
        """The client does not take `one`. `before` is what it took last, where that is known from its last whole answer."""
        known = self._by_name.get(one.name)
        self._by_name[one.name] = _Refused(one.version, reason, known.before if known else before)

    def accepted(self, resources: Iterable[Rendered]) -> None:
        """An answer was taken."""
        self._row = 0
        if not self._by_name:
            return
        for one in resources:
            known = self._by_name.get(one.name)
            if known is not None and one is not known.before:
                del self._by_name[one.name]

    def drop(self, name: str) -> None:
        """The client does not want it any more."""
        self._by_name.pop(name, None)

    def may_retry(self) -> bool:
        """Whether the rest of a refused answer is worth another try. Counts."""
        self._row += 1
        return self._row <= _RETRIES

    def reasons(self) -> dict[str, str]:
        """By name."""
        return {name: each.reason for name, each in self._by_name.items()}


def named(error: str, suspects: Sequence[Rendered]) -> list[Rendered]:
    """Which resources the reason of a NACK means: those that it names, or the only one that can be meant.

    The protocol has no field for it. Envoy, gRPC and our own client write `name: reason` for each.
    """
    if len(suspects) == 1:
        return list(suspects)
    quoted = [one for one in suspects if _stands(one.name, error, r"['\"]?\s*:")]
    return quoted or [one for one in suspects if _stands(one.name, error, r"(?![\w.-])")]


def _stands(name: str, error: str, then: str) -> bool:
    return name in error and re.search(rf"(?<![\w.-]){re.escape(name)}{then}", error) is not None
