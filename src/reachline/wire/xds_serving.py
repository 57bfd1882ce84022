"""The control plane's xDS messages: requests in as values, answers out as bytes put together from bodies made once.

Answers are spliced, not serialised: a body stands in them as it was rendered, and only the nonce is a stream's own.
Needs the extra `xds`, and is imported only where it is used.
"""

from __future__ import annotations

from typing import Any, Final

try:
    from envoy.service.discovery.v3 import discovery_pb2
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
except ImportError as missing:
    raise ImportError(
        f"serving xDS needs the extra `xds`: pip install 'reachline[xds]' (no module {missing.name})"
    ) from missing

from reachline.errors import RemoteProtocolError
from reachline.model import Locality
from reachline.wire.ads import DeltaRequest, Request
from reachline.wire.ads_serving import Answer
from reachline.wire.resources import Rendered
from reachline.wire.xds import Node

__all__ = ["Splicer", "read", "read_delta"]

_TEXT_MOST: Final = 256
"""Characters of what a client says of itself that are kept."""
_METADATA_MOST: Final = 16 << 10
"""Bytes of a node's metadata that are read: a mesh's sidecars send about two kilobytes."""


def read(data: bytes) -> tuple[Request, Node | None]:
    """A SotW request, and who asks where it says so; RemoteProtocolError where it is none."""
    message = _parsed(discovery_pb2.DiscoveryRequest, data)
    request = Request(
        message.type_url,
        tuple(message.resource_names),
        message.version_info,
        message.response_nonce,
        _error(message),
        message.HasField("node"),
    )
    return request, _node(message)


def read_delta(data: bytes) -> tuple[DeltaRequest, Node | None]:
    """A delta request, and who asks where it says so; RemoteProtocolError where it is none."""
    message = _parsed(discovery_pb2.DeltaDiscoveryRequest, data)
    request = DeltaRequest(
        message.type_url,
        tuple(message.resource_names_subscribe),
        tuple(message.resource_names_unsubscribe),
        dict(message.initial_resource_versions),
        message.response_nonce,
        _error(message),
        message.HasField("node"),
    )
    return request, _node(message)


def _parsed(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"{kind.DESCRIPTOR.name} cannot be read: {error}") from error


def _error(message: Any) -> str:
    """The reason of a NACK. One without words is one too: only that it is there counts."""
    if not message.HasField("error_detail"):
        return ""
    return message.error_detail.message or f"no reason given (code {message.error_detail.code})"


def _node(message: Any) -> Node | None:
    if not message.HasField("node"):
        return None
    said = message.node
    where = said.locality
    return Node(
        id=said.id[:_TEXT_MOST],
        cluster=said.cluster[:_TEXT_MOST],
        locality=Locality(
            region=where.region[:_TEXT_MOST], zone=where.zone[:_TEXT_MOST], sub_zone=where.sub_zone[:_TEXT_MOST]
        ),
        metadata=_metadata(said),
        user_agent=said.user_agent_name[:_TEXT_MOST],
        version=_version(said)[:_TEXT_MOST],
    )


def _metadata(said: Any) -> dict[str, object] | None:
    if not said.HasField("metadata") or said.metadata.ByteSize() > _METADATA_MOST:
        return None
    try:
        return dict(json_format.MessageToDict(said.metadata))
    except (json_format.Error, ValueError, RecursionError):
        return None  # e.g. a number that JSON has no word for


def _version(said: Any) -> str:
    if said.WhichOneof("user_agent_version_type") != "user_agent_build_version":
        return str(said.user_agent_version)
    number = said.user_agent_build_version.version
    return f"{number.major_number}.{number.minor_number}.{number.patch}"


# Answers. Field numbers are those of DiscoveryResponse and DeltaDiscoveryResponse (envoy/service/discovery/v3/discovery.proto).


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, value: bytes) -> bytes:
    return b"".join((_head(number, len(value)), value)) if value else b""


def _head(number: int, size: int) -> bytes:
    """Of a field of bytes."""
    return _varint(number << 3 | 2) + _varint(size)


def _sotw(one: Rendered) -> tuple[bytes, ...]:
    """`resources` (2): an Any."""
    url = _field(1, one.type_url.encode())
    head = _head(2, len(one.body))
    return _head(2, len(url) + len(head) + len(one.body)), url, head, one.body


def _delta(one: Rendered) -> tuple[bytes, ...]:
    """`resources` (2): a Resource {version 1, resource 2: Any, name 3}."""
    url = _field(1, one.type_url.encode())
    head = _head(2, len(one.body))
    any_ = len(url) + len(head) + len(one.body)
    before = _field(1, one.version.encode()) + _head(2, any_)
    name = _field(3, one.name.encode())
    return _head(2, len(before) + any_ + len(name)), before, url, head, one.body, name


class Splicer:
    """Answers as bytes; those of the same resources are put together once for all streams. On one loop."""

    _KEPT: Final = 16
    """Answers: each type in both variants, for the few audiences that are told at once."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[Answer, bytes]] = {}
        self._last: tuple[Answer, bytes] | None = None

    def bytes_of(self, answer: Answer) -> bytes:
        """The answer's message, of the variant it is of; the same object again for who is told the same by the same nonce."""
        last = self._last
        if last is not None and last[0] == answer:
            return last[1]
        # Resources are told apart as objects; the kept answer keeps them, so that no other object gets an id of theirs.
        key = (answer.is_delta, answer.version, answer.type_url, answer.removed, *map(id, answer.resources))
        if (kept := self._made.get(key)) is None:
            kept = self._made[key] = answer, _spliced(answer)
            while len(self._made) > self._KEPT:
                del self._made[next(iter(self._made))]
        message = kept[1] + _field(5, answer.nonce.encode())
        self._last = answer, message
        return message


def _spliced(answer: Answer) -> bytes:
    """All but the nonce."""
    one = _delta if answer.is_delta else _sotw
    parts = [_field(1, answer.version.encode()), *(part for each in answer.resources for part in one(each))]
    parts.append(_field(4, answer.type_url.encode()))
    parts += [_field(6, name.encode()) for name in answer.removed]
    return b"".join(parts)
