"""The ballots of one scope as its lines become others."""

from __future__ import annotations

from collections.abc import Mapping

from reachline.core.poll import Poll
from reachline.core.rules import Rules
from reachline.model import Line, LineId

__all__ = ["moved"]


def moved(was: Poll, lines: Mapping[LineId, Line], names: Mapping[LineId, LineId], rules: Rules, now_ms: int) -> Poll:
    """The poll for other lines; `names` says what each was called before (empty: it is new)."""
    poll = Poll(lines, was.vantages, rules, now_ms)
    poll.restore({line: was.ballots.get(names[line], {}) for line in lines})
    poll.pending = {
        vantage: {line: told[old] for line, old in names.items() if old in told}
        for vantage, told in was.pending.items()
    }
    silence = {line: was.heard_ms.get(names[line], now_ms) for line in lines}
    poll.heard_ms = dict(sorted(silence.items(), key=lambda item: item[1]))
    poll.beats = was.beats
    poll.habits = was.habits.moved(names)
    poll.credit.trusts, poll.credit.spoke, poll.credit.closed_ms = (
        was.credit.trusts,
        was.credit.spoke,
        was.credit.closed_ms,
    )
    return poll
