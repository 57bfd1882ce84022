"""A small file put in place whole: whoever reads finds the old one or the new one, also after a power cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

__all__ = ["appending", "put"]


def put(path: Path, data: bytes, *, mode: int, like: Path | None = None) -> None:
    """On disk before the old one goes. Nobody else may put the same file at the same time.

    Where root puts it, it belongs to the owner of `like`: whoever must go on reading it may be somebody else than who typed `sudo`.
    """
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)  # one that a killed process left may be open to more than `mode` says
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as file:
        _given(fd, like)
        file.write(data)
        file.flush()
        os.fsync(fd)
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def appending(path: Path, *, like: Path) -> BinaryIO:
    """A file that grows, for its owner alone, opened at its end; a new one belongs to the owner of `like`, as with `put`."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | os.O_EXCL, 0o600)
    except FileExistsError:
        # Never given away: what stands there may be a link to another file.
        return os.fdopen(os.open(path, flags, 0o600), "ab")
    _given(fd, like)
    return os.fdopen(fd, "ab")


def _given(fd: int, like: Path | None) -> None:
    if like is not None and os.geteuid() == 0:
        owner = like.stat()
        os.fchown(fd, owner.st_uid, owner.st_gid)
