"""The plan across regions where it is kept: made again when a cluster moves, told to readers in words and tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from reachline.center.board import Board
from reachline.core.ledger import Ledger
from reachline.core.regions import limits_of, outlook, seen, steers, why_apart, without
from reachline.core.steer import Steer, told
from reachline.model import Line, LineId, Scope, Version
from reachline.wire.planned import PlanDocument, document

__all__ = ["Moved", "Regions", "noted"]

log = logging.getLogger("reachline.center")

_BEGINS: Final = "plan across regions: "


class Moved(NamedTuple):
    """Another part for one cluster, and the clusters that the plan was made of."""

    scope: Scope
    steer: Steer | None
    clusters: tuple[str, ...]


class Regions:
    """Remembers what the last plan was made of. Written by the owner."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._made_of: dict[Scope, tuple[Version, int]] = {}
        self._regional: dict[Scope, tuple[Mapping[LineId, Line], bool]] = {}
        """Of each scope's lines, whether any names a region."""

    def moved(self, ledgers: Mapping[Scope, Ledger]) -> list[Moved]:
        """Clusters whose part in the plan is another one than theirs; nothing is asked where no line names a region."""
        known = {scope: ledger for scope, ledger in ledgers.items() if self._is_regional(ledger)}
        made_of = {scope: (ledger.board.version, ledger.asked.level) for scope, ledger in known.items()}
        if made_of == self._made_of:
            return []
        self._made_of = made_of
        names = tuple(sorted(scope.cluster for scope in known))
        found = steers([known[scope] for scope in sorted(known, key=_name)])
        moved = [
            Moved(scope, found.get(scope.cluster), names)
            for scope, ledger in ledgers.items()
            if ledger.board.steer != found.get(scope.cluster)
        ]
        for one in moved:
            self._tell(one)
        return moved

    def document(self, ledgers: Mapping[Scope, Ledger], gone: str = "") -> PlanDocument | None:
        """The plan as it stands, beside what weights alone would do; or what would become of everybody were a region `gone`. None
        where no line stands in that region.
        """
        known = [ledgers[scope] for scope in sorted(ledgers, key=_name)]
        if gone and not any(line.region == gone for ledger in known for line in ledger.lines.values()):
            return None
        clusters, limits = [one for one in map(seen, known) if one is not None], limits_of(known)
        apart = {ledger.scope.cluster: why for ledger in known if (why := why_apart(ledger))}
        now = outlook(clusters, limits)
        return document(
            now if gone else now._replace(steers={}),
            outlook(without(clusters, gone), limits) if gone else now,
            gone=gone,
            limits=limits,
            apart=apart,
        )

    def _is_regional(self, ledger: Ledger) -> bool:
        lines, found = self._regional.get(ledger.scope, (None, False))
        if lines is not ledger.lines:
            found = any(line.region for line in ledger.lines.values())
            self._regional[ledger.scope] = (ledger.lines, found)
        return found

    def _tell(self, one: Moved) -> None:
        cluster, steer = one.scope.cluster, one.steer
        self._board.counts["plans", steer.reason if steer else "over"] += 1
        self._board.notes[cluster] = (
            *(note for note in self._board.notes.get(cluster, ()) if not note.startswith(_BEGINS)),
            *noted(steer),
        )
        fields = {"cluster": cluster, "reason": steer.reason if steer else "over"}
        if steer is not None:
            fields |= {"calls": str(steer.calls), "carried": str(steer.carried)}
        log.info("plan_changed", extra=fields)


def noted(steer: Steer | None) -> tuple[str, ...]:
    """A cluster's part in words; nothing where it has none."""
    return () if steer is None else (f"{_BEGINS}{told(steer)}",)


def _name(scope: Scope) -> tuple[str, str]:
    return scope.cluster, scope.tenant
