"""Every audience's resources, kept current: after each publication, document and change of a name. On the owner's loop.

After a start nothing is said before each name was asked for once. Whoever has been told by an earlier start waits for `settled`:
a center that lost its journal knows less than it did, and must not say so to those who know more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple

from reachline.center.board import Board, Cluster
from reachline.center.published import Published
from reachline.center.xds.chain import Form, forms
from reachline.center.xds.layout import Host, Survey
from reachline.center.xds.names import Names
from reachline.center.xds.rendering import Rendering, Surveys
from reachline.center.xds.resources import Audience, Cells, Kind
from reachline.discovery import DnsSettings
from reachline.doors.settings import Document
from reachline.errors import LocalProtocolError
from reachline.model import Health, LineId
from reachline.net.names import Names as Resolver

__all__ = ["SETTLES_MS", "Steering"]

log = logging.getLogger("reachline.center")

SETTLES_MS: Final = 60_000
"""Who knows more serves on meanwhile, but a document whose lines nobody judges, or whose names nobody knows, is obeyed at last:
a minute is twice what a fresh center needs to find a dead line dead by the default preset (three ticks of 5 s after a round)."""
_MOST_GROUPS: Final = 256
"""Kinds times zones of the document that are kept rendered: a mesh has a few dozen. The one told longest ago goes first."""


class _Group(NamedTuple):
    """Audiences that are told the same."""

    kind: Kind
    zone: str
    logs_access: bool


class Steering:
    """All renderings and the cells they go to. Written by the owner's loop."""

    def __init__(
        self,
        board: Board,
        cells: Cells,
        document: Document,
        *,
        rng: Random,
        dns: DnsSettings | None = None,
        resolver: Callable[[], Resolver | None] = lambda: None,
    ) -> None:
        """`dns` and `resolver`: how and where names are asked for, other than as this machine does."""
        self.settled: Published[bool] = Published(False)
        """Whether the center knows as much as any center before it; it stays true."""
        self.names = Names(rng=rng, changed=self.refresh, settings=dns, resolver=resolver)
        self.fault = ""
        """Why the newest state was not rendered, in words."""
        self._board, self._cells = board, cells
        self._began_ms = board.clock()
        self._forms: Mapping[str, Form] = {}
        self._surveys = Surveys()
        self._seen: dict[str, Survey] = {}
        self._zones: frozenset[str] = frozenset()
        """That any line names: asked for each audience whenever one comes."""
        self._renderings: dict[_Group, Rendering] = {}
        self._faults: dict[_Group, str] = {}
        cells.asked = self._asked
        self.follow(document)

    def follow(self, document: Document) -> None:
        """Another document is in force. Clusters that it names anew come to the board with their first tick."""
        self._forms = forms(document)
        self.refresh()

    async def run(self) -> None:
        """Follows names, and settles in time, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.names.run(), name="names")
            left_ms = self._began_ms + SETTLES_MS - self._board.clock()
            await self.settled.changed(within=max(0, left_ms) / 1_000)
            self.refresh()

    def refresh(self) -> None:
        """Whatever the board says now is what every audience is told.

        While a cluster of the document waits for its first tick nothing is: a renamed one would be gone before it is there again.
        """
        if (clusters := self._looked()) is None:
            return
        groups = {audience: self._group(audience) for audience in self._cells.audiences}
        self._render(groups, clusters)
        self._settle(clusters)
        self._publish(groups)

    @property
    def is_ready(self) -> bool:
        """Whether every name was asked for once: what is said without would be less than was known."""
        return self.settled.value or not self.names.pending

    def notes(self) -> dict[str, tuple[str, ...]]:
        """By cluster, in words: what data planes do without, and what is wrong with names."""
        found: dict[str, dict[str, None]] = {}
        for rendering in self._renderings.values():
            for name, said in rendering.notes().items():
                found.setdefault(name, {}).update(dict.fromkeys(said))
        for name, survey in self._seen.items():
            wrong = [self.names.troubles[host] for host in sorted(survey.hosts) if host in self.names.troubles]
            found.setdefault(name, {}).update(dict.fromkeys(wrong))
        return {name: tuple(said) for name, said in found.items() if said}

    def resolved(self) -> dict[LineId, tuple[tuple[str, int], ...]]:
        """Where each line is that data planes may use and that the document gives by name, as far as its name has an address."""
        known = self.names.addresses
        found: dict[LineId, tuple[tuple[str, int], ...]] = {}
        for survey in self._seen.values():
            for line in survey.usable if survey.hosts else ():
                end = line.endpoint
                if hosts := known.get(Host(end.host, end.family)):
                    found[line.id] = tuple((host, end.port) for host in hosts)
        return found

    # -- one's own ----------------------------------------------------------------------------------------------

    def _rendering(self, group: _Group) -> Rendering:
        """Kept also while nobody is told: who comes back finds what it had."""
        found = self._renderings.pop(group, None) or Rendering(group.kind, group.zone, logs_access=group.logs_access)
        self._renderings[group] = found
        while len(self._renderings) > _MOST_GROUPS:
            self._faults.pop(first := next(iter(self._renderings)), None)
            del self._renderings[first]
        return found

    def _clusters(self) -> dict[str, Cluster]:
        return {name: cell.value for name, cell in self._board.clusters.items()}

    def _group(self, audience: Audience) -> _Group:
        """Zones that no line names are told as none is: how many there are is for the document to say, not for clients."""
        zone = audience.locality.zone
        is_known = zone in self._zones
        kind = Kind.ENVOY if audience.kind is Kind.OWN else audience.kind
        return _Group(kind, zone if is_known else "", audience.logs_access)

    def _asked(self, audience: Audience) -> None:
        """One more audience: the others have what they are told."""
        if (clusters := self._looked()) is not None:
            groups = {audience: self._group(audience)}
            self._render(groups, clusters)
            self._publish(groups)

    def _looked(self) -> Mapping[str, Cluster] | None:
        """The clusters as they are now; None while nothing is to be said of them."""
        clusters = self._clusters()
        if not self._forms.keys() <= clusters.keys():
            return None
        self._surveys.keep(clusters)
        self._seen = {name: self._surveys.of(cluster) for name, cluster in clusters.items() if name in self._forms}
        self._zones = frozenset().union(*(survey.zones for survey in self._seen.values()))
        self.names.want(host for survey in self._seen.values() for host in survey.hosts)
        return clusters if self.is_ready else None

    def _render(self, groups: Mapping[Audience, _Group], clusters: Mapping[str, Cluster]) -> None:
        """Of a group whose resources do not fit together nothing new is told; the others go on."""
        for group in dict.fromkeys(groups.values()):
            self._faults.pop(group, None)
            try:
                self._rendering(group).update(clusters, self._forms, self._surveys, self.names.addresses)
            except LocalProtocolError as error:
                self._faults[group] = str(error)
        told = {*map(self._group, self._cells.audiences)}
        faults = list(dict.fromkeys(fault for group, fault in self._faults.items() if group in told))
        if left := len(told - self._renderings.keys()):
            faults.append(f"{left} more kinds of clients in zones than the {_MOST_GROUPS} that are told at once")
        self._failed("; ".join(faults))

    def _publish(self, groups: Mapping[Audience, _Group]) -> None:
        for audience, group in groups.items():
            if group in self._renderings and group not in self._faults:
                self._cells.publish(audience, self._renderings[group].resources)

    def _settle(self, clusters: Mapping[str, Cluster]) -> None:
        if self.settled.value:
            return
        is_late = self._board.clock() - self._began_ms >= SETTLES_MS
        if is_late or (not self.names.troubles and all(map(_is_judged, clusters.values()))):
            log.info("xds_settled", extra={"late": is_late})
            self.settled.replace(True)

    def _failed(self, fault: str) -> None:
        """What is wrong now; empty: nothing any more."""
        if fault and fault != self.fault:
            log.error("xds_not_rendered", extra={"fault": fault})
        self.fault = fault


def _is_judged(cluster: Cluster) -> bool:
    """Whether something is known of every line."""
    return all(standing.health is not Health.UNKNOWN for standing in cluster.snapshot.standings)
