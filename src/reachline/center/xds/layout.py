"""A cluster's lines as data planes find them: each endpoint a locality of its own. Pure; knows no protobuf.

Data planes know no origin: of lines that lead to one endpoint they are told as one, named after the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reachline.doors.listening import SECURED, why_apart
from reachline.members import Address, is_numeric
from reachline.model import Line, LineId
from reachline.wire.xds_assigned import Spot

__all__ = ["Host", "Layout", "hosts_of", "laid", "seen_from", "zones_of"]

_UNKNOWN = "its name has no address yet"


class Host(NamedTuple):
    """A name to be resolved; `family` 4, 6, or 0 for whichever it has."""

    name: str
    family: int = 0


class Layout(NamedTuple):
    """Where one audience finds a cluster."""

    spots: tuple[Spot, ...] = ()
    lines: tuple[tuple[LineId, ...], ...] = ()
    """Of each spot: whose weights it gets."""
    apart: Mapping[LineId, str] = {}
    """Lines that are left out, and why."""
    schemes: frozenset[str] = frozenset()

    @property
    def at(self) -> dict[Address, LineId]:
        """Which line an address belongs to."""
        rows = zip(self.spots, self.lines, strict=True)
        return {address: lines[0] for spot, lines in rows for address in spot.addresses}


def zones_of(lines: Iterable[Line]) -> frozenset[str]:
    """Where lines are seen from, as far as they say."""
    return frozenset(line.origin for line in lines if line.origin)


def seen_from(lines: Iterable[Line], zone: str) -> list[Line]:
    """The lines that concern clients of a zone: those seen from there and those seen from anywhere; where there are none, all."""
    every = list(lines)
    return [line for line in every if line.origin in {"", zone}] or every


def hosts_of(lines: Iterable[Line]) -> frozenset[Host]:
    """The names that must be resolved before these lines can be told."""
    return frozenset(
        Host(line.endpoint.host, line.endpoint.family)
        for line in lines
        if not is_numeric(line.endpoint.host) and not why_apart(line.endpoint, line.outbound)
    )


def laid(lines: Iterable[Line], zone: str, addresses: Mapping[Host, tuple[str, ...]]) -> Layout:
    """The cluster for clients of `zone`, lines in the order given."""
    groups: dict[tuple[str, int, int], list[Line]] = {}
    apart: dict[LineId, str] = {}
    for line in seen_from(lines, zone):
        if why := why_apart(line.endpoint, line.outbound):
            apart[line.id] = why
            continue
        endpoint = line.endpoint
        key = (endpoint.host, endpoint.port, endpoint.family)
        if (group := groups.get(key)) is None:
            groups[key] = [line]
        else:
            group.append(line)
    spots, found, taken = [], [], set[Address]()
    for (host, port, _), group in groups.items():
        each = [at for text in _resolved(group[0], addresses) if (at := Address(text, port)) not in taken]
        if not each:
            apart.update({line.id: _UNKNOWN for line in group})
            continue
        taken.update(each)
        spots.append(_spot(group[0], host, tuple(each)))
        found.append(tuple([line.id for line in group]))
    schemes = frozenset(group[0].endpoint.scheme for group in groups.values())
    return Layout(tuple(spots), tuple(found), apart, schemes)


def _resolved(line: Line, addresses: Mapping[Host, tuple[str, ...]]) -> tuple[str, ...]:
    """An address that two names give is the first one's: data planes want each once."""
    endpoint = line.endpoint
    if is_numeric(endpoint.host):
        return (endpoint.host,)
    return addresses.get(Host(endpoint.host, endpoint.family), ())


def _spot(line: Line, host: str, addresses: tuple[Address, ...]) -> Spot:
    is_secured = line.endpoint.scheme in SECURED
    hostname = host if is_secured or host != addresses[0].host else ""
    return Spot(line.id.partition("/")[2], addresses, line.region, line.origin, hostname, is_secured)
