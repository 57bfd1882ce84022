"""Data planes that send evidence: who they are, what they said, and what of it counts. Their calls become outcomes, once a second.

Decides nothing about lines. What cannot be placed, is told better by others, or is too much is counted and left.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from reachline.center.board import Board
from reachline.center.owner import Owner
from reachline.center.xds.places import Addresses, Places
from reachline.center.xds.seen import Seen
from reachline.center.xds.sums import MOST_CALLS, Pace, Rank, Sums, Telling, Windows, pace_of
from reachline.model import LineId, Seconds, Version
from reachline.wire.als import Call, Of
from reachline.wire.lrs import Load, Spot
from reachline.wire.telling import Teller

__all__ = ["By", "Plane", "Planes"]

log = logging.getLogger("reachline.center.evidence")

_EVERY: Final[Seconds] = 1.0
"""As often as an SDK posts what its calls came to."""
_MOST: Final = 2_000
"""Data planes remembered, twice as many as agents may join: of more those that left longest ago are forgotten. Who is here is not:
of these there are no more than streams."""
_STREAMS: Final = 5_000
"""At once, of all data planes: as many as may follow the center."""
_ASKED_MS: Final = 1_000
"""Where names lead is looked up this often: a name that moved is followed within the second, as by those who are steered."""
_NOWHERE: Final[Addresses] = MappingProxyType({})


class By(StrEnum):
    """How evidence came."""

    HDS = "hds"
    LRS = "lrs"
    ALS = "als"


@dataclass(slots=True, kw_only=True)
class Plane:
    """One data plane by one protocol. Written by `Planes` and by the stream that speaks for it."""

    teller: Teller
    by: By
    peer: str
    since_ms: int
    last_ms: int
    streams: int = 0
    messages: int = 0
    """All that came, those that were dropped among them."""
    counted: int = 0
    """Calls (HDS: verdicts) that are evidence."""
    told_better: int = 0
    """Calls left out because a better source tells of them."""
    skipped: int = 0
    """Log entries of which nothing is learnt."""
    unknown: int = 0
    """Of no line of the document, as seen from where it stands."""
    refused: int = 0
    """Beyond all bounds."""
    shed: int = 0
    """Messages dropped unread: it sends more than is taken."""
    sums: Sums = field(default_factory=Sums)

    @property
    def name(self) -> str:
        """As which its calls stand in the journal: `als:envoy-1`."""
        return f"{self.by}:{self.teller.id}"


class Planes:
    """All of them. Everything happens on the owner's loop."""

    def __init__(self, *, owner: Owner, board: Board, resolved: Callable[[], Addresses] = lambda: _NOWHERE) -> None:
        self.owner = owner
        self.board = board
        self.seen = Seen()
        self._resolved = resolved
        self._planes: OrderedDict[tuple[By, str], Plane] = OrderedDict()
        """In the order in which they came or, those that left, went."""
        self._forgotten: Counter[tuple[str, By]] = Counter()
        """Figures of those that are remembered no more: totals never fall."""
        self._streams = 0
        self._telling = Telling()
        self._windows = Windows()
        self._paces: dict[str, Pace] = {}
        self._made_of: tuple[object, ...] = ()
        self._at: Addresses = _NOWHERE
        self._placed_at: Addresses = _NOWHERE
        self._published: Version | None = None
        self._asked_ms: int | None = None
        self._places = Places(())
        self._posting: asyncio.TimerHandle | None = None
        self._is_over = False

    # -- who -----------------------------------------------------------------------------------------------------

    def welcome(self) -> None:
        """Returns where there is room for one more stream; ConnectionError asks to come again."""
        if self._streams >= _STREAMS:
            raise ConnectionError(f"{_STREAMS} streams of data planes are open already")

    def joined(self, teller: Teller, by: By, peer: str) -> Plane:
        """One more stream of a data plane; ConnectionError where there is no room by now: many may be welcomed before one joins."""
        self.welcome()
        now_ms = self.board.clock()
        plane = self._planes.pop((by, teller.id), None) or Plane(
            teller=teller, by=by, peer=peer, since_ms=now_ms, last_ms=now_ms
        )
        plane.teller, plane.peer, plane.last_ms = teller, peer, now_ms
        plane.streams += 1
        self._streams += 1
        self._planes[by, teller.id] = plane
        self._forget()
        log.info("data_plane_attached", extra={"node": teller.id, "by": by.value, "release": teller.release})
        return plane

    def left(self, plane: Plane) -> None:
        """One of its streams is over."""
        plane.streams -= 1
        self._streams -= 1
        if not plane.streams:
            self._planes.move_to_end((plane.by, plane.teller.id))
        log.info("data_plane_detached", extra={"node": plane.teller.id, "by": plane.by.value})

    def heard(self, plane: Plane) -> int:
        """A message of its; the moment."""
        plane.last_ms = self.board.clock()
        plane.messages += 1
        return plane.last_ms

    def _forget(self) -> None:
        """Those that left, as long as there are too many; what they said last is not lost."""
        while len(self._planes) > _MOST:
            gone = next((plane for plane in self._planes.values() if not plane.streams), None)
            if gone is None:
                return
            self._post(gone)
            self._forgotten.update({(name, gone.by): getattr(gone, name) for name in _FIGURES})
            del self._planes[gone.by, gone.teller.id]

    def rows(self) -> list[dict[str, object]]:
        """All, by node and protocol, for people."""
        now_ms = self.board.clock()
        ordered = sorted(self._planes.values(), key=lambda plane: (plane.teller.id, plane.by))
        return [_row(plane, now_ms) for plane in ordered]

    # -- calls ---------------------------------------------------------------------------------------------------

    def places(self) -> Places:
        """Where the lines are now."""
        where = self._where()
        if self._published is not self.board.version or where is not self._placed_at:
            self._published, self._placed_at = self.board.version, where
            self._look()
        return self._places

    def _look(self) -> None:
        """Something was published, or leads elsewhere."""
        cells = [cell.value for cell in self.board.cells()]
        made_of = (self._placed_at, *(cluster.lines for cluster in cells))
        if len(made_of) != len(self._made_of) or any(a is not b for a, b in zip(made_of, self._made_of, strict=True)):
            self._made_of = made_of
            self._places = Places((line for cluster in cells for line in cluster.lines.values()), self._placed_at)
            lines = {line: None for cluster in cells for line in cluster.lines}
            self._windows.keep([cluster.scope.cluster for cluster in cells], lines)
            self.seen.keep(lines)
        for cluster in cells:
            self._windows.look(cluster.scope.cluster, cluster.snapshot, self.board.clock())
        self._paces = {cluster.scope.cluster: pace_of(cluster.rules) for cluster in cells}

    def _where(self) -> Addresses:
        """Where the lines' names lead; the very same while they lead there."""
        now_ms = self.board.clock()
        if self._asked_ms is None or now_ms - self._asked_ms >= _ASKED_MS:
            self._asked_ms, found = now_ms, self._resolved()
            self._at = self._at if found == self._at else found
        return self._at

    def calls(self, plane: Plane, calls: Sequence[Call], skipped: int = 0) -> None:
        """What an access log says."""
        now_ms = self.heard(plane)
        plane.skipped += skipped
        where, windows = self.places().seen_from(plane.teller.locality.zone), self._windows
        add, paces, on_trial = plane.sums.add, self._paces, windows.are_any
        counts: dict[tuple[str, Of], bool] = {}
        counted = unknown = 0
        for call in calls:
            cluster, address, port, _, _, lasted_us, of = call
            line = where.get((cluster, address, port))
            if line is None:
                unknown += 1
                continue
            told = counts.get((cluster, of))
            if told is None:
                told = counts[cluster, of] = self._is_told(plane, cluster, of, now_ms)
            if not told:
                plane.told_better += 1
                continue
            counted += 1
            add(line, windows.of(line, lasted_us, now_ms) if on_trial else 0, call, paces[cluster])
        plane.counted += counted
        plane.unknown += unknown
        self._soon(plane)

    def _is_told(self, plane: Plane, cluster: str, of: Of, now_ms: int) -> bool:
        rank = Rank.ATTEMPT if of is Of.ATTEMPT else Rank.REQUEST
        self._telling.told(plane.teller.id, cluster, rank, now_ms)
        return of is Of.TIMEOUT or self._telling.counts(plane.teller.id, cluster, rank, now_ms)

    def loads(self, plane: Plane, spots: Iterable[Spot], *, at_ms: int, interval_us: int) -> None:
        """What a load report says that came at `at_ms`."""
        now_ms, zone = self.board.clock(), plane.teller.locality.zone
        places = self.places()
        where = places.seen_from(zone)
        for spot in spots:
            if spot.cluster not in self.board.clusters:
                continue  # it has others than ours, and tells of all
            parts: list[tuple[LineId | None, Load]] = [
                (where.get((spot.cluster, address, port)), load) for address, port, load in spot.endpoints
            ]
            if line := places.named(spot.cluster, spot.locality, zone):
                parts = [(line, spot.load)]
            is_told = self._telling.counts(plane.teller.id, spot.cluster, Rank.LOAD, now_ms)
            for found, load in parts or [(None, spot.load)]:
                self._load(plane, found, load, is_told=is_told, window_at=(interval_us, at_ms))
        self._soon(plane)

    def _load(
        self, plane: Plane, line: LineId | None, load: Load, *, is_told: bool, window_at: tuple[int, int]
    ) -> None:
        calls = load.ok + load.errors
        if line is not None and load.metrics:
            self.seen.metrics(line, plane.teller.id, load.metrics, self.board.clock())
        if not calls:
            return
        if calls > MOST_CALLS:
            plane.refused += 1
        elif line is None:
            plane.unknown += calls
        elif not is_told:
            plane.told_better += calls
        else:
            plane.counted += calls
            plane.sums.add_load(line, self._windows.of(line, *window_at), load)

    # -- evidence ------------------------------------------------------------------------------------------------

    def _soon(self, plane: Plane) -> None:
        if plane.sums and self._posting is None and not self._is_over:
            self._posting = asyncio.get_running_loop().call_later(_EVERY, self.post)

    def close(self) -> None:
        """The last post: whatever a stream says later, the journal takes nothing any more."""
        self.post()
        self._is_over = True

    def post(self) -> None:
        """All that was summed, as outcomes of each data plane; in the journal like an SDK's."""
        if self._posting is not None:
            self._posting.cancel()
            self._posting = None
        for plane in self._planes.values():
            self._post(plane)

    def _post(self, plane: Plane) -> None:
        for cluster, rows in plane.sums.take().items() if plane.sums and not self._is_over else ():
            # The document may have dropped it a moment ago.
            if cell := self.board.clusters.get(cluster):
                self.owner.outcomes(cell.value.scope, plane.name, rows)
                self.seen.calls(plane.name, rows, self.board.clock())

    def figures(self) -> Mapping[tuple[str, str], int]:
        """Totals by metric and protocol, for `/metrics`."""
        return {
            (name, by.value): self._forgotten[name, by]
            + sum(int(getattr(plane, name)) for plane in self._planes.values() if plane.by is by)
            for name in _FIGURES
            for by in By
        }


_FIGURES: Final = ("streams", "messages", "counted", "told_better", "skipped", "unknown", "refused", "shed")


def _row(plane: Plane, now_ms: int) -> dict[str, object]:
    teller = plane.teller
    return {
        "node": teller.id,
        "by": plane.by.value,
        "cluster": teller.cluster,
        "locality": str(teller.locality),
        "release": teller.release,
        "peer": plane.peer,
        "age": round((now_ms - plane.last_ms) / 1_000, 3),
        **{name: getattr(plane, name) for name in _FIGURES},
    }
