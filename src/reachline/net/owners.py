"""Which sockets a process holds: by its name or number, from /proc. Linux only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Owned", "owned"]

_SLICE: Final = 64
"""Processes looked at between two turns of the loop: about a millisecond."""
_COMM: Final = 15
"""Characters of a name that the kernel keeps."""
_SOCKET: Final = "socket:["


class Owned(NamedTuple):
    """Inodes of the sockets that processes of one name hold."""

    inodes: frozenset[int] = frozenset()
    error: str = ""
    """Why not all of them could be looked at; empty where they could."""


async def owned(process: str, root: Path = Path("/proc")) -> Owned:
    """The sockets of every process called `process` (as `ps -o comm` shows it), or of the one with that number."""
    found: set[int] = set()
    refused = ""
    for number, pid in enumerate(_pids(root), 1):
        if number % _SLICE == 0:
            await asyncio.sleep(0)
        if not _is_named(root / pid, process):
            continue
        try:
            found.update(_sockets(root / pid / "fd"))
        except PermissionError:
            refused = (
                f"the sockets of process {pid} ({process}) may only be seen by its own user or with CAP_SYS_PTRACE"
            )
        except OSError:
            continue  # it ended meanwhile
    return Owned(frozenset(found), refused)


def _pids(root: Path) -> Iterator[str]:
    with os.scandir(root) as entries:
        yield from (entry.name for entry in entries if entry.name.isdigit())


def _is_named(home: Path, process: str) -> bool:
    if process.isdigit():
        return home.name == process
    try:
        return (home / "comm").read_text(errors="replace").rstrip("\n") == process[:_COMM]
    except OSError:
        return False


def _sockets(directory: Path) -> Iterator[int]:
    for link in directory.iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith(_SOCKET):
            yield int(target[len(_SOCKET) : -1])
