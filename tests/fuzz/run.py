"""`make fuzz`: a million inputs for every parser, over two processes, and what they found kept in the corpus.

python -m tests.fuzz.run [--inputs N] [--processes N] [--seed N] [--only NAME …]
python -m tests.fuzz.run --grow      # follow coverage instead, and keep every input that reached something new
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from random import Random
from types import FrameType
from typing import Final, NamedTuple

from tests.fuzz.corpus import keep, kept
from tests.fuzz.mutate import Mutator
from tests.fuzz.probe import BrokenError, tried
from tests.fuzz.targets import ROOT, TARGETS

INPUTS: Final = 1_000_000
CHUNK: Final = 25_000
"""Inputs of one task: seconds, so that both processes end together."""
GROWN: Final = 20_000
"""Inputs that follow coverage: traced line by line they are dear, and after so many nothing new comes for minutes."""
SOURCE: Final = str(ROOT / "src")


class Task(NamedTuple):
    """A share of one parser's inputs, with luck of its own."""

    name: str
    seed: int
    inputs: int


class Found(NamedTuple):
    """What came of a task."""

    name: str
    inputs: int
    took: int
    """Inputs that the parser took."""
    broken: tuple[tuple[str, bytes], ...]


def fuzzed(task: Task) -> Found:
    """Try them all; the first few that break the parser are what counts."""
    target = TARGETS[task.name]
    new = Mutator((*target.seeds, *kept(task.name)), target.tokens, Random(f"{task.seed}/{task.name}")).next
    took, broken = 0, []
    for _ in range(task.inputs):
        try:
            took += tried(target, new())
        except BrokenError as error:
            broken.append((str(error), error.data))
            if len(broken) >= 3:
                break
    return Found(task.name, task.inputs, took, tuple(broken))


class Trail:
    """Which lines of ours followed which, while one input is tried."""

    def __init__(self) -> None:
        self.steps: set[tuple[str, int, int]] = set()
        self._last = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Trail | None:
        """The interpreter's trace function."""
        del event, arg
        file = frame.f_code.co_filename
        if not file.startswith(SOURCE):
            return None
        self.steps.add((file, self._last, frame.f_lineno))
        self._last = frame.f_lineno
        return self


def grown(name: str, *, count: int, seed: int) -> tuple[int, int]:
    """Follow coverage from the corpus on; how many inputs are kept now, and how many steps they reach."""
    target = TARGETS[name]
    mutator = Mutator(target.seeds, target.tokens, Random(f"{seed}/{name}"))
    known: set[tuple[str, int, int]] = set()
    worth: list[bytes] = []
    for data in _candidates(name, mutator, count):
        trail = Trail()
        sys.settrace(trail)
        try:
            tried(target, data)
        finally:
            sys.settrace(None)
        if not trail.steps <= known:
            known |= trail.steps
            if data not in target.seeds:
                worth.append(data)
                mutator.learn(data)
    return keep(name, worth), len(known)


def _candidates(name: str, mutator: Mutator, count: int) -> Iterator[bytes]:
    yield from TARGETS[name].seeds
    yield from kept(name)
    for _ in range(count):
        yield mutator.next()


def _tasks(names: list[str], inputs: int, seed: int) -> list[Task]:
    """The slowest first: nobody waits for one at the end."""
    ordered = sorted(names, key=lambda name: not TARGETS[name].is_slow)
    return [
        Task(name, seed * 1_000_003 + at, min(CHUNK, inputs - at)) for name in ordered for at in range(0, inputs, CHUNK)
    ]


def fuzz(names: list[str], *, inputs: int, processes: int, seed: int) -> int:
    """Print what was tried and what broke; the exit code."""
    begin, counts, took = time.monotonic(), Counter[str](), Counter[str]()
    broken: dict[str, list[tuple[str, bytes]]] = {}
    with get_context("spawn").Pool(processes) as pool:
        for found in pool.imap_unordered(fuzzed, _tasks(names, inputs, seed)):
            counts[found.name] += found.inputs
            took[found.name] += found.took
            broken.setdefault(found.name, []).extend(found.broken)
            for words, _ in found.broken:
                print(words, flush=True)
    for name in sorted(counts):
        print(
            f"{name:18} {counts[name]:>10} inputs, {took[name] / counts[name]:5.1%} taken, {len(broken[name])} broke it"
        )
    for name, cases in broken.items():
        if cases:
            keep(name, (*kept(name), *(data for _, data in cases)))
    print(f"{sum(counts.values())} inputs in {time.monotonic() - begin:.0f} s over {processes} processes, seed {seed}")
    return 1 if any(broken.values()) else 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=INPUTS, help="of every parser")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=sorted(TARGETS), default=sorted(TARGETS), metavar="NAME")
    parser.add_argument("--grow", action="store_true", help=f"follow coverage for {GROWN} inputs of every parser")
    asked = parser.parse_args()
    if not asked.grow:
        return fuzz(asked.only, inputs=asked.inputs, processes=asked.processes, seed=asked.seed)
    for name in asked.only:
        count, steps = grown(name, count=min(asked.inputs, GROWN), seed=asked.seed)
        print(f"{name:18} {count:>5} kept, {steps} steps reached")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
