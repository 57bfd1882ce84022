"""The aggregated discovery protocol as the control plane's half of one stream: what it owes its client now, in both variants.

No queue: the stream remembers what its client was told of, and the next answer is the difference from the newest resources.
At most one answer of a type waits for its ACK, so a client that takes nothing holds one answer and no more, whatever changes.

Refuses to know protobuf, clocks and whoever carries the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from reachline.errors import RemoteProtocolError, one_line
from reachline.wire.ads import CDS, EDS, FULL, LDS, RDS, DeltaRequest, Request
from reachline.wire.ads_owing import Accepted, Answer, Subscription, changed, forget, partial, refused, whole
from reachline.wire.asking import MOST_NAMES, ORDER, check
from reachline.wire.resources import Differences, Resources, Shelf, differs

__all__ = ["Answer", "Heard", "Seen", "Subscriber"]

_ROUTING: Final = (LDS, RDS)
_ALL: Final = "*"
_REASON_MOST: Final = 1_000
"""Characters kept of a reason: Envoy names every resource in it, and what a client says must not fill the center."""


class Heard(Enum):
    """What a request was."""

    ASKED = "asked"
    ACK = "ack"
    NACK = "nack"
    STALE = "stale"
    """It answers a response that is not the last: its client has not seen the last one yet."""


class Seen(NamedTuple):
    """One type on one stream, for operators."""

    type_url: str
    wildcard: bool
    names: tuple[str, ...]
    version: str
    """That was told last."""
    accepted: str
    """That the client took last; empty: none yet."""
    waits: bool
    """An answer was sent and neither taken nor refused."""
    owed: int
    """Resources that wait to be told."""
    nacks: int
    error: str
    """The reason of the last answer, where that was refused."""
    refused: Mapping[str, str]
    """Resources as they are now that the client does not take, with the reason."""


class Subscriber:
    """One stream. Written by the task that carries it: `received` for each request, `due` until it gives None."""

    def __init__(self, differences: Differences, *, delta: bool) -> None:
        self.delta: Final = delta
        self._differences = differences
        self._types: dict[str, Subscription] = {}
        self._again = 0

    # What the client says.

    def received(self, request: Request | DeltaRequest) -> Heard:
        """Takes a request. RemoteProtocolError where it asks for what is not served, or for too much: the stream is over then."""
        check(request)
        state = self._types.get(request.type_url)
        is_first = state is None
        if state is None:
            state = self._types[request.type_url] = Subscription(is_full=not self.delta and request.type_url in FULL)
        heard = self._answered(state, request, is_first=is_first)
        match request:
            case Request():
                if heard is Heard.STALE:
                    # It counts for nothing, but what it does not name was let go: if the next one does, it is told again.
                    left = state.names.keys() - set(request.names)
                    state.owed.update(dict.fromkeys(name for name in state.names if name in left))
                else:
                    self._renamed(state, request, is_first=is_first, repeats=heard is Heard.ASKED)
            case DeltaRequest():
                self._moved(state, request, is_first=is_first)
        if len(state.names) > MOST_NAMES:
            raise RemoteProtocolError(f"more than {MOST_NAMES} names are subscribed to ({request.type_url})")
        return heard

    @staticmethod
    def _answered(state: Subscription, request: Request | DeltaRequest, *, is_first: bool) -> Heard:
        """What the request says of the last answer."""
        if is_first or (not request.nonce and isinstance(request, DeltaRequest)):
            return Heard.ASKED
        if request.nonce != state.nonce:
            return Heard.STALE
        sent, state.sent = state.sent, None
        if sent is None:
            return Heard.NACK if request.error else Heard.ASKED
        answer, shelf = sent
        if not request.error:
            state.error, state.accepted = "", Accepted(shelf, state.wild, state.names)
            state.refusals.accepted(answer.resources)
            return Heard.ACK
        state.nacks += 1
        state.error = one_line(request.error[:_REASON_MOST])
        refused(state, answer)
        return Heard.NACK

    def _renamed(self, state: Subscription, request: Request, *, is_first: bool, repeats: bool) -> None:
        """SotW: the request names everything that is wanted from here on."""
        # Most name what the last one did, an ACK of five hundred clusters' endpoints all five hundred.
        is_same, had = not is_first and request.names == state.said, len(state.names)
        added, widened = ([], False) if is_same else self._named(state, request)
        if is_first:
            state.had = bool(request.version)
        elif added or widened:
            state.owed.update(dict.fromkeys(added))
            state.asks = True
            if widened:
                state.base = None
        elif repeats and len(state.names) == had and (state.names or state.wild) and not state.echoed:
            # E.g. an Envoy that made a cluster anew and wants its endpoints once more.
            state.base, state.asks, state.echoed = None, True, True

    @staticmethod
    def _named(state: Subscription, request: Request) -> tuple[list[str], bool]:
        """The names that are new, and whether everything is wanted that was not before."""
        names = {name: None for name in request.names if name != _ALL}
        state.said, state.was_named = request.names, state.was_named or bool(request.names)
        wild = _ALL in request.names or (request.type_url in FULL and not state.was_named)
        added = [name for name in names if name not in state.names]
        for name in [name for name in state.names if name not in names and not wild]:
            forget(state, name)
        widened, state.wild, state.names = wild and not state.wild, wild, names
        return added, widened

    def _moved(self, state: Subscription, request: DeltaRequest, *, is_first: bool) -> None:
        """Delta: the request says what is wanted besides, and what no more."""
        if is_first:
            state.initial = dict(request.versions)
            state.wild = request.type_url in FULL and not request.subscribe
            state.asks = state.wild
        for name in request.unsubscribe:
            if name == _ALL:
                state.wild = False
                continue
            if name not in state.names:
                continue  # it was never asked for by name: nothing ends, and nothing is kept of it
            del state.names[name]
            forget(state, name)
            if state.wild:
                state.owed[name] = None  # the wildcard still wants it: it is said so
        for name in request.subscribe:
            if name == _ALL:
                if not state.wild:
                    state.wild, state.asks, state.base = True, True, None
                continue
            state.names[name] = None
            if not is_first:
                state.owed[name] = None

    # What it is told.

    def due(self, resources: Resources | None) -> Answer | None:
        """The next answer to be sent now, or None. It counts as sent."""
        if resources is None or not self.may_owe(resources):
            return None
        for type_url, state in self._types.items():
            if state.sent is None:
                self._advance(state, resources.shelf(type_url))
        answer = self._turn(resources)
        if answer is None and CDS in self._types and self._types[CDS].gone:
            answer = self._turn(resources)  # routes had nothing to tell after all
        return answer

    def may_owe(self, resources: Resources) -> bool:
        """False: nothing is due. Asked far more often than something is."""
        for url, state in self._types.items():
            if state.sent is None and (
                state.owed or state.gone or state.asks or state.base is not resources.shelf(url)
            ):
                return True
        return False

    def _turn(self, resources: Resources) -> Answer | None:
        held = False
        for type_url in ORDER:
            state = self._types.get(type_url)
            if state is None:
                continue
            if held and type_url in _ROUTING:
                return None
            if (answer := self._next(type_url, state, resources.shelf(type_url))) is not None:
                self._followed(answer, state)
                return answer
            held = held or state.sent is not None
        return None

    def _next(self, type_url: str, state: Subscription, shelf: Shelf) -> Answer | None:
        if state.sent is not None or not (state.owed or state.gone or state.asks):
            return None
        # A cluster goes after the last route to it.
        keeps = type_url == CDS and bool(state.gone) and self._has_routes_to_tell()
        if keeps and not (state.owed or state.asks):
            return None
        parts = whole(state, shelf, keeps=keeps) if state.is_full else partial(state, shelf, self.delta, keeps=keeps)
        state.asks = False
        if parts is None:
            return None
        state.nonce = self._nonce(state, self._differences.number(shelf))
        answer = Answer(type_url, shelf.version, state.nonce, *parts, self.delta)
        state.sent = answer, shelf
        return answer

    def _nonce(self, state: Subscription, number: int) -> str:
        """The shelf's number, so that all who are told the same are told it in the same bytes; a further answer has a count beside it."""
        if number > state.number:
            state.number = number
            return str(number)
        self._again += 1
        return f"{number}.{self._again}"

    def _advance(self, state: Subscription, shelf: Shelf) -> None:
        """What differs from what was told of becomes owed."""
        if state.base is shelf:
            return
        if state.base is None:
            for name in state.wanted(shelf):
                one = shelf.by_name.get(name)
                if one is None or state.initial.get(name) != one.version:
                    state.owed[name] = None
            left = {**dict.fromkeys(state.initial if state.wild else ()), **state.gone}
            state.gone = {name: one for name, one in left.items() if name not in shelf.by_name}
            state.asks = state.asks or state.is_full
            state.initial = {}
        else:
            for name in self._differences.between(state.base, shelf):
                if state.wants(name):
                    changed(state, name, state.base, shelf)
                    state.echoed = False
        state.base = shelf

    def _has_routes_to_tell(self) -> bool:
        routing = [state for url in _ROUTING if (state := self._types.get(url)) is not None]
        return any(state.sent is not None or state.owed or state.gone or state.asks for state in routing)

    def _followed(self, answer: Answer, state: Subscription) -> None:
        """What one answer means for other types."""
        if not state.echoed:
            for other in self._types.values():
                other.echoed = False
        endpoints = self._types.get(EDS)
        if answer.type_url == CDS and endpoints is not None:
            # A client makes a changed cluster anew, and cannot use it before it has heard of its endpoints again.
            accepted = self._types[CDS].accepted
            for one in answer.resources:
                if one.name in endpoints.names and differs(accepted and accepted.get(one.name), one):
                    endpoints.owed[one.name] = None

    # For operators.

    @property
    def refuses(self) -> bool:
        """Whether the client refused the last answer of a type, or resources as they are now."""
        return any(state.error or state.refusals for state in self._types.values())

    @property
    def waits(self) -> bool:
        """Whether an answer was neither taken nor refused yet."""
        return any(state.sent is not None for state in self._types.values())

    def seen(self) -> tuple[Seen, ...]:
        """Each type that was asked for, in the order of `ORDER`."""
        return tuple(_seen(url, self._types[url]) for url in ORDER if url in self._types)


def _seen(type_url: str, state: Subscription) -> Seen:
    return Seen(
        type_url,
        state.wild,
        tuple(state.names),
        state.base.version if state.base else "",
        state.accepted.shelf.version if state.accepted else "",
        state.sent is not None,
        len(state.owed) + len(state.gone),
        state.nacks,
        state.error,
        state.refusals.reasons(),
    )
