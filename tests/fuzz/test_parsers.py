"""Ten thousand inputs for every parser of messages and texts: kept ones and mutations of them, the same in every run.

`make fuzz` tries a million of each. Conversations are in a file of their own, so that two processes share the work.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest
from tests.fuzz.corpus import keep, kept
from tests.fuzz.mutate import Mutator
from tests.fuzz.probe import SLOWEST, BrokenError, growth, peak, tried
from tests.fuzz.targets import TARGETS, Target, conversations

INPUTS = 10_000
WARM = 1_000
"""Inputs after which whatever is made once (caches of regular expressions, of Decimal contexts) has been made."""
SLACK = 2_000
"""Blocks of difference that are nothing: a few kilobytes of the interpreter's own. One leaked object an input were 9 000."""


WHOLE = sorted(TARGETS.keys() - conversations().keys())


def inputs(target: Target, seed: int = 1) -> Callable[[], bytes]:
    corpus = kept(target.name)
    return Mutator((*target.seeds, *corpus), target.tokens, Random(f"{seed}/{target.name}")).next


def hold(target: Target) -> None:
    """What must hold of a parser, tried."""
    for data in (*target.seeds, *kept(target.name)):
        peak(target, data)
    new = inputs(target)
    with aside():
        for _ in range(WARM):
            tried(target, new())
        before = growth()

        for _ in range(INPUTS - WARM):
            tried(target, new())

        assert growth() - before < SLACK


@contextmanager
def aside() -> Iterator[None]:
    """Whatever lives already is not looked at for garbage within."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("name", WHOLE)
def test_a_parser_raises_what_it_declares_in_bounded_time_and_keeps_nothing(name: str) -> None:
    hold(TARGETS[name])


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_seeds_of_a_parser_are_what_it_takes(name: str) -> None:
    target = TARGETS[name]

    assert any(tried(target, data) for data in target.seeds), "a mutation of what is refused at once tries nothing"


def test_a_parser_that_is_broken_is_found_and_its_input_named() -> None:
    def fragile(data: bytes) -> None:
        if data[:1] == b"k" and len(data) > 30:
            raise KeyError(data)

    target = Target(name="fragile", run=fragile, errors=(ValueError,), seeds=(b"k=v", b"j"))
    new = inputs(target)

    with pytest.raises(BrokenError, match=r"fragile: KeyError: .*\n  input: b'k") as caught:
        deque((tried(target, new()) for _ in range(INPUTS)), maxlen=0)
    assert caught.value.data[:1] == b"k"


def test_a_parser_without_bounds_is_found() -> None:
    bound = SLOWEST / 10

    def slow(_: bytes) -> None:
        begin = time.thread_time()
        while time.thread_time() - begin < 1.1 * bound:
            pass

    hungry = Target(name="hungry", run=lambda data: data * (64 << 20), errors=(), seeds=(b"x",))

    with pytest.raises(BrokenError, match="s of CPU"):
        tried(Target(name="slow", run=slow, errors=(), seeds=(b"x",)), b"x", slowest=bound)
    with pytest.raises(BrokenError, match="bytes at once"):
        peak(hungry, b"x")


def test_what_is_kept_comes_back_as_it_was(tmp_path) -> None:
    odd = [b"\r\n\x00'\"\\", b"", "ü".encode(), b"# no comment"]

    assert keep("odd", [*odd, b""], tmp_path) == 4
    assert kept("odd", tmp_path) == tuple(sorted(odd, key=lambda data: (len(data), data)))
    assert kept("none", tmp_path) == ()
