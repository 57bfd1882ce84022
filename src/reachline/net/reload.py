"""A document on disk: read once, and again whenever its content changes. Knows bytes and text, not what they mean.

The *directory* is watched and contents are compared: a watch on the file itself misses every write after an atomic rename,
and the symlink swap by which Kubernetes replaces a ConfigMap.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

from reachline.errors import ConfigError, Problem
from reachline.model import Seconds

__all__ = ["MAX_BYTES", "changes", "text_of"]

log = logging.getLogger(__name__)

MAX_BYTES: Final = 16 << 20
"""More than any document; a log file given by mistake is refused without being read."""
_DEBOUNCE: Final = 0.1
"""Seconds in which several writes are one change: an editor's save is three to five events within some milliseconds."""
_LOOK: Final = 0.5
"""Seconds between two looks at the content where nothing stirs: a document is read in a fraction of a millisecond."""
_PAUSE: Final = 2.0
"""Seconds until a directory that vanished is looked for again."""


def text_of(path: str | Path) -> str:
    """The file's text; ConfigError where it cannot be read, is too large or is no text."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror or error}", _advice(error)) from error
    if len(data) > MAX_BYTES:
        raise _refusal(path, f"is larger than {MAX_BYTES >> 20} MiB: that is no configuration")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal(path, f"is no UTF-8 text (byte {error.start})", "save it as UTF-8") from error


def _advice(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "name the document: reachline … FILE.yaml"
        case IsADirectoryError():
            return "name the file in it"
        case PermissionError():
            return "let this user read it"
        case _:
            return ""


def _refusal(path: str | Path, rule: str, hint: str = "") -> ConfigError:
    return ConfigError(Problem(place=str(path), path="", value="", rule=rule, hint=hint))


async def changes(
    path: str | Path, *, known: str = "", debounce: Seconds = _DEBOUNCE
) -> AsyncGenerator[str | ConfigError, None]:
    """Each new content of the file, from `known` on (empty: as it is now); ends when the task is cancelled.

    A content that cannot be taken comes as the ConfigError that says why, once; a file that is away is waited for.
    """
    target = _absolute(path)
    last: bytes | None = _digest(known) if known else _fingerprint(target)
    while True:
        async for _ in _stirs(target.parent, debounce):
            fingerprint = _fingerprint(target)
            if fingerprint is None or fingerprint == last:
                continue
            last = fingerprint
            yield _taken(target)
        log.warning("config_directory_lost", extra={"directory": str(target.parent)})
        await asyncio.sleep(_PAUSE)


async def _stirs(directory: Path, debounce: Seconds) -> AsyncIterator[None]:
    """Once at the start (the file may be newer than what is known), then whenever the directory stirs; ends with it."""
    try:
        from watchfiles import awatch  # noqa: PLC0415  (compiled, and only daemons need it)
    except ImportError:  # an install without the daemons' extras: looking does as well, only later
        yield
        while _is_there(directory):
            yield
            await asyncio.sleep(_LOOK)
        return
    # No filter: Kubernetes swaps `..data`. Without news it wakes all the same and looks at the content, which finds what
    # no watch can see: a write just before the watch was set, a symlink into another directory, a replaced directory.
    watch = awatch(
        directory,
        watch_filter=None,
        debounce=round(debounce * 1_000),
        step=20,
        recursive=False,
        rust_timeout=round(_LOOK * 1_000),
        yield_on_timeout=True,
    )
    yield
    try:
        async with aclosing(watch):
            async for _ in watch:
                yield
                if not _is_there(directory):
                    return
    except FileNotFoundError:
        return
    except (OSError, RuntimeError) as error:  # the latter is what watchfiles calls the former
        # Other programs of this user have all its watches (fs.inotify.max_user_instances), or the directory may not be listed.
        log.warning(
            "config_not_watched", extra={"directory": str(directory), "reason": str(error), "looks_every": _LOOK}
        )
        while _is_there(directory):
            yield
            await asyncio.sleep(_LOOK)


def _absolute(path: str | Path) -> Path:
    return Path(path).absolute()


def _is_there(directory: Path) -> bool:
    return directory.is_dir()


def _taken(target: Path) -> str | ConfigError:
    try:
        return text_of(target)
    except ConfigError as error:
        return error


def _fingerprint(target: Path) -> bytes | None:
    """What the content is; None while there is none to read: a pipe put in the file's place would never answer."""
    try:
        if not target.is_file():
            return None
        with target.open("rb") as file:
            return hashlib.blake2b(file.read(MAX_BYTES + 1), digest_size=16).digest()
    except OSError:
        return None


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
