"""The garbage collector stands still while a tick is made, and only then."""

from __future__ import annotations

import gc

import pytest

from reachline.net import collector


def test_inside_the_block_it_is_off_and_afterwards_on_again_whatever_happened() -> None:
    seen = []

    def late() -> None:
        with collector.held():
            seen.append(gc.isenabled())
            raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        late()

    assert (*seen, gc.isenabled()) == (False, True)


def test_one_that_was_off_before_stays_off() -> None:
    gc.disable()
    try:
        with collector.held():
            pass
        after = gc.isenabled()
    finally:
        gc.enable()

    assert after is False
