"""Processes of the benchmark's own: each is a module here, stays on one core, and prints one JSON value."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from reachline.model import Seconds

__all__ = ["ROOT", "CellError", "cell", "module", "on_core"]

ROOT: Final = Path(__file__).parents[2]
_SPARE: Final[Seconds] = 60.0
"""A cell that takes so much longer than it was asked to has failed."""

T = TypeVar("T")


class CellError(Exception):
    """A cell gave no figure; the text says why. The others go on."""


def module(name: str, *words: str) -> tuple[str, ...]:
    """A module of ours as a command; to be run in `ROOT`."""
    return (sys.executable, "-m", f"benchmarks.probing.{name}", *words)


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Processes started in the block stay on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cell(words: Sequence[str], asked: msgspec.Struct, kind: type[T], *, core: int, seconds: Seconds) -> T:
    """The figure of a cell (a module, and the first words it is given) that is to take `seconds`; CellError where there is none."""
    text = msgspec.json.encode(asked).decode()
    try:
        with on_core(core):
            done = subprocess.run(
                module(*words, text), cwd=ROOT, capture_output=True, text=True, check=False,
                timeout=seconds + _SPARE,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CellError(f"no figure within {seconds + _SPARE:.0f} s") from None
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise CellError(_last_words(done.stderr) or f"ended with {done.returncode}")
    return msgspec.json.decode(done.stdout, type=kind)


def _last_words(trace: str) -> str:
    """The error of a traceback, without the frame that a group of errors draws around it."""
    lines = [line.strip(" |+-") for line in trace.splitlines()]
    return next((line for line in reversed(lines) if line), "")
