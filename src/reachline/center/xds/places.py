"""Which line an endpoint or a locality of a data plane is. Pure; made anew where lines or their addresses change."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from reachline.doors.listening import why_apart
from reachline.doors.outbounds import DIRECT
from reachline.model import Line, LineId, Locality

__all__ = ["Addresses", "Places", "Where", "addresses_of"]

Where = tuple[str, str, int]
"""Cluster, address and port."""
Addresses = Mapping[LineId, Sequence[tuple[str, int]]]
_NONE: Final[Addresses] = MappingProxyType({})
_MOST_ZONES: Final = 256
"""Views kept, one for each zone that a data plane says it stands in: a mesh has a few dozen."""


def addresses_of(line: Line, resolved: Addresses = _NONE) -> tuple[tuple[str, int], ...]:
    """Where a line is reached without an agent: its own address, or those its name was resolved to; empty where by neither.

    A line that data planes are not told of, by way of a proxy or from an address of an agent's, is reached by agents and SDKs only.
    Addresses are written as Envoy writes them.
    """
    if line.outbound != DIRECT and why_apart(line.endpoint, line.outbound):
        return ()
    if line.id in resolved:
        return tuple(resolved[line.id])
    try:
        return ((str(ipaddress.ip_address(line.endpoint.host)), line.endpoint.port),)
    except ValueError:
        return ()


class Places:
    """The lines of all clusters by where they are."""

    def __init__(self, lines: Iterable[Line], resolved: Addresses = _NONE) -> None:
        self._lines = tuple(lines)
        self._ids = frozenset(line.id for line in self._lines)
        self._resolved = resolved
        self._at: Addresses | None = None
        self._known: dict[str, Mapping[Where, LineId]] = {}

    def seen_from(self, zone: str) -> Mapping[Where, LineId]:
        """Lines by their addresses as seen from a zone. An address of two lines of a cluster is the first one's, as data planes are told."""
        if zone not in self._known:
            if len(self._known) >= _MOST_ZONES:
                self._known.clear()
            self._known[zone] = self._view(zone)
        return self._known[zone]

    def addresses(self) -> Addresses:
        """Of all lines that are reached without an agent."""
        if self._at is None:
            found = ((line.id, addresses_of(line, self._resolved)) for line in self._lines)
            self._at = {line: at for line, at in found if at}
        return self._at

    def named(self, cluster: str, locality: Locality, zone: str) -> LineId | None:
        """The line that a locality of our own assignments is, for a data plane in `zone`; None for any other locality."""
        name = locality.sub_zone
        start = f"{cluster}/"
        for id_ in (name, f"{start}{name}", f"{start}{name}@{zone}"):
            if id_.startswith(start) and id_ in self._ids:
                return LineId(id_)
        return None

    def _view(self, zone: str) -> Mapping[Where, LineId]:
        found: dict[Where, LineId] = {}
        known = self.addresses()
        for line in self._lines:
            if line.origin in {"", zone}:
                for address, port in known.get(line.id, ()):
                    found.setdefault((line.scope.cluster, address, port), line.id)
        return found
