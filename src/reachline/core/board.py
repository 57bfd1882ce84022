"""What one scope has published: its standings, their version, and the change that tells each step. Written by its ledger only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Final

from reachline.core.publish import is_standing, standing
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.spreading import Weights
from reachline.core.steer import Steer
from reachline.core.weighing import Weighing
from reachline.model import Line, LineId, Scope, Snapshot, Standing, Version

__all__ = ["Board"]

_MANY: Final = 50
"""Once one of fifty lines changes its place, sorting anew costs no more than placing them one by one."""
_WEIGHT: Final = attrgetter("weight")


class Board:
    """The standings now published, replaced line by line when there is news worth a push."""

    def __init__(self, scope: Scope, version: Version, issued_ms: int) -> None:
        self.scope, self.version, self.issued_ms, self.panic = scope, version, issued_ms, ""
        self.standings: dict[LineId, Standing] = {}
        """In order of their ids, as lines are."""
        self._weighing = Weighing()
        self._listed: list[Standing] | None = None
        """The standings in the order of publication: weight down, then id; None: to be made anew. "Second place" in the list is
        this order, choice stays weighted random.
        """
        self.steer: Steer | None = None
        """This cluster's part in the plan across regions; None: none."""
        self.is_plane = False
        """All lines look bad at once though calls go well: nobody is believed, and that is said."""

    def restore(
        self,
        standings: Mapping[LineId, Standing],
        panic: str,
        lines: Mapping[LineId, Line],
        rows: Mapping[LineId, Row],
        rules: Rules,
        *,
        offered: int = 0,
    ) -> None:
        """Take these standings for the ones published, and go on from these rows."""
        self.standings, self.panic, self._listed = dict(sorted(standings.items())), panic, None
        self._weighing.all(lines, rows, rules, offered=offered)

    def follows(self, offered: int, rules: Rules) -> bool:
        """Whether this traffic moves weights though no line moved."""
        return self._weighing.follows(offered, rules)

    def steered(self, steer: Steer | None, now_ms: int) -> None:
        """Another part in the plan across regions: news for every reader."""
        self.steer, self.issued_ms = steer, now_ms
        self.version = self.version._replace(counter=self.version.counter + 1)

    def learns(self, is_plane: bool) -> bool:
        """Whether this is news: the observers' plane broke, or is whole again."""
        was, self.is_plane = self.is_plane, is_plane
        return was is not is_plane

    def post(
        self,
        lines: Mapping[LineId, Line],
        rows: Mapping[LineId, Row],
        rules: Rules,
        *,
        moved: Collection[LineId] | None = None,
        offered: int = 0,
        now_ms: int,
    ) -> list[tuple[Standing, Standing]]:
        """Publish what is news, as (before, after) per line; a new line is its own before. The version rises if anything is.

        `moved` names the lines whose rows changed since the last time; without it all may have, lines and rules too, and the
        version rises anyway. `offered` is what the lines are asked to carry, in 1/1000 call a second.
        """
        anyway = moved is None
        touched, found = self._weighed(lines, rows, rules, moved, offered)
        news, standings, is_new = [], self.standings, False
        for line in touched:
            before, each, row = standings.get(line), lines[line], rows[line]
            if before is None or not is_standing(before, each, row, found):
                standings[line] = after = standing(each, row, found, rules)
                news.append((before or after, after))
                is_new = is_new or before is None
        anyway = anyway or standings.keys() != lines.keys()
        if is_new or anyway:
            self.standings, self._listed = {line: standings[line] for line in lines}, None
        self._place(news)
        if news or anyway:
            self.version = self.version._replace(counter=self.version.counter + 1)
            self.issued_ms, self.panic = now_ms, found.panic or ("observers" if self.is_plane else "")
        return news

    def _weighed(
        self,
        lines: Mapping[LineId, Line],
        rows: Mapping[LineId, Row],
        rules: Rules,
        moved: Collection[LineId] | None,
        offered: int,
    ) -> tuple[Collection[LineId], Weights]:
        """The lines whose weight may have changed, by id, and these weights."""
        found = None if moved is None else self._weighing.moved(moved, lines, rows, rules, offered=offered)
        if moved is None or found is None:
            return lines, self._weighing.all(lines, rows, rules, offered=offered)
        return sorted(moved), found

    def _place(self, news: Sequence[tuple[Standing, Standing]]) -> None:
        """Keep the order current where few lines change places; else it is made anew once somebody asks for it."""
        listed = self._listed
        if listed is None:
            return
        if _MANY * len(news) > len(listed):
            self._listed = None
            return
        for before, after in news:
            place = bisect_left(listed, _place_of(before), key=_place_of)
            if before.weight != after.weight:
                del listed[place]
                place = bisect_left(listed, _place_of(after), key=_place_of)
                listed.insert(place, after)
            listed[place] = after

    def snapshot(self) -> Snapshot:
        """The whole, in published order."""
        if self._listed is None:
            self._listed = sorted(self.standings.values(), key=_WEIGHT, reverse=True)
        return Snapshot(
            scope=self.scope,
            version=self.version,
            issued_ms=self.issued_ms,
            standings=tuple(self._listed),
            panic=self.panic,
        )


def _place_of(standing: Standing) -> tuple[int, LineId]:
    return -standing.weight, standing.line
