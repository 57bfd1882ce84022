"""Assignments as xDS messages' bytes. Values in, bytes out; knows no snapshot and no stream.

An assignment is kept in pieces, one a locality: its bytes are those of its pieces one after the other, as protobuf has it, so that
a change costs what changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

try:
    from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
    from envoy.type.v3 import percent_pb2
except ImportError as missing:
    raise ImportError(
        f"xDS needs the extra `xds`: pip install 'reachline[xds]' ({missing.name} is missing)"
    ) from missing

from reachline.members import Address
from reachline.model import Health

__all__ = ["FINE", "WEIGHTS_MOST", "Assignment", "Spot", "Told"]

FINE: Final = 60
"""Parts of a locality's weight: those of two to six addresses of one line are whole numbers."""
WEIGHTS_MOST: Final = (2**32 - 1) // FINE
"""What the weights of one assignment may sum to: Envoy refuses sums of localities, and of endpoints, above 2**32 - 1."""
_MATCH: Final = "envoy.transport_socket_match"
_NO_OVERPROVISIONING: Final = 100
"""Percent: degraded lines get their own share, no less. At Envoy's 140 the healthy ones would take over up to 2/7 of it."""
_PIECE: Final = b"\x12"
"""Tag of `ClusterLoadAssignment.endpoints` (2, length-delimited)."""
_ONE_BYTE: Final = 0x80
"""Lengths below it are one byte."""


class Spot(NamedTuple):
    """One line as a data plane finds it: a locality of its own. `name` is unique in its cluster."""

    name: str
    addresses: tuple[Address, ...]
    region: str = ""
    zone: str = ""
    hostname: str = ""
    """The name it was found by, empty where the line names an address."""
    is_secured: bool = False
    """Whether TLS is spoken to it. Its `hostname` is what its certificate must name, an address where it has no name."""


class Told(NamedTuple):
    """What is said of a spot at a moment. `weight` 0: nothing is sent there."""

    weight: int
    health: Health = Health.HEALTHY


class Assignment:
    """One cluster's endpoints for one audience, kept in pieces. Written by one owner.

    Who says the same of a spot again should say it by the same `Told`: these are compared by identity.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.encoded = 0
        """Pieces made so far."""
        self._spots: tuple[Spot, ...] = ()
        self._told: Sequence[Told] = ()
        self._pieces: list[bytes] = []
        self._heads: dict[int, bytes] = {}
        self._mould = _Mould()

    def body(self, spots: tuple[Spot, ...], told: Sequence[Told], *, dropped_millionths: int = 0) -> bytes:
        """The message's bytes, `told` in the order of `spots`."""
        if spots is self._spots:
            for at, (was, now) in enumerate(zip(self._told, told, strict=True)):
                if was is not now:
                    self._pieces[at] = self._piece(spots[at], now)
        elif self._spots:
            kept = zip(self._spots, self._told, self._pieces, strict=True)
            known = {spot: (was, piece) for spot, was, piece in kept}
            self._pieces = [self._kept(spot, now, known) for spot, now in zip(spots, told, strict=True)]
        else:
            self._pieces = list(map(self._piece, spots, told))
        self._spots, self._told = spots, told
        return b"".join((self._head(dropped_millionths), *self._pieces))

    def _kept(self, spot: Spot, told: Told, known: dict[Spot, tuple[Told, bytes]]) -> bytes:
        found = known.get(spot)
        if found is not None and found[0] == told:
            return found[1]
        return self._piece(spot, told)

    def _piece(self, spot: Spot, told: Told) -> bytes:
        """One locality's bytes with their tag and length."""
        self.encoded += 1
        is_named = spot.hostname or len(spot.addresses) > 1
        body = _general(spot, told) if is_named else self._mould.poured(spot, told)
        size = len(body)
        return b"\x12%c%b" % (size, body) if size < _ONE_BYTE else b"".join((_PIECE, _varint(size), body))

    def _head(self, dropped_millionths: int) -> bytes:
        """All but the endpoints."""
        if (found := self._heads.get(dropped_millionths)) is not None:
            return found
        message = endpoint_pb2.ClusterLoadAssignment(cluster_name=self.cluster)
        message.policy.overprovisioning_factor.value = _NO_OVERPROVISIONING
        message.policy.weighted_priority_health = True
        if dropped_millionths:
            drop = message.policy.drop_overloads.add(category="priority.shed")
            drop.drop_percentage.numerator = dropped_millionths
            drop.drop_percentage.denominator = percent_pb2.FractionalPercent.MILLION
        self._heads = {dropped_millionths: message.SerializeToString(deterministic=True)}
        return self._heads[dropped_millionths]


class _Mould:
    """A locality of one address, set anew for each spot; what most have in common is set when it differs only.

    Looking a field up and setting it are most of a piece's cost: this way it costs half as much.
    """

    def __init__(self) -> None:
        group = endpoint_components_pb2.LocalityLbEndpoints()
        self._locality, self._weight = group.locality, group.load_balancing_weight
        self._endpoint = group.lb_endpoints.add()
        self._socket = self._endpoint.endpoint.address.socket_address
        self._share = self._endpoint.load_balancing_weight
        self._health: Health | None = None
        self._region = self._zone = ""
        self._bytes = group.SerializeToString

    def poured(self, spot: Spot, told: Told) -> bytes:
        """Of a spot with one address and no name."""
        name, ((self._socket.address, self._socket.port_value),), region, zone, _, _ = spot
        weight, health = told
        if health is not self._health:
            self._endpoint.health_status, self._health = health.value, health
        if region != self._region:
            self._locality.region = self._region = region
        if zone != self._zone:
            self._locality.zone = self._zone = zone
        self._locality.sub_zone = name
        self._weight.value = weight or 1
        self._share.value = (weight or 1) * FINE
        return bytes(self._bytes())


def _general(spot: Spot, told: Told) -> bytes:
    group = endpoint_components_pb2.LocalityLbEndpoints()
    locality = group.locality
    locality.region, locality.zone, locality.sub_zone = spot.region, spot.zone, spot.name
    weight = told.weight or 1  # nothing goes to what is unhealthy, and 0 is no weight of xDS
    group.load_balancing_weight.value = weight
    for host, port in spot.addresses:
        each = group.lb_endpoints.add()
        socket = each.endpoint.address.socket_address
        socket.address, socket.port_value = host, port
        each.endpoint.hostname = spot.hostname
        each.health_status = told.health.value
        each.load_balancing_weight.value = max(1, weight * FINE // len(spot.addresses))
        if spot.is_secured:
            each.metadata.filter_metadata[_MATCH].fields["tls"].string_value = spot.hostname
    return bytes(group.SerializeToString())


def _varint(number: int) -> bytes:
    """As protobuf writes lengths: seven bits a byte, the lowest first."""
    found = bytearray()
    while number >= _ONE_BYTE:
        found.append(number % _ONE_BYTE | _ONE_BYTE)
        number //= _ONE_BYTE
    found.append(number)
    return bytes(found)
