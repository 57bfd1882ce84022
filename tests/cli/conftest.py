"""Commands within this process: a process of its own costs a second, most of it spent on importing."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pytest

from reachline.cli.main import main


class Ended(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


class Command(Protocol):
    """`command("watch", "--help")`."""

    def __call__(self, *arguments: str) -> Ended: ...


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Runs what ends soon. A command has its process to itself: signals and logging are as before afterwards."""
    loggers = (logging.getLogger(), logging.getLogger("reachline"))
    signals = (signal.SIGINT, signal.SIGTERM)
    kept = [(each, each.level, each.handlers[:]) for each in loggers]
    handled = [signal.getsignal(each) for each in signals]

    def run(*arguments: str) -> Ended:
        code = main(list(arguments))
        return Ended(code, *capsys.readouterr())

    yield run
    for logger, level, handlers in kept:
        logger.setLevel(level)
        logger.handlers[:] = handlers
    for each, handler in zip(signals, handled, strict=True):
        signal.signal(each, handler)
