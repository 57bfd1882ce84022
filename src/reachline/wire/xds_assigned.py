"""Assignments as xDS messages' bytes. Values in, bytes out; knows no snapshot and no stream.

An assignment is kept in pieces: its bytes are those of its localities one after the other, as protobuf has it. Of a locality of one
address, which most are, all that changes stands at its end and has one length: whatever is said of 10 000 lines, two lists are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

try:
    from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
    from envoy.type.v3 import percent_pb2
except ImportError as missing:
    raise ImportError(
        f"xDS needs the extra `xds`: pip install 'reachline[xds]' (no module {missing.name})"
    ) from missing

from reachline.members import Address
from reachline.model import Health

__all__ = ["FINE", "WEIGHTS_MOST", "Assignment", "Spot", "Told", "said"]

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
_WIDE: Final = 5
"""Bytes of a weight: 32 bits, seven in each."""
_TAIL: Final = 2 + 2 * (3 + _WIDE)
"""Bytes of `Told.tail`."""


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
    """What is said of a spot at a moment; made by `said`. `weight` 0: nothing is sent there."""

    weight: int
    health: Health
    tail: bytes
    """The end of a locality of one address."""


def said(weight: int, health: Health = Health.HEALTHY) -> Told:
    """What is said, with its bytes: make it once for all spots of which it is."""
    share, number = _wide((weight or 1) * FINE), _wide(weight or 1)  # 0 is no weight of xDS
    # LbEndpoint {health_status 2, load_balancing_weight 4}, and LocalityLbEndpoints {load_balancing_weight 3}.
    tail = b"\x10%c\x22%c\x08%b\x1a%c\x08%b" % (health.value, 1 + _WIDE, share, 1 + _WIDE, number)
    return Told(weight, health, tail)


def _wide(number: int) -> bytes:
    """As protobuf writes numbers, in five bytes whatever its size: readers take what is longer than it must be."""
    return bytes(
        [number >> shift & 0x7F | (0x80 if shift < 7 * (_WIDE - 1) else 0) for shift in range(0, 7 * _WIDE, 7)]
    )


class Assignment:
    """One cluster's endpoints for one audience, kept in pieces. Written by one owner."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.encoded = 0
        """Pieces made so far."""
        self._spots: tuple[Spot, ...] = ()
        self._told: Sequence[Told] = ()
        self._pieces: list[bytes] = []
        self._whole: list[int] = []
        """Places of localities that are made whole: of several addresses, or found by a name."""
        self._heads: dict[int, bytes] = {}
        self._mould = _Mould()

    def body(self, spots: tuple[Spot, ...], told: Sequence[Told], *, dropped_millionths: int = 0) -> bytes:
        """The message's bytes, `told` in the order of `spots`."""
        if spots is not self._spots:
            begun, known = self._begun, dict(zip(self._spots, self._pieces, strict=True))
            self._whole = [at for at, spot in enumerate(spots) if spot.hostname or len(spot.addresses) > 1]
            self._pieces = [known.get(spot) or begun(spot) for spot in spots] if known else list(map(begun, spots))
        for at in self._whole:
            if spots is not self._spots or self._told[at] != told[at]:
                self._pieces[at] = self._made(spots[at], told[at])
        self._spots, self._told = spots, told
        parts = [b""] * (2 * len(spots))
        parts[::2] = self._pieces
        parts[1::2] = [each.tail for each in told]
        for at in self._whole:
            parts[2 * at + 1] = b""
        return b"".join((self._head(dropped_millionths), *parts))

    def _begun(self, spot: Spot) -> bytes:
        """All of a locality that does not depend on what is said of it."""
        if spot.hostname or len(spot.addresses) > 1:
            return b""
        self.encoded += 1
        body = self._mould.poured(spot)
        size = len(body) + _TAIL
        return b"\x12%c%b" % (size, body) if size < _ONE_BYTE else _long(body, size)

    def _made(self, spot: Spot, told: Told) -> bytes:
        self.encoded += 1
        body = _general(spot, told)
        return _long(body, len(body))

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


def _long(body: bytes, size: int) -> bytes:
    """A locality's bytes, or their beginning, after tag and length."""
    return b"".join((_PIECE, _varint(size), body))


class _Mould:
    """A locality of one address, set anew for each spot; what most have in common is set when it differs only.

    Looking a field up and setting it are most of a piece's cost: this way it costs a third.
    """

    def __init__(self) -> None:
        group = endpoint_components_pb2.LocalityLbEndpoints()
        self._locality = group.locality
        endpoint = group.lb_endpoints.add()
        self._socket = endpoint.endpoint.address.socket_address
        # Placeholders of the tail's length, for the lengths around it.
        endpoint.health_status = Health.HEALTHY.value
        endpoint.load_balancing_weight.value = group.load_balancing_weight.value = 2**32 - 1
        self._region = self._zone = ""
        self._bytes = group.SerializeToString

    def poured(self, spot: Spot) -> bytes:
        """Of a spot with one address and no name, without its tail."""
        name, ((self._socket.address, self._socket.port_value),), region, zone, _, _ = spot
        if region != self._region:
            self._locality.region = self._region = region
        if zone != self._zone:
            self._locality.zone = self._zone = zone
        self._locality.sub_zone = name
        return bytes(self._bytes()[:-_TAIL])


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
