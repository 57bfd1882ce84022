"""The few shapes others may implement. Structural: nobody inherits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from random import Random
from typing import Final, Protocol

from reachline.members import Update
from reachline.model import Failure, Seconds, Standing

__all__ = ["API", "Discovery", "Picker", "Talk", "Transport"]

API: Final = 1
"""Third parties state the number they were written for; another one is refused by name."""


class Talk(Protocol):
    """One conversation after connect, proxy hops and TLS, which the engine owns. No waiting, no clock."""

    def begin(self) -> bytes:
        """The first bytes to send; empty where the peer speaks first."""

    def received(self, data: bytes) -> bytes | None:
        """Bytes to send next (may be empty: wait for more), or None when the conversation is over."""

    def closed(self) -> Failure | None:
        """The verdict once it is over or the peer closed: None is ok."""


class Discovery(Protocol):
    """Where a cluster's endpoints come from."""

    def watch(self) -> AsyncGenerator[Update, None]:
        """Every change, what is there at the start first; ends only where nothing can ever change.

        The first one comes within bounded time, empty and with its `trouble` where nothing was found. Close it
        (`contextlib.aclosing`) where you leave it early.
        """


class Picker(Protocol):
    """One immutable way to choose, built from one snapshot."""

    def pick(self, rng: Random, key: int | None = None) -> Standing | None:
        """The chosen line, or None where there is nothing to choose from."""


class Transport(Protocol):
    """Frames to and from a center: grpc, http, FakeNet."""

    async def send(self, frame: bytes, timeout: Seconds) -> None:
        """Handed to the peer, or an error; never half."""

    def frames(self) -> AsyncIterator[bytes]:
        """What the peer sends, until it ends the stream."""
