"""Who gets a connection that a rule gives to a balancer, and who hears how it went."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Guide"]


class Guide(Protocol):
    """Running observers and balancers, as whoever carries sees them."""

    def pick(self, balancer: str, tried: frozenset[str]) -> str | None:
        """The outbound of a connection made now, none of those that were `tried` for it; None: nobody may have it."""

    def keeps(self, balancer: str, tag: str) -> bool:
        """Whether a connection made now may go by this outbound too."""

    def called(self, tag: str, passed: bool) -> None:
        """A connection by this outbound was made, or could not be for a reason that is not its target's."""
