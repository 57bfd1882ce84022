"""What every observatory answers, whichever its rules: the observers here, and any judge of lines that shows its snapshot so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from reachline.core.observing.values import Ask, Result, Status, Told

__all__ = ["Asking", "Observation", "Observer"]


class Observation(Protocol):
    """What is known of outbounds."""

    def statuses(self, now: int) -> tuple[Status, ...]:
        """One for each outbound that was observed, in the order in which they are told."""

    def edition(self, now: int) -> int:
        """Another number whenever `statuses` may say something else: what was derived from them is kept until then."""


class Asking(Protocol):
    """A machine that says what to ask and is told how it ended. One writer; `now` never goes back."""

    def deadline(self) -> int | None:
        """When `due` has something next; None: not before something else happens."""

    def due(self, now: int) -> tuple[Ask, ...]:
        """Requests to make now, each told once."""

    def ended(self, serial: int, result: Result, now: int) -> tuple[Told, ...]:
        """How a request ended. One that is no longer waited for says nothing."""


class Observer(Observation, Asking, Protocol):
    """An observatory."""

    def outbounds(self, tags: Iterable[str], now: int) -> None:
        """These outbounds exist from now on. The first call is the start."""

    def check(self, now: int) -> None:
        """Ask every outbound now, beside the schedule: somebody wants to know, or our network is another."""

    def called(self, tag: str, passed: bool, now: int) -> tuple[Told, ...]:
        """A connection of somebody's by this outbound was made, or could not be for a reason that is not its target's."""
