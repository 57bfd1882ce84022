"""What a journal remembers of one line: its changes, and its explanation at any moment. Reads only, also while a center writes."""

from __future__ import annotations

import difflib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from reachline.core import telling
from reachline.core.explain import Explanation, explain
from reachline.core.ledger import Ledger
from reachline.core.vitals import Beside
from reachline.errors import JournalError
from reachline.model import Change, LineId, Seconds
from reachline.store.records import Bodies, RecordKind, Ticked
from reachline.store.recover import restore
from reachline.store.segment import Meta, Segment, listed

__all__ = ["Recent", "Told", "changes", "recent", "told"]

log = logging.getLogger(__name__)

_CHANGES: Final = 61
"""The deciding change and what an explanation tells before it."""
_SEGMENTS: Final = 48
"""Two days of hourly segments: what is older explains nothing at 3 am, and a quiet line would have all of them read."""
_LIVE_TICKS: Final = 3
"""A journal whose newest record is at most this many ticks old belongs to a running center: now is now."""


class Recent(NamedTuple):
    """The newest decisions, oldest first, each with the epoch that made it; and the segments that could not be read."""

    decisions: tuple[tuple[int, Change], ...]
    damaged: tuple[str, ...]


class Told(NamedTuple):
    """An explanation, and the clock of the segment it comes from."""

    explanation: Explanation
    meta: Meta
    ended: Seconds | None
    """Unix time of the newest record where the journal does not reach the moment asked for, else None."""

    def text(self, beside: Sequence[Beside] = ()) -> str:
        """For people, in local time; says so where the journal ends before the moment asked for."""
        clock = _clock(self.meta.unix)
        told = telling.text(self.explanation, clock, beside)
        if self.ended is None:
            return told
        return f"{told}\n\nThe journal ends at {clock(self.explanation.now_ms)}: this is how the line stood then."

    def document(self, beside: Sequence[Beside] = ()) -> dict[str, object]:
        """For scripts; `text` is the one above. `beside`: what who asks knows of the vantages, which no journal does."""
        found = telling.document(self.explanation, _clock(self.meta.unix), self.meta.unix, beside)
        return found | {"text": self.text(beside), "ended": self.ended}


def told(directory: Path | str, line: LineId, *, at: Seconds | None = None) -> Told:
    """The line explained as it stood at Unix time `at` (None: now). JournalError where the journal cannot say."""
    wanted = time.time() if at is None else at
    with _segment_at(Path(directory), wanted) as segment:
        meta = segment.meta
        asked_ms = meta.since(wanted)
        found = restore(segment, until_ms=None if at is None else asked_ms)
    ledger = _ledger_of(line, tuple(found.ledgers.values()), Path(directory))
    is_reached = asked_ms - found.last_ms <= _LIVE_TICKS * ledger.rules.tick_ms
    now_ms = max(asked_ms, found.last_ms) if is_reached else found.last_ms
    explanation = explain(
        ledger.view(line, now_ms), changes(directory, line, until_ms=now_ms), rules=ledger.rules, now_ms=now_ms
    )
    return Told(explanation, meta, None if is_reached else meta.unix(found.last_ms))


def changes(
    directory: Path | str, line: LineId, *, until_ms: int | None = None, limit: int = _CHANGES
) -> tuple[Change, ...]:
    """The newest changes of a line at or before `until_ms`, newest first, from the newest two days of segments."""
    found: list[Change] = []
    for path in reversed(listed(Path(directory))[-_SEGMENTS:]):
        here = [change for change in _decided(path, line) if until_ms is None or change.at_ms <= until_ms]
        found += reversed(here)
        if len(found) >= limit:
            break
    return tuple(found[:limit])


def recent(directory: Path | str, *, segments: int, most: int) -> Recent:
    """At most this many decisions, of the newest segments. One that is damaged is named and passed over, for nothing depends
    on it here; what stood before the damage counts.
    """
    found: deque[tuple[int, Change]] = deque(maxlen=most)
    damaged = []
    for path in listed(Path(directory))[-segments:]:
        try:
            with Segment(path) as segment:
                found.extend((segment.meta.epoch, change) for change in _changes_in(segment))
        except JournalError as error:
            damaged.append(path.name)
            log.warning("segment_skipped", extra={"segment": path.name, "reason": str(error)})
    return Recent(tuple(found), tuple(damaged))


def _decided(path: Path, line: LineId) -> Iterator[Change]:
    with Segment(path) as segment:
        yield from (change for change in _changes_in(segment) if change.line == line)


def _changes_in(segment: Segment) -> Iterator[Change]:
    bodies = Bodies()
    for stored in segment.records(kind=RecordKind.DECIDED):
        ticked = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
        if isinstance(ticked, Ticked):
            yield from ticked.changes


def _segment_at(directory: Path, unix: Seconds) -> Segment:
    """The newest segment that holds something and begins at or before `unix`."""
    begins = None
    for path in reversed(listed(directory)):
        segment = Segment(path)
        if segment.last() is not None:
            begins = segment.meta.unix(segment.meta.opened_ms)
            if segment.meta.since(unix) >= segment.meta.opened_ms:
                return segment
        segment.close()
    if begins is None:
        raise JournalError(f"{directory}: no journal here, or an empty one")
    raise JournalError(f"{directory}: the journal begins at {_local(begins)}, after the moment asked for")


def _ledger_of(line: LineId, ledgers: tuple[Ledger, ...], directory: Path) -> Ledger:
    for ledger in ledgers:
        if line in ledger.lines:
            return ledger
    known = [known for ledger in ledgers for known in ledger.lines]
    near = difflib.get_close_matches(line, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"{len(known)} lines are known, e.g. {', '.join(known[:3])}"
    raise JournalError(f"{directory}: no line {line} then; {hint}")


def _clock(unix: Callable[[int], Seconds]) -> telling.Clock:
    return lambda ms: _local(unix(ms))


def _local(unix: Seconds) -> str:
    """Local time; with its date where that is not today's."""
    moment = time.localtime(unix)
    today = time.localtime()
    is_today = (moment.tm_year, moment.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", moment)
