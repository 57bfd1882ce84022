"""Who a data plane says it is, and where an endpoint it names stands: what `wire.hds`, `wire.lrs` and `wire.als` have in common.

Knows protobuf, like they do: needs the extra `xds`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

try:
    from google.protobuf.message import DecodeError
except ImportError as missing:
    raise ImportError(
        f"xDS needs the extra `xds`: pip install 'reachline[xds]' (no module {missing.name})"
    ) from missing

from reachline.errors import RemoteProtocolError
from reachline.model import Locality

__all__ = ["LONGEST", "Teller", "locality_of", "microseconds", "read", "teller_of"]

LONGEST: Final = 120
"""Characters of a node's id: as of an agent's, for it stands in the same places."""
_LONGEST_TEXT: Final = 300
"""Characters of any other text of a node."""


@dataclass(frozen=True, slots=True)
class Teller:
    """The node that speaks on a stream."""

    id: str
    cluster: str = ""
    locality: Locality = Locality()
    user_agent: str = ""
    """Envoy's is `envoy`, gRPC's begins with `gRPC`."""
    version: str = ""
    token: str = field(default="", repr=False)
    """From its metadata, for clients that can send none beside the stream (gRPC)."""

    @property
    def release(self) -> str:
        """What it is, for people: `envoy 1.40.0`."""
        return " ".join(filter(None, (self.user_agent or "unknown", self.version)))


def read(kind: Any, data: bytes) -> Any:
    """The message in `data`; RemoteProtocolError where it is none."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"malformed {kind.DESCRIPTOR.name}: {error}") from error


def teller_of(node: Any) -> Teller:
    """A node's message; RemoteProtocolError where it has no id, or a text that cannot be kept, logged and shown."""
    version = node.user_agent_version
    if node.HasField("user_agent_build_version"):
        numbers = node.user_agent_build_version.version
        version = f"{numbers.major_number}.{numbers.minor_number}.{numbers.patch}"
    locality = locality_of(node.locality)
    if not node.id or len(node.id) > LONGEST or not node.id.isprintable():
        raise RemoteProtocolError(f"node.id: must be 1…{LONGEST} printable characters")
    texts = (node.cluster, node.user_agent_name, version, locality.region, locality.zone, locality.sub_zone)
    if any(len(text) > _LONGEST_TEXT or not text.isprintable() for text in texts):
        raise RemoteProtocolError(f"node: has texts of {_LONGEST_TEXT} printable characters at most")
    return Teller(
        id=node.id, cluster=node.cluster, locality=locality, user_agent=node.user_agent_name, version=version,
        token=_token(node.metadata),
    )  # fmt: skip


def _token(metadata: Any) -> str:
    """`reachline.token` of a node's metadata, or empty text."""
    ours = metadata.fields["reachline"].struct_value if "reachline" in metadata.fields else None
    return str(ours.fields["token"].string_value) if ours is not None and "token" in ours.fields else ""


def locality_of(message: Any) -> Locality:
    """A locality's message."""
    return Locality(region=message.region, zone=message.zone, sub_zone=message.sub_zone)


def microseconds(duration: Any) -> int:
    """A duration's message; 0 where it is absent, negative where it is."""
    return int(duration.seconds) * 1_000_000 + int(duration.nanos) // 1_000
