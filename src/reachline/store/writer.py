"""The one thread that writes a journal: takes what was appended, commits it in groups, cuts and drops segments.

Whatever the disk does, nobody who appends ever notices more than a flag: a disk that hangs is an alarm by the age of the
oldest record, one that refuses, or hangs for too long, costs records, which are counted. Knows nothing of what ledgers do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from reachline import __version__
from reachline.errors import JournalError
from reachline.model import Seconds
from reachline.store.freezing import BREATH, opened, resumed
from reachline.store.items import Cut, Entry, Item, Mark, Opening, memory, numbers
from reachline.store.retention import Keep, Retention
from reachline.store.segment import Meta, Resume, SegmentWriter, create, discard

__all__ = ["HANGS", "Lost", "Writer"]

log = logging.getLogger(__name__)

GROUP: Final[Seconds] = 0.01
"""How long a commit waits for company. With the commit itself (a few ms) a record is on disk within 20 ms."""
HANGS: Final[Seconds] = 2.0
"""Nobody waits longer for a record that does not get to the disk: a hundred group commits, and well below a tick of 10 s."""
_MOST_BYTES: Final = 128 * 2**20
"""Memory while the disk hangs: half a minute of 10 000 lines by five vantages…"""
_MOST_AGE: Final[Seconds] = 60.0
"""…and of few lines a minute: what is older is worth less than ledgers written anew."""


class Lost(NamedTuple):
    """What a refusing disk cost."""

    records: int
    since_ms: int
    reason: str


_Waiter = tuple[int, asyncio.AbstractEventLoop, "asyncio.Future[bool]"]


class Writer:
    """Owns the current segment once started. Everybody else puts items and asks what became of them."""

    def __init__(self, directory: Path, segment: SegmentWriter, keep: Keep) -> None:
        self.directory, self._segment = directory, segment
        self._retention = Retention(directory, keep)
        self._ready = threading.Condition()
        """Guards the queue, the waiters, what is committed, and what is refused."""
        self._queue: deque[Item] = deque()
        self._bytes = 0
        """Of the queue in memory, and of the batch being written."""
        self._queued_at: Seconds | None = None
        """When the oldest item in the queue was put…"""
        self._taken_at: Seconds | None = None
        """…and the oldest of the batch being written."""
        self._batch_bytes = 0
        self._waiters: list[_Waiter] = []
        self._committed = segment.meta.first - 1
        self._committed_ms = segment.meta.opened_ms
        self._refused = ""
        self._missing = range(0)
        """Sequence numbers of the newest gap."""
        self._stopping = threading.Event()
        self._stopped = False
        self._alarm = ""
        self.lost = 0
        self.hung = 0
        self._marking: Generator[None, None, Resume] | None = None
        """The resume point being made; the thread's own…"""
        self._newer: Generator[None, None, Resume] | None = None
        """…and the newest one behind it."""
        self.freezing: Seconds = 0.0
        """What turning all ledgers into bytes took the last time."""
        self._lost_since_ms = 0
        self._lost_here = 0
        self._thread = threading.Thread(target=self._run, name="reachline-journal", daemon=True)

    @property
    def refused(self) -> bool:
        """Whether what is put now is lost."""
        return bool(self._refused)

    @property
    def alarm(self) -> str:
        """Why records do not get to the disk now; empty while they do."""
        return self._alarm or (f"no record has got to the disk for over {HANGS:g} s" if self.hangs else "")

    @property
    def hangs(self) -> bool:
        """Whether nothing gets to the disk, which does not say why."""
        return self.age > HANGS

    @property
    def age(self) -> Seconds:
        """How long the oldest record that is neither on disk nor lost has waited."""
        with self._ready:
            oldest = self._queued_at if self._taken_at is None else self._taken_at
        return 0.0 if oldest is None else time.monotonic() - oldest

    @property
    def is_marking(self) -> bool:
        """Whether a resume point is being made."""
        return self._marking is not None

    @property
    def waiting(self) -> int:
        """Records no commit has been begun for."""
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
            if self._queued_at is None:
                self._queued_at = time.monotonic()
            self._queue.append(item)
            self._bytes += memory(item)
            if too_much := self._too_much():
                self._refuse(too_much, ())
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

    def forget(self, future: asyncio.Future[bool]) -> None:
        """Nobody waits for this one any more."""
        with self._ready:
            self._waiters = [waiter for waiter in self._waiters if waiter[2] is not future]

    def wait(self, seq: int, timeout: Seconds) -> bool:
        """Whether `seq` is on disk within `timeout`."""
        with self._ready:
            self._ready.wait_for(lambda: self._answer(seq) is not None, timeout)
            return self._answer(seq) is True

    def _answer(self, seq: int) -> bool | None:
        if seq in self._missing or (seq > self._committed and (self._refused or self._stopped)):
            return False
        return True if seq <= self._committed else None

    def _too_much(self) -> str:
        if self._bytes > _MOST_BYTES:
            return f"the disk is too slow: {len(self._queue)} records wait, some {self._bytes >> 20} MB"
        if self.age > _MOST_AGE:
            return f"the disk hangs: a record has waited for over {_MOST_AGE:g} s, and {len(self._queue)} behind it"
        return ""

    def _run(self) -> None:
        while self._waited():
            batch: list[Item] = []
            try:
                self._linger()
                batch = self._take()
                self._write_all(batch)
            except (apsw.Error, OSError, JournalError) as error:
                self._give_up(str(error), batch)
            except Exception as error:  # the thread must live on and say so: without it every waiter hangs
                log.exception("journal_writer_failed")
                self._give_up(f"{type(error).__name__}: {error}", batch)
            self._done()
        with suppress(apsw.Error, OSError):
            self._segment.close()
        with self._ready:
            self._stopped = True
            self._ready.notify_all()
            late = self._settled()
        _tell(late)

    def _waited(self) -> bool:
        """True as soon as there is something to do; False at the end."""
        with self._ready:
            self._ready.wait_for(lambda: self._queue or self._marking is not None or self._stopping.is_set())
            return bool(self._queue) or self._marking is not None

    def _linger(self) -> None:
        """A commit waits for company; a resume point is made meanwhile, and the rest of the newest one at the end."""
        if self._stopping.is_set() and self._newer is not None:
            self._next_mark()
        if self._marking is None:
            self._stopping.wait(GROUP)
            return
        until, began = time.monotonic() + GROUP, time.thread_time()
        try:
            while self._stopping.is_set() or time.monotonic() < until:
                next(self._marking)
                self._stopping.wait(BREATH)
            self.freezing += time.thread_time() - began
        except StopIteration as done:
            self.freezing += time.thread_time() - began
            self._segment.write((), done.value)
            self._next_mark()
            self._retention.apply(self._segment, self._committed_ms)

    def _mark(self, mark: Mark) -> None:
        """One is made to its end before the next: whoever asks for too many gets the newest."""
        made = resumed(mark, self._segment.bodies())
        if self._marking is None:
            self._marking, self.freezing = made, 0.0
        else:
            self._newer = made

    def _next_mark(self) -> None:
        if self._newer is not None:
            self.freezing = 0.0
        self._marking, self._newer = self._newer, None

    def _unmark(self) -> None:
        self._marking = self._newer = None

    def _take(self) -> list[Item]:
        """The next group."""
        with self._ready:
            batch = list(self._queue)
            self._queue.clear()
            self._taken_at, self._queued_at = self._queued_at, None
            self._batch_bytes = self._bytes
            return batch

    def _done(self) -> None:
        """The group is on disk, or lost."""
        with self._ready:
            waited, self._taken_at = self.age if self._taken_at is not None else 0.0, None
            self._bytes -= self._batch_bytes
            self._batch_bytes = 0
            self.hung += waited > HANGS
        if waited > HANGS:
            log.warning("journal_disk_hung", extra={"waited": round(waited, 1), "lost": self.lost})

    def _write_all(self, batch: list[Item]) -> None:
        """Entries up to a cut or mark go into one transaction; then the cut or mark."""
        pending: list[Entry] = []
        for item in batch:
            match item:
                case Entry():
                    pending.append(item)
                case Mark():
                    self._commit(pending)
                    pending = []
                    self._mark(item)
                case Cut():
                    self._commit(pending)
                    pending = []
                    self._cut(item)
                    self._retention.apply(self._segment, item.at_ms)
        self._commit(pending)

    def _commit(self, pending: list[Entry]) -> None:
        if pending:
            self._segment.write(pending)
            self._committed_to(pending)

    def _cut(self, cut: Cut) -> None:
        self._unmark()  # the new segment opens with all ledgers: a resume point in the old one serves nobody
        began = time.thread_time()
        entries = [self._entry(each) for each in cut.entries]
        self.freezing = time.thread_time() - began
        self._open(cut, entries)
        self._committed_to(entries)

    def _entry(self, each: Entry | Opening) -> Entry:
        if isinstance(each, Entry):
            return each
        return Entry(each.seq, opened(each, lambda: self._stopping.wait(BREATH)))

    def _open(self, cut: Cut, entries: list[Entry]) -> None:
        if self._segment.fresh:
            self._segment.write(entries)
            return
        first = entries[0].seq if entries else self._committed + 1
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
            segment.write(entries)
        except apsw.Error:
            with suppress(apsw.Error, OSError):
                segment.close()
            discard(path)
            raise
        old, self._segment = self._segment, segment
        with suppress(apsw.Error):  # its log stays beside it and is folded in at the next start
            old.close()

    def _committed_to(self, entries: Iterable[Entry]) -> None:
        newest = max(entries, default=None, key=lambda entry: entry.seq)
        if newest is None:
            return
        with self._ready:
            self._committed, self._committed_ms = newest.seq, newest.record.at_ms
            if self._alarm and not self._refused:
                log.warning("journal_recovered", extra={"reason": self._alarm, "lost": self.lost})
                self._alarm = ""
            self._ready.notify_all()
            done = self._settled()
        _tell(done)

    def _give_up(self, reason: str, batch: list[Item]) -> None:
        log.error("journal_write_refused", extra={"reason": reason, "directory": str(self.directory)})
        self._unmark()
        with self._ready:
            self._refuse(reason, batch)
            done = self._settled()
        _tell(done)

    def _refuse(self, reason: str, batch: Iterable[Item]) -> None:
        if not self._lost_here:
            self._missing = range(0)
            self._lost_since_ms = self._committed_ms
        self._refused = self._alarm = reason
        self._lose([*batch, *self._queue])
        self._queue.clear()
        self._queued_at, self._bytes = None, self._batch_bytes
        self._ready.notify_all()

    def _lose(self, items: Iterable[Item]) -> None:
        for item in items:
            for seq in numbers(item):
                if seq > self._committed:
                    self.lost += 1
                    self._lost_here += 1
                    # The batch being written may turn out lost after what was put behind it.
                    missing = self._missing or range(seq, seq)
                    self._missing = range(min(missing.start, seq), max(missing.stop, seq + 1))

    def _settled(self) -> list[tuple[_Waiter, bool]]:
        """Waiters whose answer is known; they no longer wait."""
        known = [(waiter, self._answer(waiter[0])) for waiter in self._waiters]
        self._waiters = [waiter for waiter, answer in known if answer is None]
        return [(waiter, answer) for waiter, answer in known if answer is not None]


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
