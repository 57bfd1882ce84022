"""What the judge is told of each line in one tick: the vantages' vote, the business's word, and which of the two is used.

One `Hearing` a ledger, written by it only: it keeps the business's calls, the quarrels of lines, and since when lines are bad.
Every formula lives elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from reachline.core.business import UNKNOWN, Business, Word
from reachline.core.conflict import CALM, Matter, after, is_overriding, is_plane, taken_over
from reachline.core.counting import Count, Polled, summed
from reachline.core.credit import Result
from reachline.core.cusum import NOTHING, speaks_against
from reachline.core.learning import learn
from reachline.core.poll import Poll
from reachline.core.quorum import Tally
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.scope import Cause
from reachline.core.told import Told
from reachline.model import Line, LineId, Zone

__all__ = ["Hearing"]

_H: Final = Zone.H
_D: Final = Zone.D
_F: Final = Zone.F
_N: Final = Zone.N
_BAD: Final = (Zone.D, Zone.F)
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every line of a tick."""
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""


class Hearing:
    """The business's calls, each line's quarrel (calm ones are not kept), and bad lines with the ms they turned bad at."""

    def __init__(self) -> None:
        self.business = Business()
        self.matters: dict[LineId, Matter] = {}
        self.turned: dict[LineId, int] = {}
        self.plane_ms: int | None = None
        """Since when all lines are bad at once though calls go well: nothing is believed of them."""
        self.excused: dict[LineId, tuple[Cause, ...]] = {}
        """Whose fault calls on a line failed by at the last tick, where it was not the line's; for people."""

    def turn(self, now_ms: int, rules: Rules) -> set[LineId]:
        """A tick ends: lines with new calls that could change them."""
        self.business.turn(now_ms, rules.business)
        suspects = self.business.suspects()
        if rules.questions:
            suspects = {
                line for line in suspects if speaks_against(self.business.evidence(line, rules), rules.questions)
            }
        return suspects | (self.matters.keys() & self.business.newest.rows.keys())

    def moved(self, names: Mapping[LineId, LineId]) -> None:
        """Lines under other names: each as it was called before (empty: it is new); others are forgotten."""
        self.business.keep(names)
        now = {old: new for new, old in names.items() if old}
        self.matters = {now[line]: matter for line, matter in self.matters.items() if line in now}
        self.turned = {now[line]: at_ms for line, at_ms in self.turned.items() if line in now}

    def tell(
        self,
        rows: Mapping[LineId, Row],
        fresh: Collection[LineId],
        poll: Poll,
        lines: Mapping[LineId, Line],
        *,
        now_ms: int,
        rules: Rules,
    ) -> dict[LineId, Told]:
        """What the judge is told of these rows' lines, the tick's quarrels and trust settled."""
        called = self.business.called() | self.matters.keys()
        told: dict[LineId, Told] = {}
        adds_up, known = bool(rules.questions), Plain()
        differs = []
        for (line, row), polled in zip(rows.items(), Count(poll, now_ms, rules).every([*rows]), strict=True):
            is_fresh = line in fresh
            if is_fresh and line not in called:
                key = (id(polled), id(row.asked), id(row.recent)) if adds_up else id(polled)
                alike = known.get(key)
                if alike is None:
                    alike = known[key] = _plain(row, polled, rules)
                told[line] = _new(Told, (row, alike[0], poll.ballots[line], *alike[1]))
                if alike[2]:
                    differs.append(line)
                continue
            one = told[line] = self._one(
                line, row, polled, poll, is_fresh=is_fresh, is_called=line in called, now_ms=now_ms, rules=rules
            )
            if is_fresh and not _is_agreed(one):
                differs.append(line)
        self._turn_bad(told, now_ms)
        words = {line: one.word for line, one in told.items() if one.word is not UNKNOWN} if called else {}
        is_most = words and 2 * len(self.turned) > len(lines)
        usable = [line for line in lines.values() if not line.drained] if is_most else []
        self.excused = {line: word.causes for line, word in words.items() if word.causes}
        is_broken = rules.acts("business") and is_plane(self.turned, [line.id for line in usable], words)
        self.plane_ms = (now_ms if self.plane_ms is None else self.plane_ms) if is_broken else None
        if is_broken:
            told = {line: one._replace(found=one.found._replace(zone=Zone.N)) for line, one in told.items()}
            differs = [line for line in told if line in fresh]
        results = {line: _result(told[line], now_ms, rules) for line in differs}
        disputed = {line: found for line, found in results.items() if _is_disputed(told[line], found)}
        learn(poll, disputed, now_ms, rules)
        return told

    def _one(
        self,
        line: LineId,
        row: Row,
        polled: Polled,
        poll: Poll,
        *,
        is_fresh: bool,
        is_called: bool,
        now_ms: int,
        rules: Rules,
    ) -> Told:
        found, voters, said = polled
        if not is_fresh:
            found = found._replace(zone=_N, has_quorum=False)
        seen, lost, word, used, matter = found.zone, None, UNKNOWN, UNKNOWN, CALM
        if is_called:
            was = self.matters.get(line, CALM)
            word = self.business.word(line, was.held, rules)
            matter = after(was, word, seen, now_ms, rules.business)
            self._keep(line, matter)
            if rules.acts("business"):
                lost = word.zone is _H if matter.overrides and not was.overrides else None
                used = word
        if used.zone is _F:
            found = found._replace(is_seconded=True)
        by_calls, sums = False, None
        if rules.questions:
            calls = self.business.evidence(line, rules) if is_called and rules.acts("business") else NOTHING
            sums, zone = summed(row, found, said if found.has_quorum else (), calls, rules)
            if by_calls := zone is _D and used.zone is _F and matter.failed >= _twice(rules):
                zone = _F
        elif used.zone is _N:
            zone = seen
        else:
            row, zone = _chosen(row, seen, used, matter, poll.is_blind(line, now_ms, rules), now_ms=now_ms, rules=rules)
        own = _of_zone(found, zone), poll.ballots[line], voters, sums, word, matter, zone, seen, lost, by_calls
        return _new(Told, (row, *own))

    def _keep(self, line: LineId, matter: Matter) -> None:
        if matter == CALM:
            self.matters.pop(line, None)
        else:
            self.matters[line] = matter

    def _turn_bad(self, told: Mapping[LineId, Told], now_ms: int) -> None:
        for line, one in told.items():
            zone = one.seen if one.seen is not _N else one.zone
            if zone in _BAD:
                self.turned.setdefault(line, now_ms)
            elif zone is _H:
                self.turned.pop(line, None)


