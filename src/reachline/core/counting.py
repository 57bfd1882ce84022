"""Ballots counted: the common zone with the votes behind it, and in `fast` mode what each vantage said, by its trust. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from reachline.core.credit import Credit
from reachline.core.cusum import Question, added, carried, trimmed, zone_of
from reachline.core.evidence import NOTHING, Evidence, Said
from reachline.core.quorum import TRUST, Ballot, Tally, settled
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.severity import remembered
from reachline.model import LineId, VantageId, Vote, Zone

__all__ = ["asked_anew", "counted", "said", "summed"]

_H: Final = Zone.H
_F: Final = Zone.F
_N: Final = Zone.N
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every line of a tick."""
_NONE: Final[Mapping[LineId, Evidence]] = MappingProxyType({})


def counted(
    fresh: Mapping[VantageId, Ballot], credit: Credit, configured: int, share_milli: int
) -> tuple[Tally, tuple[Vote, ...]]:
    """What these ballots come to, as `quorum.total` counts them, and their votes in the order they come in."""
    trusts, count, weight, failed, bad = credit.trusts, 0, 0, 0, 0
    votes: list[Vote] = []
    for name, (zone, _, doubt, vote, *_) in fresh.items():
        if vote is not None:
            votes.append(vote)
        if zone is _N:
            continue
        own = credit.weight(name, doubt) if doubt or name in trusts else TRUST
        count, weight = count + 1, weight + own
        if zone is not _H:
            bad += own
            if zone is _F:
                failed += own
    return settled((count, weight, failed, bad), configured, share_milli), tuple(votes)


def said(
    line: LineId,
    fresh: Mapping[VantageId, Ballot],
    pending: Mapping[VantageId, Mapping[LineId, Evidence]],
    credit: Credit,
) -> dict[str, Said]:
    """What these vantages said of the line since the last tick, be it nothing, by their trust."""
    trusts = credit.trusts
    found: dict[str, Said] = {}
    for name, (zone, _, doubt, _, _, _, before) in fresh.items():
        if zone is not _N:
            own = credit.weight(name, doubt) if doubt or name in trusts else TRUST
            found[name] = Said(own, pending.get(name, _NONE).get(line, NOTHING), before)
    return found


def summed(row: Row, found: Tally, heard: Mapping[str, Said], calls: Evidence, rules: Rules) -> tuple[Row, Zone]:
    """`fast` mode: vantages and calls add up in the same sums; a quarrel only moves trust."""
    if not found.has_quorum and not calls.is_any:
        return row, found.zone
    told = trimmed(heard)
    sums = added(row.asked, told, rules.questions, calls=calls, patience=2 if found.is_lone else 1)
    recent = () if sums.is_calm else remembered(row.recent, told, calls)
    if sums != row.asked or recent != row.recent:
        row = row._replace(asked=sums, recent=recent)
    return row, zone_of(sums, rules.questions)


def asked_anew(rows: Mapping[LineId, Row], was: Sequence[Question], now: Sequence[Question]) -> Mapping[LineId, Row]:
    """The rows where other questions are asked from here on: a sum stands for its own question only."""
    if was == now:
        return rows
    return {
        line: row._replace(asked=carried(row.asked, was, now), recent=row.recent if now else ())
        for line, row in rows.items()
    }
