"""What a tick teaches of its vantages: who agreed with what was found, who differed, and who alone sees most of its lines fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from reachline.core.credit import Result
from reachline.core.quorum import Ballot, needed
from reachline.core.rules import QuorumRules, Rules
from reachline.core.trust import independent, rest_is_well, shared_by
from reachline.model import LineId, VantageId

if TYPE_CHECKING:
    from reachline.core.poll import Poll

__all__ = ["learn"]


def learn(poll: Poll, results: Mapping[LineId, Result], now_ms: int, rules: Rules) -> None:
    """A tick ended with these results of the lines with news that may be in dispute: trust moves."""
    credit, vantages = poll.credit, poll.vantages
    if len(vantages & credit.spoke.keys()) >= needed(len(vantages)):
        told = [(result, _news(poll, line)) for line, result in results.items()]
        credit.learn(told, vantages, now_ms, is_pooled=bool(rules.questions))
    sick, whole = credit.sick(vantages), len(vantages)
    # Where half of all call a line bad, no majority is left that calls it healthy.
    crowded = credit.crowded(vantages, whole - whole // 2) if sick else set()
    own = {line for line, each in poll.lines.items() if each.vantages} if sick else set()
    for vantage in sick:
        bad = credit.bad[vantage]
        if _is_alone(poll, vantage, (bad - crowded) | (bad & own), now_ms, rules.quorum):
            credit.put_aside(vantage, vantages, now_ms)
    credit.close(now_ms)
    poll.pending = {}


def _news(poll: Poll, line: LineId) -> dict[VantageId, Ballot]:
    """Verdicts since the last tick of the vantages that count for the line."""
    configured = poll.configured(line)
    cast = poll.ballots[line].items()
    return {name: ballot for name, ballot in cast if name in configured and poll.credit.is_news(ballot)}


def _is_alone(poll: Poll, vantage: VantageId, asked: AbstractSet[LineId], now_ms: int, rules: QuorumRules) -> bool:
    """Whether most of its lines, which are not one risk, are bad in its eyes and healthy in those of the rest: `asked` may be."""
    present = poll.present(now_ms, rules)
    alone = [
        line
        for line in asked
        if rest_is_well(_fresh(poll, line, present, now_ms, rules), vantage, len(poll.configured(line)))
    ]
    most = 2 * len(alone) > poll.credit.sees[vantage]
    return most and independent(shared_by(poll.lines[line]) for line in alone) > 1


def _fresh(
    poll: Poll, line: LineId, present: Sequence[VantageId], now_ms: int, rules: QuorumRules
) -> dict[VantageId, Ballot]:
    """Ballots that count now, of those who are present and in their order."""
    cast, named = poll.ballots[line], poll.lines[line].vantages
    since_ms = now_ms - rules.fresh_ms
    return {
        name: ballot
        for name in present
        if (ballot := cast.get(name)) is not None and ballot.received_ms >= since_ms and (not named or name in named)
    }
