"""The aggregated discovery protocol (xDS v3) as values and as the client's state machine: both variants, no bytes, no clock.

State of the world (SotW): a request names everything of its type; LDS and CDS answers are complete, EDS and RDS ones are not.
Delta: messages say what changed. Either way a client says of each response whether it took it (ACK) or why not (NACK).

Refuses to know protobuf (`wire.xds` turns messages into these values) and streams (`net.ads` carries them).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from reachline.model import Seconds

__all__ = [
    "ALL", "CDS", "EDS", "FULL", "LDS", "RDS", "Client", "DeltaRequest", "News", "Parcel", "Parsed", "Request", "Response", "Told", "pause",
]  # fmt: skip

_PREFIX: Final = "type.googleapis.com/envoy.config"
LDS: Final = f"{_PREFIX}.listener.v3.Listener"
RDS: Final = f"{_PREFIX}.route.v3.RouteConfiguration"
CDS: Final = f"{_PREFIX}.cluster.v3.Cluster"
EDS: Final = f"{_PREFIX}.endpoint.v3.ClusterLoadAssignment"
ALL: Final = "*"
"""The name under which all resources of a type are wanted, whatever they are called."""
FULL: Final = frozenset({LDS, CDS})
"""Types whose SotW answers are complete: what is absent is deleted."""
_ORDER: Final = (CDS, EDS, LDS, RDS)
"""In which they are asked for: make before break."""

_NONCES: Final = 64
"""Of one type on one stream, remembered to know a repeated response by."""
_FIRST_PAUSE: Final[Seconds] = 0.5
_LONGEST_PAUSE: Final[Seconds] = 30.0
"""As Envoy's."""
_DOUBLINGS_MOST: Final = 10
_REASON_MOST: Final = 1_000
"""Characters of a NACK's reason: enough for people, and no amplifier of a bad response."""


class Parcel(NamedTuple):
    """One resource as it was sent."""

    type_url: str
    body: bytes
    """Its message; empty in a heartbeat."""
    name: str = ""
    """Where the envelope tells it: delta, and resources with a time to live."""
    version: str = ""
    ttl: Seconds | None = None
    is_heartbeat: bool = False
    """It only says that what is known under this name still holds."""


class Response(NamedTuple):
    """What a control plane sends, in either variant. `version` is that of the whole answer; `removed` is delta's."""

    type_url: str
    version: str
    nonce: str
    parcels: tuple[Parcel, ...] = ()
    removed: tuple[str, ...] = ()


class Request(NamedTuple):
    """SotW: everything wanted of a type. ACK: the response's nonce and version; NACK: its nonce, the last version, an error."""

    type_url: str
    names: tuple[str, ...]
    version: str = ""
    nonce: str = ""
    error: str = ""
    is_first: bool = False
    """Of its stream: it says who asks."""


class DeltaRequest(NamedTuple):
    """Delta: what is wanted and what no more. `versions` are those at hand when a stream begins."""

    type_url: str
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}
    nonce: str = ""
    error: str = ""
    is_first: bool = False


class Parsed(NamedTuple):
    """A resource as a value, or why it is none."""

    name: str
    """Empty where not even that can be read."""
    value: object = None
    error: str = ""


class News(Enum):
    """What became of a resource."""

    HERE = 0
    """It is there, newer or said again."""
    GONE = 1
    """The control plane says that it does not have it."""
    REFUSED = 2
    """What came cannot be; what was there stays."""
    EXPIRED = 3
    """Its time to live is over."""


class Told(NamedTuple):
    """One piece of news. An empty `name` is of all of its type: a resource that could not even be named was refused."""

    news: News
    type_url: str
    name: str
    value: object = None
    reason: str = ""


def pause(failures: int, rng: Random) -> Seconds:
    """How long to wait after this many streams in a row that brought nothing: doubled up to 30 s, in its upper half."""
    wait = min(_FIRST_PAUSE * (1 << min(max(failures - 1, 0), _DOUBLINGS_MOST)), _LONGEST_PAUSE)
    return wait * (0.5 + rng.random() / 2)


@dataclass(slots=True)
class _Type:
    """What one client knows of one type of resources. Written by its `Client`."""

    names: dict[str, None] = field(default_factory=dict)
    """Wanted, in order."""
    version: str = ""
    """SotW: of the last answer taken whole. Outlives streams."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of each resource at hand. Outlives streams."""
    ends: dict[str, Seconds] = field(default_factory=dict)
    """When times to live are over."""
    nonce: str = ""
    seen: deque[str] = field(default_factory=lambda: deque(maxlen=_NONCES))
    asked: frozenset[str] | None = None
    """The names that this stream was told; None: nothing yet."""
    owes: bool = False
    """Whether a response waits for its ACK or NACK."""
    error: str = ""
    """Of that response."""

    def wants(self, name: str) -> bool:
        """Whether a resource of that name is wanted, by itself or with all."""
        return name in self.names or ALL in self.names


