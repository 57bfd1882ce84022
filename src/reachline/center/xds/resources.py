"""Who is told what: audiences, and one cell of resources for each. Rendering writes the cells, streams read them.

`Rendered` and `Resources` themselves are `wire.resources`', so that bytes are made below.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from reachline.center.published import Published
from reachline.model import Locality
from reachline.wire.resources import EMPTY, Rendered, Resources, rendered

if TYPE_CHECKING:
    from reachline.wire.xds import Node

__all__ = ["EMPTY", "Audience", "Cells", "Kind", "Rendered", "Resources", "audience_of", "rendered"]


class Kind(Enum):
    """Whose dialect of xDS a client understands."""

    ENVOY = "envoy"
    GRPC = "grpc"
    OWN = "own"


class Audience(NamedTuple):
    """All clients that are told the same."""

    kind: Kind
    locality: Locality = Locality()


_AGENTS: Final = (("grpc", Kind.GRPC), ("reachline", Kind.OWN))
"""What user agents begin with: gRPC's say `gRPC C-core …`, `gRPC Go`, `grpc-java`."""


def audience_of(node: Node) -> Audience:
    """By its user agent (one that says nothing known is taken for an Envoy, whom others imitate) and its locality."""
    agent = node.user_agent.lower()
    kind = next((kind for start, kind in _AGENTS if agent.startswith(start)), Kind.ENVOY)
    return Audience(kind, node.locality)


class Cells:
    """A cell per audience: `cell` for streams, `publish` for the one who renders. On one loop.

    A cell that holds None says nothing yet: a center that does not know enough is silent rather than wrong.
    """

    def __init__(self) -> None:
        self._cells: dict[Audience, Published[Resources | None]] = {}

    @property
    def audiences(self) -> Mapping[Audience, Published[Resources | None]]:
        """Those that somebody asked for or that were published. To be read."""
        return self._cells

    def cell(self, audience: Audience) -> Published[Resources | None]:
        """The audience's cell; a new one is silent until it is published."""
        return self._cells.setdefault(audience, Published(None))

    def publish(self, audience: Audience, resources: Resources) -> None:
        """Every stream of the audience wakes up, unless these are the resources that it has."""
        cell = self.cell(audience)
        if cell.value is not resources:
            cell.replace(resources)

    def drop(self, audience: Audience) -> None:
        """Nobody is of this audience any more."""
        self._cells.pop(audience, None)
