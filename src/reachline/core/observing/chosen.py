"""A choice with its reason, and what every balancer answers."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from random import Random
from typing import NamedTuple, Protocol

__all__ = ["Balancer", "Chosen", "Why"]


class Why(Enum):
    """Where a choice comes from."""

    OVERRIDE = "override"
    CHOSEN = "chosen"
    """By the strategy, of the best group."""
    LOWER = "lower group"
    """By the strategy, for all groups above have nobody well."""
    UNOBSERVED = "not observed yet"
    """Nobody is known to be well: those of whom nothing is known."""
    FALLBACK = "fallback"
    LAST_GOOD = "last good"
    ORDERED = "ordered"
    SPREAD = "spread"
    BLOCKED = "blocked"
    """Nobody: the connection is refused."""
    DEFAULT = "default outbound"
    """Strictly as Xray: the document's first outbound, whatever it is."""


class Chosen(NamedTuple):
    """Who gets one connection; None: nobody does."""

    tag: str | None
    why: Why


class Balancer(Protocol):
    """One balancer of a document. One writer."""

    def outbounds(self, tags: Iterable[str], silent: Iterable[str] = ()) -> None:
        """These exist from now on, in the document's order; those that are `silent` carry nothing (`blackhole`, `dns`)."""

    def pick(self, now: int, rng: Random) -> Chosen:
        """Who gets a connection made now."""

    def targets(self, now: int) -> tuple[str, ...]:
        """Among whom the strategy chooses, the best first, whatever the override: `principle_target` of Xray's API."""

    def instead(self, tried: frozenset[str], now: int) -> tuple[str, ...]:
        """Among whom it chooses for a connection that these could not make; none: nobody may have it."""

    def override(self, tag: str) -> bool:
        """Choose this one from now on, empty: by strategy again; False: there is no such outbound."""

    def overridden(self) -> str:
        """Whom the override names, empty: none is set."""
