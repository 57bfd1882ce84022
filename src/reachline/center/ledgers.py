"""A document as ledgers want it: per scope its lines, rules and vantages; and how recovered ledgers meet a document."""

from __future__ import annotations

from typing import NamedTuple

from reachline.core.ledger import Ledger
from reachline.core.rules import Rules, digest
from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.model import Line, Scope, VantageId

__all__ = ["Compiled", "compiled"]


class Compiled(NamedTuple):
    """One cluster of a document. `vantages` empty: whoever joins counts."""

    lines: tuple[Line, ...]
    rules: Rules
    vantages: frozenset[VantageId]

    def is_in_force(self, ledger: Ledger, vantages: frozenset[VantageId]) -> bool:
        """Whether the ledger already follows this."""
        same_lines = tuple(sorted(self.lines, key=lambda line: line.id)) == tuple(ledger.told.values())
        return same_lines and digest(self.rules) == digest(ledger.rules) and vantages == ledger.poll.vantages


def compiled(document: Document) -> dict[Scope, Compiled]:
    """Every cluster of the document by its scope."""
    return {
        Scope(cluster=name): Compiled(
            reach.lines(document, name), reach.rules(document, name), reach.vantages(document, name)
        )
        for name in document.clusters
    }
