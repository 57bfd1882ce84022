"""One segment of a journal: an SQLite file that is only appended to, sealed record by record. Knows no thread and no clock.

A segment that holds records begins with the ledgers of all scopes (`Opened`), so that replay, retention and `explain --at`
can start at any of them. Each record's seal is the hash of the one before and of itself: one flipped bit anywhere is found
and named. Beside the records stands one resume point, replaced every half minute, so that a restart reads seconds of
evidence, not an hour.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import apsw
import msgspec

from reachline.core.rules import SEMANTICS
from reachline.errors import JournalError
from reachline.model import Scope, Seconds
from reachline.store.records import SCHEMA, Bodies, Gap, Record, RecordKind, kind_of

__all__ = [
    "ROOT",
    "Meta",
    "Resume",
    "Segment",
    "SegmentWriter",
    "Stored",
    "create",
    "discard",
    "listed",
    "seal",
    "settle",
]

ROOT: Final = bytes(16)
"""What the first seal of a journal follows."""

_SUFFIX: Final = ".db"
_UNFINISHED: Final = ".new"
_COMPANIONS: Final = ("", "-wal", "-shm", "-journal")
_CHUNK: Final = 2_000
"""Records a reader takes in one go: it never holds a snapshot long enough to keep the writer's log from being reset."""
_BUSY_MS: Final = 5_000
_FINISH_MS: Final = 200
"""What waiting for a reader is worth where nothing depends on it."""
_READ: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
_MEND: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
_APPLICATION: Final = 0x52_4C_4A_31
"""`RLJ1` in the file's header, so that `file` and we know what it is."""

_TABLES: Final = """
CREATE TABLE meta(body TEXT NOT NULL);
CREATE TABLE scopes(id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, cluster TEXT NOT NULL);
CREATE TABLE records(seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, scope INTEGER, at_ms INTEGER NOT NULL,
                     body BLOB NOT NULL, seal BLOB NOT NULL);
CREATE INDEX decisions ON records(seq) WHERE kind = 7;
CREATE INDEX ordered ON records(seq) WHERE kind = 9;
CREATE INDEX undone ON records(seq) WHERE kind = 10;
CREATE TABLE resume(scope INTEGER PRIMARY KEY, seq INTEGER NOT NULL, at_ms INTEGER NOT NULL, body BLOB NOT NULL);
"""


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote a segment, by which rules of reading, and where its clock stands."""

    schema: int = SCHEMA
    semantics: int = SEMANTICS
    release: str
    epoch: int
    number: int
    first: int
    """Sequence number its first record gets."""
    chain: bytes
    """The seal its first record follows."""
    opened_ms: int
    opened_unix_ms: int
    """The wall clock when the journal's clock stood at `opened_ms`."""

    def unix(self, at_ms: int) -> Seconds:
        """The wall clock at `at_ms`, as it was when this segment was opened."""
        return (self.opened_unix_ms + at_ms - self.opened_ms) / 1_000

    def since(self, unix: Seconds) -> int:
        """The inverse of `unix`."""
        return round(unix * 1_000) - self.opened_unix_ms + self.opened_ms


class Stored(NamedTuple):
    """One record as it stands in the file."""

    seq: int
    kind: int
    scope: Scope | None
    at_ms: int
    body: bytes
    seal: bytes


class Resume(NamedTuple):
    """A point inside a segment from which recovery may go on: all ledgers and the state of the bodies behind `seq`."""

    seq: int
    at_ms: int
    ledgers: tuple[tuple[Scope, bytes], ...]
    bodies: bytes


def seal(previous: bytes, columns: tuple[int, int, int], scope: Scope | None, body: bytes) -> bytes:
    """The seal of a record that follows `previous`: over seq, kind, at_ms, its scope and the body."""
    digest = hashlib.blake2b(previous, digest_size=16)
    digest.update(struct.pack("<qqq", *columns))
    if scope is not None:
        digest.update(f"{scope.tenant}\x00{scope.cluster}\x00".encode())
    digest.update(body)
    return digest.digest()


def path_of(directory: Path, number: int) -> Path:
    """Where segment `number` lives."""
    return directory / f"segment-{number:08d}{_SUFFIX}"


def listed(directory: Path) -> tuple[Path, ...]:
    """The segments of a journal, oldest first."""
    return tuple(sorted(directory.glob(f"segment-*{_SUFFIX}")))


