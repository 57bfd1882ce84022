"""The journal: everything that enters a ledger, on disk before it counts, and everything a ledger decides.

`append` never waits and never fails; one writer thread commits what was appended in groups. A disk that hangs or refuses
stops the journal, never the judge: the alarm says so and `durable` answers False. What waited is written once the disk takes
records again; what was lost by then is a gap, marked and counted, behind which the ledgers are written anew. Knows nothing
of what a ledger does with a record.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from reachline import __version__
from reachline.core.ledger import Ledger
from reachline.core.still import Still, still
from reachline.errors import JournalError, LocalProtocolError
from reachline.model import Scope, Seconds
from reachline.store.items import Cut, Entry, Mark, Opening
from reachline.store.records import Gap, Record, Ticked
from reachline.store.recover import Recovered, recover
from reachline.store.retention import Keep
from reachline.store.segment import ROOT, Meta, Segment, SegmentWriter, Stored, create, listed, settle, size_of
from reachline.store.writer import HANGS, Writer

__all__ = ["Journal", "Recovered", "recover"]

log = logging.getLogger(__name__)

SEGMENT: Final[Seconds] = 3_600.0
"""An hour: what one `replay` or one retention step takes at a time."""
RESUME: Final[Seconds] = 30.0
"""A restart reads at most this much evidence (and what the writer had not committed is lost with the process)."""
_FREEZING: Final = 100
"""A resume point may cost the writer a hundredth of its time: after one of 0.5 s the next is 50 s away at least."""
_LOOKED_AT: Final = 48
"""Older segments opened at a start: two days, as far back as anything but `replay` reads; some 20 ms."""
_RETRY: Final[Seconds] = 1.0
"""How often a refused disk is asked again."""


class Journal:
    """An open journal. `append` and `follow` may be called from any thread; a ledger's own thread keeps this order:
    append its evidence, then give it the same evidence; close it, then append the tick at once.
    """

    @classmethod
    def open(
        cls,
        directory: Path | str,
        *,
        segment: Seconds = SEGMENT,
        resume: Seconds = RESUME,
        keep_age: Seconds | None = None,
        keep_bytes: int | None = None,
    ) -> Journal:
        """A new epoch in `directory`, on disk before this returns. JournalError where another center writes there,
        where a newer release wrote it, or where the disk refuses.
        """
        folder = Path(directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = _lock(folder)
        except OSError as error:
            raise JournalError(f"{folder}: cannot keep a journal here: {error.strerror or error}") from error
        try:
            damaged = _settled(folder)
            meta, began_ns = _next_meta(folder), time.monotonic_ns()
            writer = Writer(folder, SegmentWriter(create(folder, meta), meta), Keep(keep_age, keep_bytes))
        except (apsw.Error, OSError) as error:
            os.close(lock)
            raise JournalError(f"{folder}: cannot write a journal here: {error}") from error
        except JournalError as error:
            os.close(lock)
            raise JournalError(f"{error}; to begin anew, give this center another directory") from error
        journal = cls(writer, meta, lock=lock, began_ns=began_ns, segment=segment, resume=resume)
        journal.damaged = damaged
        return journal

    def __init__(
        self, writer: Writer, meta: Meta, *, lock: int, began_ns: int, segment: Seconds, resume: Seconds
    ) -> None:
        """`began_ns` is the monotonic moment of `meta.opened_ms`: laying out a file takes time that counts."""
        self._writer, self._lock = writer, lock
        self._segment_ms, self._resume_ms = round(segment * 1_000), round(resume * 1_000)
        self._start_ms, self._start_ns = meta.opened_ms, began_ns
        self.epoch = meta.epoch
        self.damaged: tuple[str, ...] = ()
        """Older segments found unreadable at the start: nothing here depends on them, `replay` says what is wrong."""
        self._appending = threading.RLock()
        """Guards everything below: sequence numbers, ledgers, due times, and the order of the writer's queue."""
        self._next = meta.first
        self._ledgers: Mapping[Scope, Ledger] = {}
        self._cut_ms = meta.opened_ms
        self._mark_ms = meta.opened_ms
        self._retry_at: Seconds | None = None
        self._closed = False
        writer.start()

    @property
    def alarm(self) -> str:
        """Why records cannot be written now; empty while they can."""
        return self._writer.alarm

    @property
    def lost(self) -> int:
        """Records lost to refused writes since the journal was opened."""
        return self._writer.lost

    @property
    def is_marking(self) -> bool:
        """Whether a resume point is being made, behind what is durable already."""
        return self._writer.is_marking

    def figures(self) -> dict[str, float]:
        """What there is to watch: `alarm` (1 while records do not get to the disk), `lost`, `waiting`, `age` of the oldest,
        `hung` (times the disk hung), `committed`, `segments`, `bytes`, `damaged`.
        """
        paths = listed(self._writer.directory)
        return {
            "alarm": float(bool(self.alarm)),
            "lost": float(self.lost),
            "waiting": float(self._writer.waiting),
            "age": self._writer.age,
            "hung": float(self._writer.hung),
            "committed": float(self._writer.committed),
            "segments": float(len(paths)),
            "damaged": float(len(self.damaged)),
            "bytes": float(sum(map(size_of, paths))),
        }

    def timeline(self) -> Callable[[], int]:
        """The journal's clock: ms since its epoch, monotonic, never behind anything recorded, blind to wall steps."""
        start_ms, start_ns = self._start_ms, self._start_ns
        return lambda: start_ms + (time.monotonic_ns() - start_ns) // 1_000_000

    def follow(self, ledgers: Mapping[Scope, Ledger]) -> int:
        """From here on these ledgers' records are kept; their state is the first record of each. Replaces the last set.

        The sequence number of the last opening, for `durable`.
        """
        with self._appending:
            self._ledgers = dict(ledgers)
            return self._cut(self.timeline()(), continues=False)

    def append(self, record: Record) -> int:
        """The record's sequence number; it will be on disk within a group commit, or `alarm` says why not."""
        with self._appending:
            if self._closed:
                raise LocalProtocolError("append to a closed journal")
            if not isinstance(record, Ticked):
                self._before_evidence(record.at_ms)
            sequence = self._take()
            self._writer.put(Entry(sequence, record))
            return sequence

    async def durable(self, sequence: int) -> bool:
        """True once the record of that number is on disk; False as soon as it is known that it will not be, and while the
        disk hangs: then it may still get there, but nobody should wait for that.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        answer = self._writer.watch(sequence, loop, future)
        if answer is not None:
            return answer
        try:
            while not future.done() and (patience := HANGS - self._writer.age) > 0:
                await asyncio.wait((future,), timeout=patience)
            return future.done() and future.result()
        finally:
            self._writer.forget(future)

    def flush(self, timeout: Seconds) -> bool:
        """`durable` of everything appended so far, for callers without a loop; False also when `timeout` passes."""
        with self._appending:
            newest = self._next - 1
        return self._writer.wait(newest, timeout)

    def close(self) -> None:
        """Everything appended is committed, the segment is one file, the directory is free. Twice is once."""
        with self._appending:
            if self._closed:
                return
            self._closed = True
        self._writer.stop()
        os.close(self._lock)

    def _take(self) -> int:
        self._next += 1
        return self._next - 1

    def _before_evidence(self, at_ms: int) -> None:
        """Just before evidence is appended every ledger stands where its records say: the moment to write it down whole."""
        if self._writer.refused:
            self._retry(at_ms)
        elif at_ms - self._cut_ms >= self._segment_ms:
            self._cut(at_ms, continues=True)
        elif self._ledgers and at_ms >= self._mark_ms:
            self._writer.put(Mark(self._next - 1, at_ms, self._held(at_ms)))

    def _retry(self, at_ms: int) -> None:
        if self._writer.hangs:
            return  # a writer that is stuck can tell nothing of the disk
        if self._retry_at is None:
            self._retry_at = time.monotonic() + _RETRY
        elif time.monotonic() >= self._retry_at:
            self._retry_at = None
            self._cut(at_ms, continues=False, gap=True)

    def _held(self, at_ms: int) -> tuple[tuple[Scope, Still], ...]:
        """All ledgers as they stand; the writer turns them into bytes in its own time."""
        self._mark_ms = at_ms + max(self._resume_ms, round(self._writer.freezing * 1_000) * _FREEZING)
        return tuple((scope, still(ledger)) for scope, ledger in self._ledgers.items())

    def _cut(self, at_ms: int, *, continues: bool, gap: bool = False) -> int:
        """A new segment that opens with all ledgers; the current one if nothing is in it yet."""
        lost = self._writer.forgive() if gap else None
        entries: list[Entry | Opening] = []
        if lost is not None:
            record = Gap(at_ms=at_ms, since_ms=lost.since_ms, lost=lost.records, reason=lost.reason)
            entries.append(Entry(self._take(), record))
        entries += [Opening(self._take(), at_ms, scope, ledger, continues) for scope, ledger in self._held(at_ms)]
        unix_ms = time.time_ns() // 1_000_000
        self._writer.put(Cut(tuple(entries), at_ms, unix_ms))
        self._cut_ms = at_ms
        return self._next - 1


def _lock(directory: Path) -> int:
    """The directory is ours until the process ends, however it ends; JournalError names who has it."""
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise JournalError(
            f"{directory}: another center (process {holder}) writes this journal; stop it, or give this one its own directory"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def _next_meta(directory: Path) -> Meta:
    """What the next segment of this journal begins with: everything in it goes up, whatever the wall clock says."""
    unix_ms = time.time_ns() // 1_000_000
    newest, last = _newest(directory)
    if newest is None:
        return Meta(
            release=__version__,
            epoch=unix_ms // 1_000,
            number=1,
            first=1,
            chain=ROOT,
            opened_ms=0,
            opened_unix_ms=unix_ms,
        )
    behind = newest.opened_ms if last is None else max(newest.opened_ms, last.at_ms)
    return Meta(
        release=__version__,
        epoch=max(newest.epoch + 1, unix_ms // 1_000),
        number=newest.number + 1,
        first=newest.first if last is None else last.seq + 1,
        chain=newest.chain if last is None else last.seal,
        opened_ms=max(newest.since(unix_ms / 1_000), behind + 1),
        opened_unix_ms=unix_ms,
    )


def _newest(directory: Path) -> tuple[Meta | None, Stored | None]:
    """The newest segment and the record that ends it."""
    paths = listed(directory)
    if not paths:
        return None, None
    with Segment(paths[-1]) as segment:
        return segment.meta, segment.last()


def _settled(directory: Path) -> tuple[str, ...]:
    """Logs that a killed writer left are folded in. Older segments that are damaged, by name: they do not stop a center."""
    damaged = []
    paths = listed(directory)
    for path in paths:
        with suppress(apsw.Error):  # whoever reads it says what is wrong
            settle(path)
    for path in paths[:-1][-_LOOKED_AT:]:
        try:
            Segment(path).close()
        except JournalError as error:
            damaged.append(path.name)
            log.warning("segment_damaged", extra={"segment": path.name, "reason": str(error)})
    return tuple(damaged)
