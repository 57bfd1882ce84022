"""`static`: the endpoints of the document, for ever."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Final

from reachline.errors import ConfigError
from reachline.members import Member, Membership, Update, compare, distinct, problems_of

__all__ = ["Static"]


class Static:
    """Endpoints that never change; a `Discovery` that tells them once. ConfigError names every one that cannot be."""

    def __init__(self, members: Sequence[Member], *, base: Membership | None = None, place: str = "static") -> None:
        """`base` holds what is said of the cluster as a whole; `place` is where the endpoints stand, for errors."""
        if problems := problems_of(members, place):
            raise ConfigError(*problems)
        kept, notices = distinct(members)
        self._update: Final = compare(
            Membership(),
            replace(base or Membership(), members=kept),
            trouble="" if kept else "no endpoints are written down",
            notices=notices,
        )

    async def watch(self) -> AsyncGenerator[Update, None]:
        """As `abc.Discovery` says."""
        yield self._update