Plain = dict[tuple[int, int, int] | int, tuple[Tally, tuple[object, ...], bool]]
"""What the judge is told of a line that no call speaks of, by the words on it and, where these add up, the sums it had: the tally, what stands behind the
ballots in `Told`, and whether somebody may have differed. Only what is the same object is taken for alike, while all of it is held.
"""


def _plain(row: Row, polled: Polled, rules: Rules) -> tuple[Tally, tuple[object, ...], bool]:
    """Of a line with news, by its vantages alone."""
    found, voters, said = polled
    sums, zone = None, found.zone
    if rules.questions:
        sums, zone = summed(row, found, said if found.has_quorum else (), NOTHING, rules)
    after = _of_zone(found, zone)
    rest = voters, sums, UNKNOWN, CALM, zone, found.zone, None, False
    return after, rest, not _is_agreed(_new(Told, (row, after, {}, *rest)))


def _of_zone(found: Tally, zone: Zone) -> Tally:
    return found if zone is found.zone else _new(Tally, (zone, *found[1:]))


def _twice(rules: Rules) -> int:
    """Ticks after which the business's book holds no call that it held at the first of them: two independent verdicts.

    Sums alone would let a line stay degraded for minutes once most calls were moved away from it: a few calls a second at 6 % say
    little a tick, and probes that see no more than lost packets speak against them.
    """
    return -(-rules.business.span_ms // rules.tick_ms)


def _chosen(
    row: Row, seen: Zone, word: Word, matter: Matter, is_blind: bool, *, now_ms: int, rules: Rules
) -> tuple[Row, Zone]:
    """`literal` mode: the vote, or the business where it is believed instead, or is all there is; it says something."""
    if is_overriding(matter, now_ms, rules.business):
        return row._replace(judgement=taken_over(row.judgement, matter)), word.zone
    return row, word.zone if is_blind and seen is _N else seen


def _result(one: Told, now_ms: int, rules: Rules) -> Result:
    """What the tick found of a line, for those who voted on it."""
    if not one.found.has_quorum or one.found.zone is _N:
        return Result(None, one.lost)
    word = one.word.zone
    if word is not _N and rules.acts("business") and is_overriding(one.matter, now_ms, rules.business):
        return Result(word is _H, one.lost)
    return Result(one.seen is _H, one.lost)


def _is_agreed(one: Told) -> bool:
    """Whether nobody can have differed, seen without looking closer: all said what was found, and the business nothing."""
    _, (zone, has_quorum, _, _, weight, _, bad, _), _, _, _, word, _, _, seen, lost, _ = one
    if word is not UNKNOWN or lost is not None or not has_quorum or zone is _N:
        return False
    return bad == (0 if seen is _H else weight)


def _is_disputed(one: Told, result: Result) -> bool:
    """Whether somebody may have differed: not where all said what was found."""
    agreed = 0 if result.well else one.found.weight
    return result.well is None or result.lost is not None or one.found.bad != agreed
