"""What one stream of a control plane owes its client of one type of resources: the difference from what it was told.

The parts of `ads_serving`'s state machine that look at one type only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from reachline.wire.refusing import Refusals, named
from reachline.wire.resources import Rendered, Shelf, differs

__all__ = ["Accepted", "Answer", "Subscription", "changed", "forget", "partial", "refused", "whole"]

_LOT: Final = 2 << 20
"""Bytes after which an answer that may be partial ends: half of what gRPC's clients take (4 MiB), so that one more resource fits."""


class Answer(NamedTuple):
    """One response. `removed` is delta's."""

    type_url: str
    version: str
    """Of everything of this type."""
    nonce: str
    resources: tuple[Rendered, ...]
    removed: tuple[str, ...] = ()
    is_delta: bool = False


class Accepted(NamedTuple):
    """What a client took last, of the resources that it wanted then."""

    shelf: Shelf
    wild: bool
    names: Collection[str]

    def get(self, name: str) -> Rendered | None:
        """One of them."""
        return self.shelf.by_name.get(name) if self.wild or name in self.names else None

    def all(self) -> Iterator[str]:
        """Their names."""
        return filter(self.shelf.by_name.__contains__, self.shelf.by_name if self.wild else self.names)


class Subscription:
    """One type on one stream. Written by its `Subscriber`."""

    __slots__ = (
        "accepted", "asks", "base", "echoed", "error", "gone", "had", "initial", "is_full", "nacks", "names", "nonce", "number", "owed",
        "refusals", "said", "sent", "was_named", "wild",
    )  # fmt: skip

    def __init__(self, *, is_full: bool) -> None:
        self.is_full = is_full
        """What an answer lacks is deleted."""
        self.wild = False
        self.was_named = False
        self.names: dict[str, None] = {}
        self.said: tuple[str, ...] = ()
        """SotW: names as the last request had them."""
        self.base: Shelf | None = None
        """Whose resources the client was told, but for `owed` and `gone`."""
        self.owed: dict[str, None] = {}
        """To be told, whatever was told before…"""
        self.gone: dict[str, Rendered | None] = {}
        """…and to be said to be away; with what the client still has."""
        self.asks = False
        """An answer is due even where there is nothing to say."""
        self.echoed = False
        """A repeated request was answered, and nothing happened since."""
        self.initial: Mapping[str, str] = {}
        """Delta: what the client has from an earlier stream."""
        self.had = False
        """SotW: it has something from an earlier stream."""
        self.nonce = ""
        self.number = 0
        """Of the newest shelf that it was told of."""
        self.sent: tuple[Answer, Shelf] | None = None
        """Waits for its ACK or NACK; with what it was taken from."""
        self.accepted: Accepted | None = None
        self.refusals = Refusals()
        self.nacks = 0
        self.error = ""

    def wants(self, name: str) -> bool:
        """Whether the client is told of it."""
        return self.wild or name in self.names

    def wanted(self, shelf: Shelf) -> Collection[str]:
        """Names it is told of, there or not."""
        return shelf.by_name if self.wild else self.names


def forget(state: Subscription, name: str) -> None:
    """The client does not want it any more."""
    state.owed.pop(name, None)
    state.gone.pop(name, None)
    state.refusals.drop(name)


def changed(state: Subscription, name: str, before: Shelf, after: Shelf) -> None:
    """One resource that the client wants differs between two shelves."""
    if name in after.by_name:
        state.owed[name] = None
        state.gone.pop(name, None)
    else:
        state.owed.pop(name, None)
        state.gone.setdefault(name, before.by_name.get(name))


_Parts = tuple[tuple[Rendered, ...], tuple[str, ...]]


def whole(state: Subscription, shelf: Shelf, *, keeps: bool) -> _Parts:
    """Everything wanted that exists; what was refused as it was before."""
    found = [shelf.by_name[name] for name in state.wanted(shelf) if name in shelf.by_name]
    if state.refusals:
        found = [one for each in found if (one := state.refusals.instead(each, has_older=state.had)) is not None]
    state.owed.clear()
    if keeps:
        found += [one for one in state.gone.values() if one is not None]
    else:
        state.gone.clear()
    return tuple(found), ()


def partial(state: Subscription, shelf: Shelf, delta: bool, *, keeps: bool) -> _Parts | None:
    """What is owed, up to `_LOT`; None where that is nothing that can be said."""
    found: list[Rendered] = []
    away: list[str] = []
    for one, name in _taken(state, shelf):
        if one is None:
            away.append(name)
        elif not state.refusals.has(one):
            found.append(one)
    if not delta:
        state.gone.clear()
        return (tuple(found), ()) if found else None
    if not keeps:
        away += filter(state.wants, state.gone)
        state.gone.clear()
    return (tuple(found), tuple(away)) if found or away or state.asks else None


def _taken(state: Subscription, shelf: Shelf) -> list[tuple[Rendered | None, str]]:
    """What is owed and still wanted, no more of it."""
    taken: list[tuple[Rendered | None, str]] = []
    size = at = 0
    for at, name in enumerate(state.owed, start=1):  # noqa: B007  (counted)
        if state.wants(name):
            taken.append((one := shelf.by_name.get(name), name))
            size += len(one.body) if one else 0
        if size >= _LOT:
            break
    state.owed = dict.fromkeys(islice(state.owed, at, None))
    return taken


def refused(state: Subscription, answer: Answer) -> None:
    """Which of the answer's resources were meant; the rest is told again without them, for clients that take all or nothing."""
    accepted = state.accepted if state.is_full else None
    suspects = [
        one
        for one in answer.resources
        if differs(accepted and accepted.get(one.name), one) and not state.refusals.stands_in(one)
    ]
    meant = named(state.error, suspects)
    for one in meant:
        state.refusals.refused(one, state.error, before=accepted and accepted.get(one.name))
    if not meant or (state.is_full and any(state.refusals.instead(one, has_older=state.had) is one for one in meant)):
        return  # nothing to leave out
    told = {one.name for one in answer.resources}
    gone = set(accepted.all()) - told if accepted else set(answer.removed)
    if (gone or len(meant) < len(suspects)) and state.refusals.may_retry():
        state.owed.update(dict.fromkeys(one.name for one in suspects if one not in meant))
        state.gone.update(dict.fromkeys(gone))
