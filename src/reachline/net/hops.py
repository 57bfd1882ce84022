"""Which proxy of a connection is spoken to now, and whose fault a failure on the way is. Sends nothing, waits for nothing."""

from __future__ import annotations

from typing import Final

from reachline.model import Failure
from reachline.net.attempt import Job, Place, Route
from reachline.talk.hop import Hop, HopTalk

__all__ = ["Passage", "resumed", "unreached"]

_OURS: Final = frozenset((Failure.AGENT, Failure.TIMEOUT))
"""Failures of a connect that tell nothing of the proxy: our own, and silence, behind which anything may be."""

_TOLD: Final = frozenset((Failure.REFUSED, Failure.UNREACHABLE, Failure.RESOLVE, Failure.RESET, Failure.TIMEOUT))
"""What a proxy may tell of what lies behind it; with a note of its talk it was told, without one it is our own connection's."""


def unreached(job: Job, failure: Failure, words: str) -> tuple[Failure, str]:
    """What a failed connect says: of the endpoint, or of the first proxy, without which nothing is known of the endpoint."""
    if not job.hops:
        return failure, words
    return failure if failure in _OURS else Failure.PROXY, f"proxy {job.hops[0]}: {words}"


class Passage:
    """The proxies of one connection, one after the other. Written by its `Speech`."""

    __slots__ = ("_hops", "_next", "_places", "hop", "talk")

    def __init__(self, hops: tuple[Hop, ...], places: tuple[Place, ...]) -> None:
        """`places` says what each hop is asked to connect to. The first hop is spoken to at once."""
        self._hops, self._places, self._next = hops, places, 0
        self.hop: Hop
        self.talk: HopTalk
        self.advance()

    def advance(self) -> bool:
        """On to the next hop; False: there is none, and what follows is the endpoint itself."""
        if self._next == len(self._hops):
            return False
        self.hop = self._hops[self._next]
        self.talk = self.hop.talk(*self._places[self._next])
        self._next += 1
        return True

    @property
    def is_last(self) -> bool:
        """Whether the endpoint itself lies behind this hop."""
        return self._next == len(self._hops)

    def blame(self, failure: Failure, words: str) -> tuple[Failure, str]:
        """A failure while this hop was spoken to, as the line's: what lies behind it can only be at fault once it is asked.

        Silence before that is the proxy's; after it nobody knows. What it tells of the endpoint stays what it is; what it
        tells of the next proxy is that one's failure.
        """
        if failure is Failure.AGENT:
            return failure, words
        if failure is Failure.TIMEOUT and self.talk.note == "":
            if self.talk.asked:
                return failure, f"proxy {self.hop} does not say whether it reaches {self._behind}"
            return Failure.PROXY, f"proxy {self.hop}: accepts and does not answer"
        if failure in _TOLD and self.talk.note:
            words = f"{words}, says proxy {self.hop}"
            return (failure, words) if self.is_last else (Failure.PROXY, f"proxy {self._behind}: {words}")
        return Failure.PROXY, f"proxy {self.hop}: {words}"

    @property
    def _behind(self) -> str:
        return "the target" if self.is_last else str(self._hops[self._next])


def resumed(route: Route, step: int) -> Passage | None:
    """The proxies of a connection on which `step` exchanges were answered and the next one was said; None: all were answered."""
    passing = route.passing
    if step >= len(passing):
        return None
    passage, hop = Passage(route.job.hops, route.places), passing[step].hop
    for _ in range(hop):
        passage.advance()
    passage.talk.begin()
    for each in passing[:step]:
        if each.hop == hop:
            passage.talk.received(each.answer)
    return passage