def discard(path: Path) -> None:
    """The segment and what SQLite keeps beside it are gone; readers that have it open read on."""
    for companion in _COMPANIONS:
        Path(f"{path}{companion}").unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """Bytes on disk, log included."""
    total = 0
    for companion in _COMPANIONS[:2]:
        with suppress(FileNotFoundError):  # a log that was just folded in, a segment that retention just dropped
            total += Path(f"{path}{companion}").stat().st_size
    return total


def settle(path: Path) -> None:
    """Fold the log a killed writer left beside the segment into it, so that one file is all of it."""
    if any(Path(f"{path}{companion}").exists() for companion in _COMPANIONS[1:]):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            _finish(connection)
        finally:
            connection.close()


def _finish(connection: apsw.Connection) -> None:
    """No log from here on: a reader then needs neither it nor the right to write. A reader that is at it prevents this."""
    connection.set_busy_timeout(_FINISH_MS)
    with suppress(apsw.BusyError):
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()


def create(directory: Path, meta: Meta) -> Path:
    """An empty segment, whole on disk under its name before this returns: nobody ever sees half of one.

    A directory that was removed under us is made again.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for stale in directory.glob(f"segment-*{_UNFINISHED}*"):
        stale.unlink(missing_ok=True)
    path = path_of(directory, meta.number)
    unfinished = path.with_suffix(_UNFINISHED)
    try:
        _lay_out(unfinished, meta)
        unfinished.rename(path)
    except apsw.Error:
        discard(unfinished)
        raise
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return path


def _lay_out(path: Path, meta: Meta) -> None:
    """A new file with its tables. Closed in any case: SQLite keeps what it knows of a file by its inode, and the next file
    after a refusal may well get the same one.
    """
    connection = apsw.Connection(str(path))
    try:
        # From the first moment in the mode it is written in: a later switch could be torn by a kill.
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA application_id={_APPLICATION}")
        connection.execute(f"PRAGMA user_version={meta.schema}")
        with connection:
            connection.execute(_TABLES)
            connection.execute("INSERT INTO meta VALUES(?)", (msgspec.json.encode(meta).decode(),))
    finally:
        connection.close()


class SegmentWriter:
    """The only writer of one segment; used by one thread. apsw.Error where the disk refuses, and then never again."""

    def __init__(self, path: Path, meta: Meta) -> None:
        self.path, self.meta = path, meta
        self.chain = meta.chain
        self.fresh = True
        """Nothing was written yet, nor tried."""
        self._bodies = Bodies()
        self._scopes: dict[Scope, int] = {}
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        self._connection.set_busy_timeout(_BUSY_MS)
        self._connection.execute("PRAGMA synchronous=FULL")
        self._inode = path.stat().st_ino

    def write(self, records: Iterable[tuple[int, Record]], resume: Resume | None = None) -> None:
        """All of it in one transaction, on disk when this returns; `resume` stands behind some record already written."""
        self.fresh = False
        chain, rows = self.chain, []
        with self._connection:
            for seq, record in records:
                scope = None if isinstance(record, Gap) else record.scope
                kind, body = int(kind_of(record)), self._bodies.write(record)
                chain = seal(chain, (seq, kind, record.at_ms), scope, body)
                rows.append((seq, kind, self._scope(scope) if scope else None, record.at_ms, body, chain))
            self._connection.executemany("INSERT INTO records VALUES(?,?,?,?,?,?)", rows)
            if resume is not None:
                self._resume(resume)
        if not self._is_in_place():
            raise JournalError(f"{self.path}: the segment being written was removed or replaced")
        self.chain = chain

    def _is_in_place(self) -> bool:
        """Whether what we write is what a reader of the directory will find: an unlinked file takes every record."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def bodies(self) -> Iterator[bytes]:
        """What a resume point behind the newest record needs of the bodies before it, in pieces."""
        return self._bodies.freeze()

    def checkpoint(self) -> None:
        """What stands in the log goes into the file; writing goes on."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """The log is folded in; the segment is one file unless a reader still holds it."""
        try:
            _finish(self._connection)
        finally:
            self._connection.close()

    def _scope(self, scope: Scope) -> int:
        number = self._scopes.get(scope)
        if number is None:
            number = self._scopes[scope] = len(self._scopes) + 1
            self._connection.execute("INSERT INTO scopes VALUES(?,?,?)", (number, scope.tenant, scope.cluster))
        return number

    def _resume(self, resume: Resume) -> None:
        place = resume.seq, resume.at_ms
        rows = [(self._scope(scope), *place, frozen) for scope, frozen in resume.ledgers]
        self._connection.execute("DELETE FROM resume")
        self._connection.executemany("INSERT INTO resume VALUES(?,?,?,?)", [(0, *place, resume.bodies), *rows])


class Segment:
    """One segment, read-only, also while its writer runs. A context manager; used by one thread."""

    def __init__(self, path: Path) -> None:
        """JournalError where it is no segment, or one this release cannot read or compare."""
        self.path = path
        try:
            self._connection = _reader(path)
            self.meta = _meta(self._connection, path)
        except apsw.Error as error:
            raise JournalError(f"{path}: not a readable journal segment: {error}") from error
        self._scopes: dict[int, Scope] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """No more reading."""
        self._connection.close()

    def records(self, *, after: int = 0, kind: RecordKind | None = None) -> Iterator[Stored]:
        """Records behind sequence number `after`, in order, as they stood when each chunk was read."""
        only = "" if kind is None else f"AND kind = {int(kind)}"
        query = (
            f"SELECT seq, kind, scope, at_ms, body, seal FROM records WHERE seq > ? {only} ORDER BY seq LIMIT {_CHUNK}"  # noqa: S608
        )
        while rows := self._rows(query, (after,)):
            for row in rows:
                yield self._stored(row)
            after = int(str(rows[-1][0]))

    def last(self) -> Stored | None:
        """The newest record, or None in an empty segment."""
        rows = self._rows("SELECT seq, kind, scope, at_ms, body, seal FROM records ORDER BY seq DESC LIMIT 1", ())
        return self._stored(rows[0]) if rows else None

    def resume(self) -> Resume | None:
        """The resume point, or None where recovery begins with the segment."""
        rows = self._rows("SELECT scope, seq, at_ms, body FROM resume ORDER BY scope", ())
        match rows:
            case []:
                return None
            case [(0, int(seq), int(at_ms), bytes(bodies)), *ledgers]:
                frozen = [(self._scope(scope), body) for scope, _, _, body in ledgers if isinstance(body, bytes)]
                return Resume(seq, at_ms, tuple((scope, body) for scope, body in frozen if scope is not None), bodies)
            case _:
                raise JournalError(f"{self.path}: a resume point of the wrong types")

    def _rows(self, query: str, values: tuple[int, ...]) -> list[tuple[apsw.SQLiteValue, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except apsw.Error as error:
            raise JournalError(f"{self.path}: damaged: {error}") from error

    def _stored(self, row: tuple[apsw.SQLiteValue, ...]) -> Stored:
        match row:
            case (int(seq), int(kind), int() | None as scope, int(at_ms), bytes(body), bytes(sealed)):
                return Stored(seq, kind, self._scope(scope), at_ms, body, sealed)
            case _:
                raise JournalError(f"{self.path}: a record of the wrong types: {row[:4]}")

    def _scope(self, number: apsw.SQLiteValue) -> Scope | None:
        if not isinstance(number, int):
            return None
        if number not in self._scopes:
            rows = self._rows("SELECT tenant, cluster FROM scopes WHERE id = ?", (number,))
            if not rows:
                return None
            tenant, cluster = rows[0]
            self._scopes[number] = Scope(tenant=str(tenant), cluster=str(cluster))
        return self._scopes[number]


def _reader(path: Path) -> apsw.Connection:
    """Read-only where possible. A segment whose writer died while finishing it has to be mended by whoever opens it first;
    where the directory does not let SQLite mend or coordinate (read-only media), the file is taken as it is.
    """
    uri = path.absolute().as_uri()
    connection = apsw.Connection(f"{uri}?mode=ro", flags=_READ)
    connection.set_busy_timeout(_BUSY_MS)
    try:
        connection.execute("SELECT 1 FROM meta").fetchall()
    except apsw.ReadOnlyError:
        connection = apsw.Connection(f"{uri}?mode=rw", flags=_MEND)
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("SELECT 1 FROM meta").fetchall()
    except apsw.CantOpenError:
        if Path(f"{path}-wal").exists():
            raise
        connection = apsw.Connection(f"{uri}?immutable=1", flags=_READ)
    return connection


def _meta(connection: apsw.Connection, path: Path) -> Meta:
    version = connection.execute("PRAGMA user_version").get
    if isinstance(version, int) and version > SCHEMA:
        raise JournalError(f"{path}: schema {version} is newer than this release reads ({SCHEMA}): not comparable")
    text = connection.execute("SELECT body FROM meta").get
    try:
        meta = msgspec.json.decode(str(text), type=Meta)
    except msgspec.MsgspecError as error:
        raise JournalError(f"{path}: not a journal segment: {error}") from error
    if meta.semantics != SEMANTICS:
        raise JournalError(
            f"{path}: written by {meta.release} with semantics {meta.semantics}, this release decides by {SEMANTICS}: "
            "not comparable"
        )
    return meta
