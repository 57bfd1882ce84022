"""Who is told what: audiences, and one cell of resources for each. Rendering writes the cells, streams read them.

`Rendered` and `Resources` themselves are `wire.resources`', so that bytes are made below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from reachline.center.published import Published
from reachline.model import Locality
from reachline.wire.resources import EMPTY, Rendered, Resources, rendered

if TYPE_CHECKING:
    from reachline.wire.xds import Node

__all__ = ["ALS", "EMPTY", "Audience", "Cells", "Kind", "Rendered", "Resources", "audience_of", "rendered"]


Wake = Callable[[], None]


class Kind(Enum):
    """Whose dialect of xDS a client understands."""

    ENVOY = "envoy"
    GRPC = "grpc"
    OWN = "own"


class Audience(NamedTuple):
    """All clients that are told the same."""

    kind: Kind
    locality: Locality = Locality()
    logs_access: bool = False
    """Whether its proxies are to tell each call to the center: where a bootstrap says so, for without it they could not."""


ALS: Final = "als"
"""Key of a node's metadata under `reachline`: true where its bootstrap has a way for access logs."""

_AGENTS: Final = (("grpc", Kind.GRPC), ("reachline", Kind.OWN))
"""What user agents begin with: gRPC's say `gRPC C-core …`, `gRPC Go`, `grpc-java`."""


def audience_of(node: Node) -> Audience:
    """By its user agent (one that says nothing known is taken for an Envoy, whom others imitate) and its locality."""
    agent = node.user_agent.lower()
    kind = next((kind for start, kind in _AGENTS if agent.startswith(start)), Kind.ENVOY)
    said = (node.metadata or {}).get("reachline")
    logs_access = isinstance(said, Mapping) and said.get(ALS) is True
    # gRPC has no access log, and our own proxy writes its to files: it would refuse a listener with one by gRPC.
    return Audience(kind, node.locality, logs_access and kind is Kind.ENVOY)


class Cells:
    """What each audience is told now: `publish` is for who renders, the rest for streams. On one loop.

    A cell that holds None says nothing yet: a center that does not know enough is silent rather than wrong.
    """

    def __init__(self) -> None:
        self._cells: dict[Audience, Published[Resources | None]] = {}
        self._streams: dict[Audience, set[Wake]] = {}
        self.asked: Callable[[Audience], None] = lambda _: None
        """Called with an audience that nobody was of before; it may publish at once."""

    @property
    def audiences(self) -> Mapping[Audience, Published[Resources | None]]:
        """Those that somebody asked for. To be read."""
        return self._cells

    def cell(self, audience: Audience) -> Published[Resources | None]:
        """The audience's cell; a new one is asked for."""
        if (found := self._cells.get(audience)) is None:
            found = self._cells[audience] = Published(None)
            self.asked(audience)
        return found

    def join(self, audience: Audience, wake: Wake) -> Published[Resources | None]:
        """The audience's cell, and `wake` called after every publication from here on, until it leaves."""
        self._streams.setdefault(audience, set()).add(wake)
        return self.cell(audience)

    def leave(self, audience: Audience, wake: Wake) -> None:
        """The last one takes the cell with it."""
        if streams := self._streams.get(audience):
            streams.discard(wake)
            if not streams:
                del self._streams[audience]
                self._cells.pop(audience, None)

    def publish(self, audience: Audience, resources: Resources) -> None:
        """Every stream of the audience wakes up, unless it has these already."""
        cell = self.cell(audience)
        if cell.value is not resources:
            cell.replace(resources)
            for wake in self._streams.get(audience, ()):
                wake()

    def wake(self) -> None:
        """Every stream looks again."""
        for streams in self._streams.values():
            for wake in streams:
                wake()
