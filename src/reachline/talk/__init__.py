"""What each probe kind says and expects: pure, no waiting, no clock, no randomness of its own.

One literal `TABLE`; a kind is one module with its settings (a frozen dataclass of plain values, built from a plan's options)
and its talk. Adding a kind: one file, one line here, one test, one heading in the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from reachline.abc import Talk
from reachline.model import Endpoint, Kind

__all__ = ["Conversation", "Probe", "build"]


class Conversation(Talk, Protocol):
    """A talk that also tells people and counters what came of it."""

    status: int
    """HTTP status, DNS rcode; 0 where there is none."""
    note: str
    """The failure in words, else empty."""


class Probe(Protocol):
    """One kind's settings, ready to be used many times."""

    def talk(self, endpoint: Endpoint, nonce: int) -> Conversation | None:
        """A new conversation; None: reaching the endpoint is the whole probe. `nonce` is 64 unguessable bits."""


def build(
    kind: Kind, endpoint: Endpoint, options: Mapping[str, str | int | bool]
) -> Probe:
    """The probe of `kind` for `endpoint`; ConfigError names every option that is unknown or wrong."""
    raise NotImplementedError
