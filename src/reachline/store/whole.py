"""A small file put in place whole: whoever reads finds the old one or the new one, also after a power cut."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["put"]


def put(path: Path, data: bytes, *, mode: int) -> None:
    """On disk before the old one goes. Nobody else may put the same file at the same time."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)  # one that a killed process left may be open to more than `mode` says
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
