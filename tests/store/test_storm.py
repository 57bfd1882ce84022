"""Whatever moment a center dies at, what was acknowledged is there, and the ledgers that come back are those it makes."""

from __future__ import annotations

import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from reachline.core.ledger import Ledger
from reachline.model import Scope, Version
from reachline.store.journal import recover
from reachline.store.replay import replay
from reachline.testing.storm import act, begin, perform

SEED = 20_260_101
KILLS = 50
SOURCE = Path(__file__).parents[2] / "src"
OPENED = 1


class Zygote:
    """The process that forks storms. Its lines come through a thread, so that every wait has an end."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "reachline.testing.storm", str(directory), str(SEED)],
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def storm(self, acknowledged: int, delay: float) -> set[int]:
        """Start one, kill it `delay` seconds after that many acknowledgements; the numbers it acknowledged."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        child, numbers = 0, set[int]()
        while not child or len(numbers) < acknowledged:
            word, number = self._lines.get(timeout=60).split()
            child = int(number) if word == "pid" else child
            numbers |= {int(number)} if word == "ack" else set()
        time.sleep(delay)  # the random point of death itself, not a wait for anything
        os.kill(child, signal.SIGKILL)
        while (line := self._lines.get(timeout=60)) != "dead":
            numbers.add(int(line.removeprefix("ack ")))
        return numbers

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self._reader.join(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def zygote(directory: Path) -> Iterator[Zygote]:
    running = Zygote(directory)
    try:
        yield running
    finally:
        running.close()


def stored(directory: Path) -> list[tuple[int, int, int, int]]:
    """(seq, kind, at_ms, epoch) of every record, by the standard library alone: columns, no bodies, no code of ours."""
    rows = []
    for path in sorted(directory.glob("segment-*.db")):
        connection = sqlite3.connect(path)
        (epoch,) = connection.execute("SELECT json_extract(body, '$.epoch') FROM meta").fetchone()
        rows += [(*row, epoch) for row in connection.execute("SELECT seq, kind, at_ms FROM records ORDER BY seq")]
        connection.close()
    return rows


class Expected:
    """The ledgers made again from the seed, act by act, as far as a journal has it."""

    def __init__(self) -> None:
        self.ledgers: dict[Scope, Ledger] = {}
        self._seen = 0
        self._acts = 0
        self._epoch = 0

    def follow(self, rows: list[tuple[int, int, int, int]]) -> None:
        for _, kind, at_ms, epoch in rows[self._seen :]:
            if epoch != self._epoch:
                self.ledgers = self.ledgers or begin(epoch)
                for ledger in self.ledgers.values():
                    ledger.rebase(Version(epoch, 0))
                self._epoch = epoch
            if kind != OPENED:
                perform(self.ledgers, act(SEED, self._acts, at_ms))
                self._acts += 1
        self._seen = len(rows)


@pytest.mark.slow
@pytest.mark.e2e
def test_after_kill_9_anywhere_the_ledgers_equal_the_replay_of_what_was_acknowledged(tmp_path: Path) -> None:
    directory, rng, expected = tmp_path / "journal", Random(SEED), Expected()
    acknowledged: set[int] = set()
    with zygote(directory) as running:
        for _ in range(KILLS):
            acknowledged |= running.storm(rng.choice([0, 0, 5, 20, 60]), rng.uniform(0, 0.04))

            found = recover(directory)  # before anybody else opens, and thereby mends, what the kill left
            rows = stored(directory)
            numbers = [row[0] for row in rows]
            assert numbers == list(range(1, len(numbers) + 1))
            assert acknowledged <= set(numbers)
            expected.follow(rows)
            assert found.last_seq == len(numbers)
            assert {scope: ledger.freeze() for scope, ledger in found.ledgers.items()} == {
                scope: ledger.freeze() for scope, ledger in expected.ledgers.items()
            }

    done = replay(directory)
    assert done.difference is None
    assert done.decisions > 100
    assert done.segments > KILLS
    assert len(acknowledged) > 300
