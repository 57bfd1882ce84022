"""What one scope has published: its standings, their version, and the change that tells each step. Written by its ledger only."""

from __future__ import annotations

from collections.abc import Mapping

from reachline.core.publish import is_news, order, standing, weights
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.model import Line, LineId, Scope, Snapshot, Standing, Version

__all__ = ["Board"]


class Board:
    """The standings now published, replaced line by line when there is news worth a push."""

    def __init__(self, scope: Scope, version: Version, issued_ms: int) -> None:
        self.scope, self.version, self.issued_ms, self.panic = scope, version, issued_ms, ""
        self.standings: dict[LineId, Standing] = {}

    def post(
        self,
        lines: Mapping[LineId, Line],
        rows: Mapping[LineId, Row],
        rules: Rules,
        *,
        now_ms: int,
        anyway: bool = False,
    ) -> list[tuple[Standing, Standing]]:
        """Publish what is news, as (before, after) per line; a new line is its own before.

        The version rises if anything is news,
        or `anyway`.
        """
        found = weights(tuple(lines.values()), rows, rules)
        news = []
        for line in lines.values():
            after = standing(line, rows[line.id], found, rules)
            before = self.standings.get(line.id)
            if before is None or is_news(before, after):
                self.standings[line.id] = after
                news.append((before or after, after))
        if self.standings.keys() != lines.keys():
            self.standings = {line: self.standings[line] for line in lines}
            anyway = True
        if news or anyway:
            self.version = self.version._replace(counter=self.version.counter + 1)
            self.issued_ms, self.panic = now_ms, found.panic
        return news

    def snapshot(self) -> Snapshot:
        """The whole, in published order."""
        return Snapshot(
            scope=self.scope,
            version=self.version,
            issued_ms=self.issued_ms,
            standings=order(tuple(self.standings.values())),
            panic=self.panic,
        )
