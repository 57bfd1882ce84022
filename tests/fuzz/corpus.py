"""Inputs that were worth keeping, one file a target, one Python bytes literal a line: readable, and a diff shows what came."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

__all__ = ["keep", "kept"]

DIRECTORY = Path(__file__).parent.parent / "data/fuzz"


def kept(name: str, directory: Path = DIRECTORY) -> tuple[bytes, ...]:
    """The corpus of one target, in its order; none yet is an empty one."""
    file = directory / f"{name}.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return tuple(ast.literal_eval(line) for line in lines if line and not line.startswith("#"))


def keep(name: str, inputs: Iterable[bytes], directory: Path = DIRECTORY) -> int:
    """The corpus of one target is these inputs, shortest first, each once; how many there are."""
    found = sorted(set(inputs), key=lambda data: (len(data), data))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.txt").write_text("".join(f"{data!r}\n" for data in found))
    return len(found)
