"""The last line lists in a file, so that a process that starts without a center starts with what was last known.

Holds the center's own documents, read back by the same rules as an answer. A file that cannot be used is ignored with a
log event; one that cannot be written costs a log event, once until it can again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from reachline.client.answer import line_list, parsed, version_of
from reachline.client.http import BODY_MOST
from reachline.errors import RemoteProtocolError
from reachline.model import Seconds, Version
from reachline.upstream.listing import LineList

__all__ = ["load", "save"]

_log: Final = logging.getLogger("reachline.client")

FORMAT: Final = 1


def load(path: Path, clusters: Iterable[str], *, wall: Seconds) -> dict[str, tuple[LineList, object, Seconds]]:
    """For each cluster that the file knows: its list, its document, and how many seconds ago a center said so."""
    try:
        entries = _entries(path)
    except FileNotFoundError:
        return {}
    except (OSError, RemoteProtocolError) as error:
        return _ignored(path, str(error))
    found = {}
    for cluster in clusters:
        try:
            if (entry := entries.get(cluster)) is not None:
                found[cluster] = _entry(entry, cluster, wall)
        except RemoteProtocolError as error:
            _ignored(path, f"{cluster}: {error}")
    return found


def save(path: Path, documents: Mapping[str, tuple[object, Seconds]]) -> str:
    """Write documents and the Unix times they were last confirmed at, whole or not at all; the error in words, or empty.

    Where the file holds a higher version of a cluster, or heard the same one later, that stays: another process may have
    written it that hears more than we do. Readable by its owner only: the file names internal addresses.
    """
    clusters: dict[str, object] = {
        name: {"heard": round(heard, 3), "answer": document} for name, (document, heard) in documents.items()
    }
    clusters |= _newer(path, clusters)
    body = json.dumps({"format": FORMAT, "clusters": clusters}, separators=(",", ":")).encode()
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        return error.strerror or str(error)
    return ""


def _entries(path: Path) -> Mapping[str, object]:
    """The file's entry of each cluster, not looked at yet."""
    with path.open("rb") as file:
        body = file.read(BODY_MOST + 1)
    top = parsed(body) if len(body) <= BODY_MOST else None
    if not isinstance(top, dict) or top.get("format") != FORMAT or not isinstance(top.get("clusters"), dict):
        raise RemoteProtocolError(f"not a line cache of format {FORMAT}")
    entries: Mapping[str, object] = top["clusters"]
    return entries


def _newer(path: Path, ours: Mapping[str, object]) -> dict[str, object]:
    """What the file holds of our clusters and knows better; nothing where it cannot be read: then it is made anew."""
    try:
        entries = _entries(path)
    except (OSError, RemoteProtocolError):
        return {}
    return {
        name: entries[name] for name, entry in ours.items() if name in entries and _beats(entries[name], entry, name)
    }


def _beats(entry: object, ours: object, cluster: str) -> bool:
    """Whether an entry of the file can be used and is newer than ours: by version, then by when it was heard."""
    try:
        if _rank(entry) <= _rank(ours):
            return False
        _entry(entry, cluster, 0.0)
    except RemoteProtocolError:
        return False
    return True


def _rank(entry: object) -> tuple[Version, Seconds]:
    document, heard = _parts(entry)
    return version_of(document), heard


def _entry(entry: object, cluster: str, wall: Seconds) -> tuple[LineList, object, Seconds]:
    document, heard = _parts(entry)
    # A clock that was set back since makes the list new, never younger than now.
    return line_list(document, cluster=cluster), document, max(0.0, wall - heard)


def _parts(entry: object) -> tuple[object, Seconds]:
    """The document, and the Unix time it was last confirmed at."""
    if not isinstance(entry, dict):
        raise RemoteProtocolError("must be an object")
    heard = entry.get("heard")
    if isinstance(heard, bool) or not isinstance(heard, int | float) or heard < 0:
        raise RemoteProtocolError("heard: must be Unix seconds")
    return entry.get("answer"), float(heard)


def _ignored(path: Path, reason: str) -> dict[str, tuple[LineList, object, Seconds]]:
    _log.warning("cache_ignored", extra={"path": str(path), "reason": reason})
    return {}
