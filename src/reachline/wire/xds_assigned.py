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
_OF_ENDPOINT: Final = 2 + 3 + _WIDE
"""Bytes of `Told.tail` that belong to the endpoint."""
_TAIL: Final = _OF_ENDPOINT + 3 + _WIDE
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

    def body(self, spots: tuple[Spot, ...], told: Sequence[Told], *, dropped_millionths: int = 0) -> bytes:
        """The message's bytes, `told` in the order of `spots`."""
        if spots is not self._spots:
            known = dict(zip(self._spots, self._pieces, strict=True))
            new = [spot for spot in spots if spot not in known] if known else spots
            begun = _begun(new)
            self.encoded += len(begun) - begun.count(b"")
            self._whole = [at for at, spot in enumerate(spots) if spot.hostname or len(spot.addresses) > 1]
            if known:
                known.update(zip(new, begun, strict=True))
                begun = [known[spot] for spot in spots]
            self._pieces = begun
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

    def _made(self, spot: Spot, told: Told) -> bytes:
        self.encoded += 1
        body = _general(spot, told)
        return _sized(_PIECE, body)

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


def _begun(spots: Sequence[Spot]) -> list[bytes]:
    """Of each spot all of its locality that does not depend on what is said of it; nothing of those that are made whole.

    By hand, for setting a message's fields costs three times as much. Of LocalityLbEndpoints these are {locality 1: {region 1, zone 2,
    sub_zone 3}, lb_endpoints 2: {endpoint 1: {address 1: {socket_address 1: {address 2, port_value 3}}}}}.
    """
    found: list[bytes] = []
    add = found.append
    ports: dict[int, bytes] = {}
    fronts: dict[tuple[int, int, int], tuple[bytes, bytes]] = {}
    region = zone = where = None
    for name, addresses, in_region, in_zone, hostname, _ in spots:
        if hostname or len(addresses) > 1:
            add(b"")
            continue
        if in_region != region or in_zone != zone or where is None:
            region, zone = in_region, in_zone
            where = _text(b"\x0a", region) + _text(b"\x12", zone)
            fronts = {}
        ((text, number),) = addresses
        if (port := ports.get(number)) is None:
            port = ports[number] = b"\x18" + _varint(number)
        sub_zone, host = name.encode(), text.encode()
        lengths = len(sub_zone), len(host), len(port)
        if (front := fronts.get(lengths)) is None:
            front = fronts[lengths] = _fronts(where, *lengths)
        add(b"".join((front[0], sub_zone, front[1], host, port)))
    return found


def _fronts(where: bytes, sub_zone: int, host: int, port: int) -> tuple[bytes, bytes]:
    """What stands before a locality's sub-zone, and before its address, where these (and its port) have so many bytes."""
    sub_zones = (b"\x1a" + _varint(sub_zone)) if sub_zone else b""
    locality = where + sub_zones
    around = b"\x12" + _varint(host)
    for _ in range(3):
        around = _before(b"\x0a", around, host + port)
    around = b"\x12" + _varint(len(around) + host + port + _OF_ENDPOINT) + around
    front = _before(b"\x0a", locality, sub_zone)
    return _before(_PIECE, front, sub_zone + len(around) + host + port + _TAIL), around


def _before(tag: bytes, begins: bytes, more: int) -> bytes:
    """The beginning of a field whose value has `more` bytes after it."""
    return tag + _varint(len(begins) + more) + begins


def _sized(tag: bytes, body: bytes) -> bytes:
    return b"".join((tag, _varint(len(body)), body))


def _text(tag: bytes, text: str) -> bytes:
    return _sized(tag, text.encode()) if text else b""


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
