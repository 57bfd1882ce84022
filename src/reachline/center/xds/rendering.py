"""From what the center published to the resources of one audience. No clock, no task; only what changed is serialised again.

A cluster that would have no endpoint any more keeps its last ones: lines that cannot be told are no reason to fail calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from reachline.center.board import Cluster
from reachline.center.xds.chain import Chain, Form, Hosts, chained, faults
from reachline.center.xds.layout import Host, Layout, Survey, laid, surveyed
from reachline.center.xds.resources import EMPTY, Kind, Rendered, Resources, rendered
from reachline.center.xds.shares import Shares
from reachline.errors import LocalProtocolError
from reachline.model import Line, LineId
from reachline.wire.ads import CDS, EDS, LDS, RDS
from reachline.wire.xds_assigned import Assignment, Spot, Told
from reachline.wire.xds_rendering import Api, Entrance, Upstream, api_listener, cluster, listener, routes

__all__ = ["KEPT", "Addresses", "Rendering", "Surveys"]

KEPT: Final = "no line is left that data planes can use: they keep the last ones"
"""Said where a cluster would have become empty."""
Addresses = Mapping[Host, tuple[str, ...]]
"""Of names that were resolved."""
_Value = Upstream | Entrance | Api | Hosts


class Surveys:
    """Of every cluster's lines, for all renderings of one state. Written by their owner."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[LineId, Line], Survey]] = {}

    def of(self, cluster: Cluster) -> Survey:
        """The same object for the same lines: snapshots share what did not change."""
        name = cluster.scope.cluster
        known = self._known.get(name)
        if known is None or known[0] is not cluster.lines:
            known = self._known[name] = (cluster.lines, surveyed(cluster.lines.values()))
        return known[1]

    def keep(self, names: Collection[str]) -> None:
        """Only these clusters are still there."""
        self._known = {name: known for name, known in self._known.items() if name in names}


class _Held:
    """One cluster as it was told last."""

    __slots__ = ("_resolved", "_said", "_shares", "_survey", "assignment", "fault", "is_kept", "layout", "rendered")

    def __init__(self, name: str, *, tells_degraded: bool) -> None:
        self.assignment = Assignment(name)
        self.layout = Layout()
        self.is_kept = False
        self.rendered: Rendered | None = None
        self.fault = ""
        """Why its newest assignment is not told, in words."""
        self._shares = Shares(tells_degraded=tells_degraded)
        self._survey: Survey | None = None
        self._resolved: Addresses = {}
        self._said: tuple[tuple[Spot, ...], list[Told], int] = ((), [], 0)

    def lay(self, survey: Survey, zone: str, addresses: Addresses) -> None:
        """Where the lines are now. A cluster that has lost all its addresses, or all its lines, keeps what it had."""
        resolved = {host: addresses.get(host, ()) for host in survey.hosts}
        if survey is self._survey and resolved == self._resolved:
            return
        self._survey, self._resolved = survey, resolved
        layout = laid(survey, zone, resolved)
        self.is_kept = not layout.spots and bool(self.layout.spots)
        if self.is_kept:
            layout = self.layout._replace(apart=layout.apart)
        # The same spots stay the same object: their pieces are found by it.
        self.layout = layout._replace(spots=self.layout.spots) if layout.spots == self.layout.spots else layout

    def tell(self, now: Cluster) -> Rendered | None:
        """The assignment; the same object where it says the same. One that cannot be is not told, and what was told before stays."""
        told = self._told(now)
        dropped = self._shares.dropped_millionths
        spots, was, before = self._said
        if spots is not self.layout.spots or told != was or dropped != before:
            body = self.assignment.body(self.layout.spots, told, dropped_millionths=dropped)
            self._said = (self.layout.spots, told, dropped)
            try:
                self.rendered, self.fault = rendered(EDS, self.assignment.cluster, body), ""
            except LocalProtocolError as error:
                self.fault = f"its endpoints cannot be told, data planes keep the last ones: {error}"
        return self.rendered

    def _told(self, now: Cluster) -> list[Told]:
        return self._said[1] if self.is_kept else self._shares.told(now, self.layout)


class Rendering:
    """What clients of one kind in one zone are told. Written by its owner."""

    def __init__(self, kind: Kind, zone: str = "", *, logs_access: bool = False) -> None:
        """`logs_access`: proxies are asked to tell each call to the center."""
        self.resources = EMPTY
        self._kind, self._zone, self._logs_access = kind, zone, logs_access
        self._held: dict[str, _Held] = {}
        self._made: dict[tuple[str, str], tuple[_Value, Rendered]] = {}

    def update(
        self, clusters: Mapping[str, Cluster], forms: Mapping[str, Form], surveys: Surveys, addresses: Addresses
    ) -> Resources:
        """The resources as they are now, the same object where nothing differs; `addresses` of names that were resolved.

        LocalProtocolError where they would not fit together: nothing is changed then.
        """
        told = {name: clusters[name] for name in sorted(clusters.keys() & forms.keys())}
        self._held = {name: self._held.get(name) or self._new(name) for name in told}
        for name, held in self._held.items():
            held.lay(surveys.of(told[name]), self._zone, addresses)
        laid = {name: held for name, held in self._held.items() if held.layout.spots}
        assigned = {name: one for name, held in laid.items() if (one := held.tell(told[name])) is not None}
        offered = {name: (forms[name], laid[name].layout) for name in assigned}
        chain = chained(self._kind, offered, logs_access=self._logs_access)
        if found := sorted(faults(chain, offered)):
            raise LocalProtocolError("; ".join(found))
        made = {(one.type_url, one.name): one for one in (*self._chain(chain), *assigned.values())}
        self._made = {key: kept for key, kept in self._made.items() if key in made}
        gone = [
            (type_url, name)
            for type_url, shelf in self.resources.shelves.items()
            for name in shelf.by_name
            if (type_url, name) not in made
        ]
        self.resources = self.resources.replaced(made.values(), gone)
        return self.resources

    def _new(self, name: str) -> _Held:
        # gRPC drops whoever is degraded.
        return _Held(name, tells_degraded=self._kind is not Kind.GRPC)

    def _chain(self, chain: Chain) -> Iterator[Rendered]:
        for name, upstream in chain.upstreams.items():
            yield self._kept(CDS, name, upstream)
        for name, entrance in chain.entrances.items():
            yield self._kept(LDS, name, entrance)
        for name, hosts in chain.routes.items():
            yield self._kept(RDS, name, hosts)

    def _kept(self, type_url: str, name: str, value: _Value) -> Rendered:
        known = self._made.get((type_url, name))
        if known is None or known[0] != value:
            known = self._made[type_url, name] = (value, rendered(type_url, name, _body(name, value)))
        return known[1]

    def encoded(self, name: str) -> int:
        """Pieces of a cluster's assignment made so far."""
        return self._held[name].assignment.encoded

    def layouts(self) -> dict[str, Layout]:
        """Where each cluster's lines are, as these clients are told."""
        return {name: held.layout for name, held in self._held.items()}

    def notes(self) -> dict[str, tuple[str, ...]]:
        """By cluster, in words: what these clients do without, and why."""
        found = {}
        for name, held in self._held.items():
            apart = [f"{line} is not told: {why}" for line, why in held.layout.apart.items()]
            if kept := ([KEPT] if held.is_kept else []) + ([held.fault] if held.fault else []) + apart:
                found[name] = tuple(kept)
        return found


def _body(name: str, value: _Value) -> bytes:
    match value:
        case Upstream():
            return cluster(value)
        case Entrance():
            return listener(value)
        case Api():
            return api_listener(value)
        case _:
            return routes(name, value)
