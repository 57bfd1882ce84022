"""What a checkpoint keeps of trust and business: held still beside the rows, and made a ledger's again. Plain lists and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reachline.core.baseline import Heard, Known
from reachline.core.business import Business, Span
from reachline.core.conflict import Matter
from reachline.core.scope import Key, Seen
from reachline.core.silence import Beat
from reachline.core.trust import Trust
from reachline.model import Kind, LineId, VantageId

if TYPE_CHECKING:
    from reachline.core.ledger import Ledger

__all__ = ["Kept", "call_rows", "kept", "others", "thawed"]

_Rows = Mapping[LineId, Mapping[Key, Seen]]


class Kept(NamedTuple):
    """References to values that nobody changes any more."""

    trusts: Mapping[VantageId, Trust]
    beats: Mapping[VantageId, Beat]
    spoke: Mapping[VantageId, int]
    closed_ms: int
    matters: Mapping[LineId, Matter]
    turned: Mapping[LineId, int]
    plane_ms: int | None
    pending: _Rows
    spans: tuple[tuple[int, _Rows], ...]
    said: Mapping[LineId, Mapping[Kind, Mapping[VantageId, Heard]]]
    known: Mapping[LineId, Mapping[Kind, Known]]


def kept(ledger: Ledger) -> Kept:
    """As it stands. Of calls only those since the last tick are still added to: they are copied."""
    credit, hearing, business = ledger.poll.credit, ledger.hearing, ledger.hearing.business
    return Kept(
        dict(credit.trusts),
        dict(ledger.poll.beats),
        dict(credit.spoke),
        credit.closed_ms,
        dict(hearing.matters),
        dict(hearing.turned),
        hearing.plane_ms,
        {line: dict(rows) for line, rows in business.pending.rows.items()},
        tuple((at_ms, span.rows) for at_ms, span in business.spans),
        dict(ledger.poll.habits.said),
        dict(ledger.poll.habits.known),
    )


def call_rows(state: Kept) -> Iterator[list[object]]:
    """Every row of calls as [end of its tick or -1, line, client, service, counts…], in an order of its own kind."""
    for at_ms, rows in (*state.spans, (-1, state.pending)):
        for line in sorted(rows):
            for (client, service), seen in sorted(rows[line].items()):
                yield [at_ms, line, client, service, *seen]


def others(state: Kept) -> dict[str, object]:
    """All but the rows of calls."""
    return {
        "beats": state.beats,
        "closed_ms": state.closed_ms,
        "known": state.known,
        "matters": state.matters,
        "plane_ms": state.plane_ms,
        "said": state.said,
        "spans": [at_ms for at_ms, _ in state.spans],
        "spoke": state.spoke,
        "trusts": state.trusts,
        "turned": state.turned,
    }


def thawed(document: Mapping[str, Any], calls: list[list[Any]], ledger: Ledger) -> None:
    """Give `ledger` what `others` and `call_rows` made of another."""
    poll, hearing = ledger.poll, ledger.hearing
    credit = poll.credit
    credit.trusts = {VantageId(name): Trust(*trust) for name, trust in document["trusts"].items()}
    credit.spoke = {VantageId(name): count for name, count in document["spoke"].items()}
    credit.closed_ms = document["closed_ms"]
    poll.beats = {VantageId(name): Beat(*beat) for name, beat in document["beats"].items()}
    poll.habits.restore(document["said"], document["known"])
    hearing.matters = {LineId(line): _matter(matter) for line, matter in document["matters"].items()}
    hearing.turned = {LineId(line): at_ms for line, at_ms in document["turned"].items()}
    hearing.plane_ms = document["plane_ms"]
    hearing.business = _business(document["spans"], calls)


def _matter(record: list[Any]) -> Matter:
    held, *rest = record
    return Matter(tuple((name, level) for name, level in held), *rest)


def _business(ends: list[int], calls: list[list[Any]]) -> Business:
    """The rows of each tick's span are in order: where two ticks ended at one ms, one that is not begins the next."""
    found = Business()
    found.spans = tuple((at_ms, Span()) for at_ms in ends)
    left: dict[int, list[Span]] = {-1: [found.pending]}
    for at_ms, span in found.spans:
        left.setdefault(at_ms, []).append(span)
    last: tuple[object, ...] = ()
    for at_ms, line, client, service, *seen in calls:
        spans, row = left[at_ms], (at_ms, line, client, service)
        if len(spans) > 1 and last[:1] == row[:1] and row <= last:
            spans.pop(0)
        spans[0].add(LineId(line), (client, service), Seen(*seen))
        last = row
    return found
