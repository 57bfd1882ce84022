"""Ballots counted: the common zone with the votes behind it, and in `fast` mode what each vantage said, by its trust. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from reachline.core.credit import Credit
from reachline.core.cusum import CALM, Question, added, carried, spared, zone_of
from reachline.core.evidence import NOTHING, Evidence, Said
from reachline.core.quorum import TRUST, Ballot, Tally, settled
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.severity import remembered
from reachline.model import LineId, VantageId, Vote, Zone

__all__ = ["asked_anew", "polled", "summed"]

_H: Final = Zone.H
_F: Final = Zone.F
_N: Final = Zone.N
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every line of a tick."""
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""
_ASKED, _RECENT = map(Row._fields.index, ("asked", "recent"))


def polled(
    line: LineId,
    cast: Mapping[VantageId, Ballot],
    present: Iterable[tuple[VantageId, Mapping[LineId, Evidence]]],
    credit: Credit,
    *,
    since_ms: int,
    configured: int,
    share_milli: int,
) -> tuple[Tally, tuple[Vote, ...], list[Said]]:
    """What the ballots of those present that came since then come to, as `quorum.total` counts them; their votes; and what these
    vantages saw since the last tick, be it nothing, by their trust. Each is present with what it saw.
    """
    trusts, count, weight, failed, bad = credit.trusts, 0, 0, 0, 0
    votes: list[Vote] = []
    told: list[Said] = []
    for name, seen in present:
        ballot = cast.get(name)
        if ballot is None:
            continue
        zone, received_ms, doubt, vote, _, _, before = ballot
        if received_ms < since_ms:
            continue
        if vote is not None:
            votes.append(vote)
        if zone is _N:
            continue
        own = credit.weight(name, doubt) if doubt or name in trusts else TRUST
        told.append(_new(Said, (own, seen.get(line, NOTHING), before)))
        count, weight = count + 1, weight + own
        if zone is not _H:
            bad += own
            if zone is _F:
                failed += own
    return settled((count, weight, failed, bad), configured, share_milli), tuple(votes), told


def summed(row: Row, found: Tally, heard: Sequence[Said], calls: Evidence, rules: Rules) -> tuple[Row, Zone]:
    """`fast` mode: vantages and calls add up in the same sums; a quarrel only moves trust."""
    if not found.has_quorum and not calls.is_any:
        return row, found.zone
    told = spared(heard)
    sums = added(row.asked, told, rules.questions, calls=calls, patience=2 if found.is_lone else 1)
    recent = () if sums is CALM or sums.is_calm else remembered(row.recent, told, calls)
    if recent != row.recent or sums != row.asked:
        row = Row._make((*row[:_ASKED], sums, *row[_ASKED + 1 : _RECENT], recent))
    return row, zone_of(sums, rules.questions)


def asked_anew(rows: Mapping[LineId, Row], was: Sequence[Question], now: Sequence[Question]) -> Mapping[LineId, Row]:
    """The rows where other questions are asked from here on: a sum stands for its own question only."""
    if was == now:
        return rows
    return {
        line: row._replace(asked=carried(row.asked, was, now), recent=row.recent if now else ())
        for line, row in rows.items()
    }
