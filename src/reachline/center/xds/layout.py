"""A cluster's lines as data planes find them: each endpoint a locality of its own. Pure; knows no protobuf.

Data planes know no origin: of lines that lead to one endpoint they are told as one, named after the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from reachline.doors.listening import SECURED, why_apart
from reachline.members import Address, are_ipv4, is_numeric
from reachline.model import Line, LineId
from reachline.wire.xds_assigned import Spot

__all__ = ["Host", "Layout", "Survey", "laid", "surveyed"]

_UNKNOWN: Final = "its name has no address yet"
_TAKEN: Final = "its name leads where another line leads"


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


class Survey(NamedTuple):
    """What a cluster's lines have in common for all audiences; made once for each set of lines."""

    usable: tuple[Line, ...] = ()
    apart: Mapping[LineId, str] = {}
    """Lines that no data plane can use, and why."""
    hosts: frozenset[Host] = frozenset()
    """The names that must be resolved."""
    zones: frozenset[str] = frozenset()
    """Where lines are seen from, as far as they say."""
    schemes: frozenset[str] = frozenset()


def surveyed(lines: Iterable[Line]) -> Survey:
    """The lines in the order given."""
    usable: list[Line] = []
    apart: dict[LineId, str] = {}
    for line in lines:
        endpoint = line.endpoint
        if why := why_apart(endpoint, line.outbound):
            apart[line.id] = why
            continue
        usable.append(line)
    endpoints = [line.endpoint for line in usable]
    schemes = {endpoint.scheme for endpoint in endpoints}
    hosts: set[Host] = set()
    if not are_ipv4([each.host for each in endpoints]):
        hosts = {Host(each.host, each.family) for each in endpoints if not is_numeric(each.host)}
    zones = {line.origin for line in usable} - {""}
    return Survey(tuple(usable), apart, frozenset(hosts), frozenset(zones), frozenset(schemes))


def laid(survey: Survey, zone: str, addresses: Mapping[Host, tuple[str, ...]]) -> Layout:
    """The cluster for clients of `zone`: lines seen from there and those seen from anywhere; where there are none, all."""
    lines: Iterable[Line] = survey.usable
    if survey.zones:
        lines = [line for line in lines if line.origin in {"", zone}] or lines
    if not survey.hosts and survey.schemes.isdisjoint(SECURED):
        return Layout(*_plain(lines), survey.apart, survey.schemes)
    firsts: dict[tuple[str, int, int], Line] = {}
    others: dict[LineId, list[LineId]] = {}
    for line in lines:
        endpoint = line.endpoint
        first = firsts.setdefault((endpoint.host, endpoint.port, endpoint.family), line)
        if first is not line:
            others.setdefault(first.id, []).append(line.id)
    spots, apart = _spots(firsts.values(), addresses, frozenset(host.name for host in survey.hosts))
    rows = [line.id for line in firsts.values() if line.id not in apart]
    found = [(line, *others.get(line, ())) for line in rows] if others else [(line,) for line in rows]
    return Layout(tuple(spots), tuple(found), {**survey.apart, **apart}, survey.schemes)


def _plain(lines: Iterable[Line]) -> tuple[tuple[Spot, ...], tuple[tuple[LineId, ...], ...]]:
    """Spots, and whose weights each gets, where nothing is to be said of lines but their addresses: most clusters, and large ones."""
    known: dict[Address, int] = {}
    spots: list[Spot] = []
    rows: list[tuple[LineId, ...]] = []
    new = tuple.__new__  # half of what a NamedTuple's own costs
    for line in lines:
        endpoint, name = line.endpoint, line.id
        address = new(Address, (endpoint.host, endpoint.port))
        at = known.setdefault(address, len(rows))
        if at < len(rows):
            rows[at] = (*rows[at], name)
            continue
        rows.append((name,))
        spots.append(new(Spot, (name.partition("/")[2], (address,), line.region, line.origin, "", False)))
    return tuple(spots), tuple(rows)


def _spots(
    lines: Iterable[Line], addresses: Mapping[Host, tuple[str, ...]], names: frozenset[str]
) -> tuple[list[Spot], dict[LineId, str]]:
    """Spots of lines, and lines that have none. An address that two names give is the first one's: data planes want each once."""
    taken: set[Address] = set()
    spots, apart = [], {}
    for line in lines:
        endpoint = line.endpoint
        host, is_secured, name = endpoint.host, endpoint.scheme in SECURED, line.id.partition("/")[2]
        known = addresses.get(Host(host, endpoint.family), ()) if host in names else (host,)
        each = tuple([at for text in known if (at := Address(text, endpoint.port)) not in taken])
        if not each:
            apart[line.id] = _TAKEN if known else _UNKNOWN
            continue
        taken.update(each)
        hostname = host if is_secured or host in names else ""
        spots.append(Spot(name, each, line.region, line.origin, hostname, is_secured))
    return spots, apart
