"""Names to addresses, off the hot path: cached, deduplicated, family honoured, failure a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from reachline.model import Seconds

__all__ = ["Answer", "Resolver"]


class Answer(NamedTuple):
    """What a name means now: numeric addresses of one family in the resolver's order, or why there are none."""

    addresses: tuple[str, ...] = ()
    error: str = ""
    until: Seconds = 0.0
    """Monotonic; asked again after it."""


class Resolver:
    """The cache of one event loop. Written by that loop's thread only."""

    def __init__(
        self, *, keep: Seconds = 30.0, keep_failure: Seconds = 5.0, limit: int = 16
    ) -> None:
        """`keep` is the floor of an answer's life, `keep_failure` that of a failure, `limit` lookups run at once."""
        raise NotImplementedError

    def cached(self, host: str, family: int) -> Answer | None:
        """The answer at hand (fresh, or stale while it is asked again), None while there is none."""
        raise NotImplementedError

    def ask(self, host: str, family: int, then: Callable[[Answer], None]) -> None:
        """Look the name up unless that is under way; `then` is called once, on the loop."""
        raise NotImplementedError

    async def close(self) -> None:
        """Give up all lookups; no callback comes after it."""
        raise NotImplementedError
