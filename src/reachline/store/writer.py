"""The one thread that writes a journal: takes what was appended, commits it in groups, cuts and drops segments.

Whatever the disk does, nobody who appends ever notices more than a flag. Knows nothing of ledgers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from reachline import __version__
from reachline.errors import JournalError
from reachline.model import Seconds
from reachline.store.records import Record
from reachline.store.segment import Meta, Resume, Segment, SegmentWriter, create, discard, listed, size_of

__all__ = ["Cut", "Entry", "Item", "Keep", "Lost", "Mark", "Writer"]

log = logging.getLogger(__name__)

GROUP: Final[Seconds] = 0.01
"""How long a commit waits for company. With the commit itself (a few ms) a record is on disk within 20 ms."""
_MOST_WAITING: Final = 100_000
"""Records in memory while the disk hangs: some 20 s of 10 000 lines by five vantages in parts of 100, 100 MB at worst."""


class Entry(NamedTuple):
    """One record with its number."""

    seq: int
    record: Record


class Cut(NamedTuple):
    """A new segment begins with these entries."""

    entries: tuple[Entry, ...]
    at_ms: int
    unix_ms: int


class Mark(NamedTuple):
    """A resume point behind everything put before it."""

    resume: Resume


Item = Entry | Cut | Mark


class Keep(NamedTuple):
    """What retention leaves: segments younger than `age`, `size` bytes in all; None: no limit. Never less than the newest."""

    age: Seconds | None = None
    size: int | None = None


class Lost(NamedTuple):
    """What a refusing disk cost."""

    records: int
    since_ms: int
    reason: str


_Waiter = tuple[int, asyncio.AbstractEventLoop, "asyncio.Future[bool]"]


class Writer:
    """Owns the current segment once started. Everybody else puts items and asks what became of them."""

    def __init__(self, directory: Path, segment: SegmentWriter, keep: Keep) -> None:
        self.directory, self._segment, self._keep = directory, segment, keep
        self._opened: dict[Path, int] = {}
        self._ready = threading.Condition()
        """Guards the queue, the waiters, what is committed, and what is refused."""
        self._queue: deque[Item] = deque()
        self._waiters: list[_Waiter] = []
        self._committed = segment.meta.first - 1
        self._committed_ms = segment.meta.opened_ms
        self._refused = ""
        self._missing = range(0)
        """Sequence numbers of the newest gap."""
        self._stopping = threading.Event()
        self._stopped = False
        self.alarm = ""
        self.lost = 0
        self._lost_since_ms = 0
        self._lost_here = 0
        self._thread = threading.Thread(target=self._run, name="reachline-journal", daemon=True)

    @property
    def refused(self) -> bool:
        """Whether what is put now is lost."""
        return bool(self._refused)

    @property
    def waiting(self) -> int:
        """Records not yet on disk."""
        return len(self._queue)

    @property
    def committed(self) -> int:
        """Number of the newest record on disk."""
        return self._committed

    def start(self) -> None:
        """The thread runs until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Everything put so far is tried, then the thread ends and the segment is closed."""
        self._stopping.set()
        with self._ready:
            self._ready.notify_all()
        self._thread.join()

    def put(self, item: Item) -> None:
        """Queued, or counted as lost while the disk refuses."""
        late: list[tuple[_Waiter, bool]] = []
        with self._ready:
            if self._refused:
                self._lose([item])
                return
            self._queue.append(item)
            if len(self._queue) > _MOST_WAITING:
                self._refuse(f"the disk is too slow: {len(self._queue)} records wait", ())
                late = self._settled()
            self._ready.notify()
        if late:
            _tell(late)

    def forgive(self) -> Lost | None:
        """Take items again, to see whether the disk does; what was lost since it refused, None where nothing was."""
        with self._ready:
            lost = Lost(self._lost_here, self._lost_since_ms, self._refused)
            self._refused, self._lost_here = "", 0
            return lost if lost.records else None

    def watch(self, seq: int, loop: asyncio.AbstractEventLoop, future: asyncio.Future[bool]) -> bool | None:
        """Whether `seq` is on disk, or None: `future` will say."""
        with self._ready:
            answer = self._answer(seq)
            if answer is None:
                self._waiters.append((seq, loop, future))
            return answer

    def wait(self, seq: int, timeout: Seconds) -> bool:
        """Whether `seq` is on disk within `timeout`."""
        with self._ready:
            self._ready.wait_for(lambda: self._answer(seq) is not None, timeout)
            return self._answer(seq) is True

    def _answer(self, seq: int) -> bool | None:
        if seq in self._missing or (seq > self._committed and (self._refused or self._stopped)):
            return False
        return True if seq <= self._committed else None

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._write_all(batch)
            except (apsw.Error, OSError, JournalError) as error:
                self._give_up(str(error), batch)
            except Exception as error:  # the thread must live on and say so: without it every waiter hangs
                log.exception("journal_writer_failed")
                self._give_up(f"{type(error).__name__}: {error}", batch)
        with suppress(apsw.Error, OSError):
            self._segment.close()
        with self._ready:
            self._stopped = True
            self._ready.notify_all()
            late = self._settled()
        _tell(late)

    def _take(self) -> list[Item]:
        """The next group; empty at the end."""
        with self._ready:
            self._ready.wait_for(lambda: self._queue or self._stopping.is_set())
        self._stopping.wait(GROUP)
        with self._ready:
            batch = list(self._queue)
            self._queue.clear()
            return batch

    def _write_all(self, batch: list[Item]) -> None:
        """Entries up to a cut or mark go into one transaction; then the cut or mark."""
        pending: list[Entry] = []
        for item in batch:
            match item:
                case Entry():
                    pending.append(item)
                case Mark(resume):
                    self._segment.write(pending, resume)
                    self._commit(pending)
                    pending = []
                    self._retain(self._committed_ms)
                case Cut():
                    if pending:
                        self._segment.write(pending)
                        self._commit(pending)
                        pending = []
                    self._cut(item)
                    self._commit(item.entries)
                    self._retain(item.at_ms)
        if pending:
            self._segment.write(pending)
            self._commit(pending)

    def _cut(self, cut: Cut) -> None:
        if self._segment.fresh:
            self._segment.write(cut.entries)
            return
        first = cut.entries[0].seq if cut.entries else self._committed + 1
        meta = Meta(
            release=__version__,
            epoch=self._segment.meta.epoch,
            number=self._segment.meta.number + 1,
            first=first,
            chain=self._segment.chain,
            opened_ms=cut.at_ms,
            opened_unix_ms=cut.unix_ms,
        )
        path = create(self.directory, meta)
        segment = SegmentWriter(path, meta)
        try:
            segment.write(cut.entries)
        except apsw.Error:
            with suppress(apsw.Error, OSError):
                segment.close()
            discard(path)
            raise
        old, self._segment = self._segment, segment
        with suppress(apsw.Error):  # its log stays beside it and is folded in at the next start
            old.close()

    def _commit(self, entries: Iterable[Entry]) -> None:
        newest = max(entries, default=None, key=lambda entry: entry.seq)
        if newest is None:
            return
        with self._ready:
            self._committed, self._committed_ms = newest.seq, newest.record.at_ms
            if self.alarm and not self._refused:
                log.warning("journal_recovered", extra={"reason": self.alarm, "lost": self.lost})
                self.alarm = ""
            self._ready.notify_all()
            done = self._settled()
        _tell(done)

    def _give_up(self, reason: str, batch: list[Item]) -> None:
        log.error("journal_write_refused", extra={"reason": reason, "directory": str(self.directory)})
        with self._ready:
            self._refuse(reason, batch)
            done = self._settled()
        _tell(done)

    def _refuse(self, reason: str, batch: Iterable[Item]) -> None:
        if not self._lost_here:
            self._missing = range(0)
            self._lost_since_ms = self._committed_ms
        self._refused = self.alarm = reason
        self._lose([*batch, *self._queue])
        self._queue.clear()
        self._ready.notify_all()

    def _lose(self, items: Iterable[Item]) -> None:
        for item in items:
            for entry in (item,) if isinstance(item, Entry) else item.entries if isinstance(item, Cut) else ():
                if entry.seq > self._committed:
                    self.lost += 1
                    self._lost_here += 1
                    self._missing = range(self._missing.start or entry.seq, entry.seq + 1)

    def _settled(self) -> list[tuple[_Waiter, bool]]:
        """Waiters whose answer is known; they no longer wait."""
        known = [(waiter, self._answer(waiter[0])) for waiter in self._waiters]
        self._waiters = [waiter for waiter, answer in known if answer is None]
        return [(waiter, answer) for waiter, answer in known if answer is not None]

    def _retain(self, now_ms: int) -> None:
        """Whole segments go, oldest first, never the one being written, nor while it cannot stand alone."""
        older = [path for path in listed(self.directory) if path != self._segment.path]
        if self._segment.fresh or not older:
            return
        total = size_of(self._segment.path) + sum(map(size_of, older))
        ends = [*map(self._opened_ms, older[1:]), self._segment.meta.opened_ms]
        for path, ended_ms in zip(older, ends, strict=True):
            is_old = self._keep.age is not None and now_ms - ended_ms > self._keep.age * 1_000
            if not is_old and (self._keep.size is None or total <= self._keep.size):
                return
            total -= size_of(path)
            with suppress(OSError):  # tried again at the next mark
                discard(path)
                log.info("segment_dropped", extra={"segment": path.name, "reason": "age" if is_old else "size"})

    def _opened_ms(self, path: Path) -> int:
        if path not in self._opened:
            try:
                with Segment(path) as segment:
                    self._opened[path] = segment.meta.opened_ms
            except JournalError:
                self._opened[path] = self._segment.meta.opened_ms  # unreadable: kept as if new, dropped by size alone
        return self._opened[path]


def _tell(answers: Iterable[tuple[_Waiter, bool]]) -> None:
    """Each loop hears once of all its futures."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[bool], bool]]] = {}
    for (_, loop, future), answer in answers:
        by_loop.setdefault(loop, []).append((future, answer))
    for loop, futures in by_loop.items():
        with suppress(RuntimeError):  # that loop has ended, and its waiters with it
            loop.call_soon_threadsafe(_resolve, futures)


def _resolve(futures: Iterable[tuple[asyncio.Future[bool], bool]]) -> None:
    for future, answer in futures:
        if not future.done():
            future.set_result(answer)