class Client:
    """The client's half of one stream after another. Written by whoever carries it; hands out what is to be sent."""

    def __init__(self, parsers: Mapping[str, Callable[[Parcel], Parsed]], *, delta: bool = False) -> None:
        """`parsers` by type URL; other types cannot be subscribed to."""
        self._parsers = dict(parsers)
        self._delta = delta
        self._types: dict[str, _Type] = {}
        self._is_first = True
        self.ignored = 0
        """Responses that repeated a nonce, or that nobody had asked for."""
        self.refused = 0
        """Responses answered by a NACK."""

    # What is wanted.

    def subscribe(self, type_url: str, name: str) -> None:
        """Want a resource, or `ALL` of a type, from now on. KeyError for a type without a parser."""
        if type_url not in self._parsers:
            raise KeyError(type_url)
        self._types.setdefault(type_url, _Type()).names[name] = None

    def unsubscribe(self, type_url: str, name: str) -> None:
        """Want it no more, and forget it."""
        if (state := self._types.get(type_url)) is not None:
            state.names.pop(name, None)
            state.ends.pop(name, None)
            for each in [each for each in state.versions if not state.wants(each)]:
                state.versions.pop(each, None)
                state.ends.pop(each, None)

    # A stream's life.

    def opened(self) -> None:
        """A new stream: nonces die with the last one, names and versions live."""
        self._is_first = True
        for state in self._types.values():
            state.nonce, state.error, state.owes, state.asked = "", "", False, None
            state.seen.clear()

    def requests(self) -> tuple[Request | DeltaRequest, ...]:
        """What is to be sent now: answers that are owed, and wants that the stream has not heard of. Once."""
        made: list[Request | DeltaRequest] = []
        for type_url in sorted(self._types, key=lambda url: (_ORDER.index(url) if url in _ORDER else len(_ORDER), url)):
            state = self._types[type_url]
            if state.owes or frozenset(state.names) != (state.asked or frozenset()):
                made.append(self._delta_request(type_url, state) if self._delta else self._request(type_url, state))
                state.asked, state.owes, state.error = frozenset(state.names), False, ""
                self._is_first = False
        return tuple(made)

    def received(self, response: Response, now: Seconds) -> tuple[Told, ...]:
        """What a response says of what is wanted. Whatever it holds, the good resources in it count."""
        state = self._types.get(response.type_url)
        if state is None or (not state.names and state.asked is None) or response.nonce in state.seen:
            self.ignored += 1
            return ()
        if response.nonce:
            state.seen.append(response.nonce)
        state.nonce, state.owes = response.nonce, True
        errors: list[str] = []
        told = tuple(self._opened(response, state, now, errors))
        state.error = "; ".join(errors)[:_REASON_MOST]
        if errors:
            self.refused += 1
        else:
            state.version = response.version
        return told

    def turn(self, now: Seconds) -> tuple[Told, ...]:
        """Resources whose time to live is over at `now`. To be called at `deadline`."""
        told: list[Told] = []
        for type_url, state in self._types.items():
            for name in [name for name, end in state.ends.items() if end <= now]:
                del state.ends[name]
                state.versions.pop(name, None)
                told.append(Told(News.EXPIRED, type_url, name, reason="its time to live is over"))
        return tuple(told)

    def deadline(self) -> Seconds | None:
        """When `turn` is due, or None."""
        return min((end for state in self._types.values() for end in state.ends.values()), default=None)

    # Inside.

    def _request(self, type_url: str, state: _Type) -> Request:
        # All are asked for by no name, which every control plane knows; once others were named, by their sign.
        is_all = tuple(state.names) == (ALL,) and state.asked in (None, frozenset((ALL,)))
        names = () if is_all else tuple(state.names)
        return Request(type_url, names, state.version, state.nonce, state.error, self._is_first)

    def _delta_request(self, type_url: str, state: _Type) -> DeltaRequest:
        asked = state.asked or frozenset()
        return DeltaRequest(
            type_url,
            tuple(name for name in state.names if name not in asked),
            tuple(sorted(asked - state.names.keys())),
            dict(state.versions) if state.asked is None else {},
            state.nonce if state.owes else "",
            state.error,
            self._is_first,
        )

    def _opened(self, response: Response, state: _Type, now: Seconds, errors: list[str]) -> Iterator[Told]:
        """News of one response; reasons against it go to `errors`."""
        there: set[str] = set()
        for at, parcel in enumerate(response.parcels):
            parsed = self._parsed(response, parcel)
            name = parsed.name or parcel.name
            error = f"{name} stands there twice" if name and name in there else parsed.error
            there.add(name)
            if error:
                errors.append(f"{name or f'resources[{at}]'}: {error}")
                if not name or state.wants(name):
                    yield Told(News.REFUSED, response.type_url, name, reason=error)
            elif state.wants(name) and self._counts(parcel, name, state, now):
                state.versions[name] = parcel.version or response.version
                yield Told(News.HERE, response.type_url, name, parsed.value)
        yield from self._gone(response, state, there)

    def _parsed(self, response: Response, parcel: Parcel) -> Parsed:
        if parcel.is_heartbeat:
            return Parsed(parcel.name)
        if parcel.type_url != response.type_url:
            return Parsed(parcel.name, error=f"is a {parcel.type_url or 'resource without a type'}")
        parsed = self._parsers[response.type_url](parcel)
        if parcel.name and parsed.name and parsed.name != parcel.name:
            return Parsed(parcel.name, error=f"names itself {parsed.name}")
        return parsed

    @staticmethod
    def _counts(parcel: Parcel, name: str, state: _Type, now: Seconds) -> bool:
        """Whether there is something to tell; keeps times to live."""
        if parcel.is_heartbeat and state.versions.get(name) != (parcel.version or state.versions.get(name, "")):
            return False
        if parcel.ttl is not None and (not parcel.is_heartbeat or name in state.versions):
            state.ends[name] = now + parcel.ttl
        elif not parcel.is_heartbeat:
            state.ends.pop(name, None)
        return not parcel.is_heartbeat

    def _gone(self, response: Response, state: _Type, there: set[str]) -> Iterator[Told]:
        gone = [name for name in response.removed if state.wants(name)]
        if not self._delta and response.type_url in FULL:
            gone = [name for name in state.versions if name not in there]
        for name in gone:
            state.versions.pop(name, None)
            state.ends.pop(name, None)
            yield Told(News.GONE, response.type_url, name, reason="the control plane does not have it")
