"""What every kind of active check is to whoever carries it out. Pure: bytes in, bytes and a verdict out."""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from reachline.core.checking import Verdict
from reachline.talk.secure import Secure

__all__ = ["GONE", "Ask", "Asked"]

GONE: Final = "closed before the answer was whole"


class Ask(Protocol):
    """One check's conversation on one connection."""

    @property
    def is_reusable(self) -> bool:
        """Whether the connection is as good as new, once the answer is whole."""

    def begin(self) -> bytes:
        """What is sent first; empty where the peer speaks first."""

    def received(self, data: bytes) -> bytes | None:
        """What is sent next (empty: more is to come), or None: the answer is whole, or beyond repair."""

    def verdict(self, *, closed: bool = False) -> Verdict:
        """What it came to; `closed`: the peer ended the connection first."""


class Asked(Protocol):
    """One kind of check with its settings, asked of any number of endpoints."""

    checker: ClassVar[str]
    """Envoy's word for the kind."""
    minds_idle_close: ClassVar[bool]
    """Whether a peer that closes a kept connection between two checks has failed one."""

    @property
    def secure(self) -> Secure | None:
        """The TLS to speak first, if any."""

    @property
    def by_connect(self) -> bool:
        """Whether being connected is all that is asked; then the connection is never kept."""

    def ask(self, authority: str) -> Ask:
        """A new conversation. `authority` is whom the endpoint is asked as where the settings do not say."""
