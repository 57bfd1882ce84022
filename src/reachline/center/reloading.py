"""The document in force, and its next one: read again when its file changes, swapped whole or not at all."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from reachline.center.board import Board
from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.errors import ConfigError
from reachline.net import reload

__all__ = ["Documents", "Source", "digest"]

log = logging.getLogger("reachline.center")


class Source(NamedTuple):
    """Where a document came from, and its text when it was read."""

    path: Path
    text: str
    read: Callable[[str], Document] | None = None
    """What reads another content of the file; None: it is a document of our own."""


def digest(document: Document) -> str:
    """Sixteen hex digits that name a document's meaning; secrets are not in it."""
    return hashlib.blake2b(document.model_dump_json().encode(), digest_size=8).hexdigest()


class Documents:
    """One cell with the document in force. Written by its own task."""

    def __init__(
        self,
        document: Document,
        source: Source | None,
        environ: Mapping[str, str],
        board: Board,
        *,
        complete: Callable[[Document], Document] = lambda document: document,
    ) -> None:
        """`complete` adds what does not stand in the file."""
        self._plain = self._started = document
        self._complete = complete
        self.current = complete(document)
        self.apply: Callable[[Document], None] = lambda _: None
        """Makes a new document the one that agents and ledgers follow."""
        self._read = (source.read if source else None) or self._ours
        self._source = source.path if source else None
        self._text = source.text if source else ""
        self._environ = environ
        self._board = board

    async def run(self) -> None:
        """Follows the file until cancelled; returns at once where there is none."""
        if self._source is None:
            return
        async for text in reload.changes(self._source, known=self._text):
            self.take(text)

    def take(self, text: str | ConfigError) -> bool:
        """Another content of the file: in force within a tick, or refused with all its problems."""
        try:
            if isinstance(text, ConfigError):
                raise text
            document = self._read(text)
        except ConfigError as error:
            self._refuse(error)
            return False
        self._swap(document)
        return True

    def _ours(self, text: str) -> Document:
        return reach.read(text, name=str(self._source or ""), environ=self._environ)

    def again(self) -> None:
        """The same document, with what `complete` adds by now."""
        self.current = self._complete(self._plain)
        self.apply(self.current)

    def _refuse(self, error: ConfigError) -> None:
        status = self._board.config
        problems = tuple(map(str, error.problems))
        self._board.config = status._replace(is_current=False, problems=problems, attempts=status.attempts + 1)
        self._board.counts["reloads", "refused"] += 1
        log.warning("document_refused", extra={"problems": len(problems), "first": problems[0]})

    def _swap(self, document: Document) -> None:
        status = self._board.config
        restart = reach.changes(self._started, document)
        self._plain = document
        self.again()
        self._board.config = status._replace(
            digest=digest(document),
            loaded=round(time.time(), 3),
            is_current=True,
            problems=(),
            restart=restart,
            attempts=status.attempts + 1,
        )
        self._board.counts["reloads", "applied"] += 1
        if restart:
            log.warning("restart_needed", extra={"keys": ", ".join(restart)})
