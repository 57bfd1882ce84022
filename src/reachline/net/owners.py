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
_LINKS: Final = 256
"""Descriptors of one process looked at between two turns: the same."""
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
            for links, inode in enumerate(_sockets(root / pid / "fd"), 1):
                found.add(inode)
                if links % _LINKS == 0:
                    await asyncio.sleep(0)
        except PermissionError:
            refused = (
                f"the sockets of process {pid} ({process}) may only be seen by its own user or with CAP_SYS_PTRACE"
            )
        except OSError:
            continue  # it ended meanwhile
    return Owned(frozenset(found - {0}), refused)


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
    """The inode of every socket among its links; 0 for one that is none, so that whoever asks may pause."""
    with os.scandir(directory) as links:
        for link in links:
            try:
                target = os.readlink(link.path)  # noqa: PTH115  Path.readlink takes three times as long
            except FileNotFoundError:
                continue  # closed meanwhile
            yield int(target[len(_SOCKET) : -1]) if target.startswith(_SOCKET) else 0
