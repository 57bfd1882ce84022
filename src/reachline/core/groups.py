"""Shared risk: lines of one provider, fibre or building fail together. One incident, one warning, one trial at a time.

A group couples nothing where it is a single line or the whole cluster. What is remembered of an incident stands in the rows
of the lines it struck; this index is made of lines and rows, and costs only those that moved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from reachline.core.cusum import Asked, Question
from reachline.core.refuge import others
from reachline.core.row import Row, Stepped
from reachline.core.rules import Rules
from reachline.core.spreading import UNCOUPLED
from reachline.core.turns import wait
from reachline.model import Gate, Health, Line, LineId, Zone

__all__ = ["Groups", "members"]

_SICK: Final = (Health.DEGRADED, Health.UNHEALTHY)
_LEAST: Final = 2
"""One line is no incident of its group, however small that is."""


def members(lines: Iterable[Line]) -> dict[str, tuple[LineId, ...]]:
    """The lines of each group that couples any, by id; a provider is a group. Drained lines do not count."""
    taking = [line for line in lines if not line.drained]
    found: dict[str, list[LineId]] = defaultdict(list)
    for line in taking:
        for group in sorted({*line.groups, line.provider} - {""}):
            found[group].append(line.id)
    return {group: tuple(sorted(each)) for group, each in sorted(found.items()) if _LEAST <= len(each) < len(taking)}


class Groups:
    """The groups of one scope's lines. Written by its ledger only; made anew with other lines, rules or rows."""

    def __init__(self, lines: Mapping[LineId, Line], rows: Mapping[LineId, Row], rules: Rules) -> None:
        self.lines, self.rules = lines, rules
        self.well = others(lines.values(), is_tiered=rules.policy != UNCOUPLED)
        self._members = members(lines.values())
        self._of: dict[LineId, list[str]] = defaultdict(list)
        for group in sorted(self._members, key=lambda name: (len(self._members[name]), name)):
            for line in self._members[group]:
                self._of[line].append(group)
        self._struck: dict[str, set[LineId]] = defaultdict(set)
        for line, row in rows.items():
            if row.incident:
                self._struck[row.incident].add(line)
        self._known = {group for group, struck in self._struck.items() if struck}
        """Groups whose incident lasts since before this tick."""
        self._waiting = {line for line, row in rows.items() if row.breaker.waits}
        """Those of before, which may have nobody to wait for any more."""

    def warned(self, rows: dict[LineId, Row]) -> dict[LineId, Row]:
        """These rows; of a line that is still well while others of its group are not, half of its patience is used up."""
        if not self._struck or not self.rules.acts("groups"):
            return rows
        return {line: self._warned(line, row) for line, row in rows.items()}

    def _warned(self, line: LineId, row: Row) -> Row:
        if row.judgement.bad or row.judgement.health in _SICK:
            return row
        if row.breaker.gate is Gate.CLOSED and any(self._struck.get(group) for group in self._of.get(line, ())):
            return row._replace(judgement=row.judgement._replace(bad=1))
        return row

    def in_turn(self, rows: Mapping[LineId, Row], steps: dict[LineId, Stepped]) -> dict[LineId, Stepped]:
        """The steps of a tick, of which no two lines of a group are on trial: who was due first goes first, others wait.

        `rows` are those before the tick.
        """
        if not self._of or not self.rules.acts("groups"):
            return steps
        wishes = [line for line, done in steps.items() if line in self._of and _begins(rows[line], done.row)]
        trying: set[str] = set()
        for line in sorted(wishes, key=lambda line: (rows[line].breaker.until_ms, line)):
            if any(group in trying or self._is_tried(group, rows, steps) for group in self._of[line]):
                steps[line] = Stepped(wait(rows[line], steps[line].row))
            else:
                trying.update(self._of[line])
        return steps

    def _is_tried(self, group: str, rows: Mapping[LineId, Row], steps: Mapping[LineId, Stepped]) -> bool:
        """Whether a line of the group was on trial before this tick and still is."""
        return any(
            rows[line].breaker.gate is Gate.HALF_OPEN
            and (line not in steps or steps[line].row.breaker.gate is Gate.HALF_OPEN)
            for line in self._members[group]
        )

    def settled(self, before: Mapping[LineId, Row], rows: Mapping[LineId, Row]) -> dict[LineId, Row]:
        """The rows that a tick changes for what their groups share: incidents begun, joined and over, waits ended."""
        if not (self._of or self._struck or self._waiting):
            return {}
        turned = [line for line in before if _turned(before[line], rows[line])]
        found: dict[LineId, Row] = {}
        for line in turned:
            if rows[line].incident and _is_well(rows[line]):
                self._struck[rows[line].incident].discard(line)
                found[line] = rows[line]._replace(incident="")
        for line in turned:
            for group in self._of.get(line, ()) if _is_sick(rows[line]) else ():
                for one in self._newly_struck(group, line, rows):
                    if not found.get(one, rows[one]).incident:
                        self._struck[group].add(one)
                        found[one] = found.get(one, rows[one])._replace(incident=group)
        for line in self._free(before, rows):
            row = found.get(line, rows[line])
            found[line] = row._replace(breaker=row.breaker._replace(waits=False))
        return self._alarmed(rows, found)

    def _alarmed(self, rows: Mapping[LineId, Row], found: dict[LineId, Row]) -> dict[LineId, Row]:
        """With the lines that are still well, where an incident of their group has just begun: `fast` mode's warning."""
        begun = [group for group, struck in self._struck.items() if struck and group not in self._known]
        self._struck = defaultdict(set, {group: struck for group, struck in self._struck.items() if struck})
        self._known = set(self._struck)
        if not begun or not self.rules.questions or not self.rules.acts("groups"):
            return found
        for line in sorted({line for group in begun for line in self._members.get(group, ())}):
            row = found.get(line, rows[line])
            if row.judgement.health not in _SICK and row.breaker.gate is Gate.CLOSED:
                found[line] = row._replace(asked=_halfway(row.asked, self.rules.questions))
        return found

    def _newly_struck(self, group: str, line: LineId, rows: Mapping[LineId, Row]) -> Collection[LineId]:
        """The lines that are part of the group's incident now that this line is sick too."""
        if self._struck.get(group):
            return (line,)
        sick = [one for one in self._members[group] if _is_sick(rows[one])]
        since = rows[line].bad_ms - self.rules.guard.group_ms
        struck = [one for one in sick if rows[one].bad_ms >= since]
        return struck if len(struck) >= max(_LEAST, -(-len(self._members[group]) // 2)) else ()

    def _free(self, before: Mapping[LineId, Row], rows: Mapping[LineId, Row]) -> list[LineId]:
        """Lines that waited for a trial of their group which is over."""
        left = [line for line, row in before.items() if _ends(row, rows[line]) and line in self._of]
        asked = {mate for line in left for group in self._of[line] for mate in self._members[group]}
        asked, self._waiting = asked | (self._waiting & rows.keys()), set()
        return [
            line
            for line in sorted(asked)
            if rows[line].breaker.waits
            and not any(
                rows[mate].breaker.gate is Gate.HALF_OPEN
                for group in self._of.get(line, ())
                for mate in self._members[group]
            )
        ]


def _halfway(asked: Asked, questions: Sequence[Question]) -> Asked:
    """Sums with one tick of the dwell used up for everything that makes a line degraded."""
    last = asked.sums or (0,) * len(questions)
    sums = tuple(
        max(total, question.height * (question.dwell - 1) // question.dwell) if question.zone is Zone.D else total
        for total, question in zip(last, questions, strict=True)
    )
    return asked._replace(sums=sums)


def _is_sick(row: Row) -> bool:
    return row.judgement.health in _SICK and bool(row.bad_ms)


def _is_well(row: Row) -> bool:
    return row.judgement.health is Health.HEALTHY and row.breaker.gate is Gate.CLOSED


def _turned(before: Row, after: Row) -> bool:
    """Whether the line became sick or well."""
    return (_is_sick(before), _is_well(before)) != (_is_sick(after), _is_well(after))


def _begins(before: Row, after: Row) -> bool:
    return before.breaker.gate is Gate.OPEN and after.breaker.gate is Gate.HALF_OPEN


def _ends(before: Row, after: Row) -> bool:
    return before.breaker.gate is Gate.HALF_OPEN and after.breaker.gate is not Gate.HALF_OPEN
