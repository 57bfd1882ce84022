"""By which of a cluster's transport sockets each of its endpoints is spoken to: as its metadata says, or as the cluster itself does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Final

from reachline.abc import Discovery
from reachline.doors.envoy.chain import Upstream
from reachline.doors.envoy.secured import SOCKET_MATCH, UpstreamTls, matched
from reachline.doors.envoy.values import CheckSettings
from reachline.members import Membership, Update
from reachline.net.dialogue import Layer
from reachline.proxy.agreeing import OFFERED
from reachline.proxy.pool import Secured
from reachline.proxy.securing import Clients
from reachline.talk.checked import GrpcCheck, HttpCheck
from reachline.upstream.listing import Pick

__all__ = ["Following", "Sockets"]


class Sockets:
    """Of one cluster. Written by whoever hears what discovery says. ConfigError where certificates cannot be read."""

    __slots__ = ("_checks", "_criteria", "_kinds", "_own", "_places", "_twos", "_upstream")

    def __init__(self, upstream: Upstream, check: CheckSettings | None, *, place: str) -> None:
        self._upstream: Final = upstream
        kinds = (*(each.tls for each in upstream.by_match), upstream.tls)
        self._kinds: Final = tuple(_clients(tls, place, _spoken(upstream, tls)) for tls in kinds)
        """By the place of the match; last the cluster's own."""
        is_split = upstream.protocol == "DOWNSTREAM"
        self._twos: Final = tuple(_clients(tls, place, OFFERED[:1]) for tls in kinds) if is_split else self._kinds
        """Of HTTP/2, where it is spoken beside HTTP/1.1."""
        alpn = () if check is None else _offered(check)
        self._checks: Final = () if check is None else tuple(_clients(tls, place, alpn) for tls in kinds)
        self._own: Final = len(kinds) - 1
        self._places: Final[dict[str, int]] = {}
        """By `address:port`, of those that are not spoken to by the cluster's own."""
        self._criteria: int | None = None
        if check is not None and check.socket is not None:
            self._criteria = self._place({SOCKET_MATCH: check.socket})

    @property
    def is_plain(self) -> bool:
        """Whether no endpoint is spoken to by TLS."""
        return not self._upstream.secured

    def update(self, membership: Membership) -> list[str]:
        """Take the endpoints of now; which (`address:port`) are spoken to otherwise than before."""
        if not self._upstream.by_match:
            return []
        moved = []
        for member in membership.members:
            key, place = str(member.address), self._place(member.metadata)
            before = self._places.get(key)
            if before != place:
                self._places[key] = place
                if before is not None:
                    moved.append(key)
        return moved

    def forget(self, keys: Collection[str]) -> None:
        """Endpoints that are not among `keys` any more."""
        for key in [each for each in self._places if each not in keys]:
            del self._places[key]

    def of(self, pick: Pick, authority: str, *, is_two: bool = False) -> Secured | None:
        """TLS of a new connection to a pick, of HTTP/2 or not; None: plain text."""
        found = (self._twos if is_two else self._kinds)[self._places.get(pick.target, self._own)]
        return None if found is None else found.of(pick.hostname, authority)

    def of_check(self, key: str, hostname: str) -> Layer | None:
        """TLS of a check's new connection to the endpoint `address:port`; None: plain text."""
        at = self._criteria if self._criteria is not None else self._places.get(key, self._own)
        found = self._checks[at]
        if found is None:
            return None
        secured = found.of(hostname, "")
        return Layer(secured.context, secured.name, secured.distrust)

    def _place(self, metadata: Mapping[str, object]) -> int:
        found = matched(self._upstream.by_match, metadata)
        return self._own if found is None else found


class Following:
    """A discovery whose every update is heard by `hear` before it is taken."""

    __slots__ = ("_discovery", "_hear")

    def __init__(self, discovery: Discovery, hear: Callable[[Membership], None]) -> None:
        self._discovery: Final = discovery
        self._hear: Final = hear

    async def watch(self) -> AsyncGenerator[Update, None]:
        """As the discovery itself."""
        async with aclosing(self._discovery.watch()) as updates:
            async for update in updates:
                self._hear(update.membership)
                yield update


def _clients(tls: UpstreamTls | None, place: str, alpn: tuple[str, ...]) -> Clients | None:
    return None if tls is None else Clients(tls, place=place, alpn=alpn)


def _offered(check: CheckSettings) -> tuple[str, ...]:
    """What checks offer by ALPN: as they say, else what they speak."""
    asked = check.asked
    speaks_2 = isinstance(asked, GrpcCheck) or (isinstance(asked, HttpCheck) and asked.version == "2")
    return check.alpn or (("h2",) if speaks_2 else ())


def _spoken(upstream: Upstream, tls: UpstreamTls | None) -> tuple[str, ...]:
    """What requests' connections offer by ALPN; empty: what is said of HTTP/1."""
    if tls is None or upstream.protocol not in ("HTTP2", "AUTO"):
        return ()
    return OFFERED if upstream.protocol == "AUTO" else tls.alpn or OFFERED[:1]
