"""Waiting: what is not true, not asserted or not there yet is asked again, until its deadline; all else escapes at once."""

from __future__ import annotations

import asyncio

import pytest

from reachline.testing.wait import eventually, until

INSIDE = 60.0
"""A deadline that nothing here reaches."""


def _in_the_end(*before: object):
    """A check that says or raises these one after the other, and then that it is there."""
    left = [*before, "there"]

    def check():
        each = left.pop(0)
        if isinstance(each, Exception):
            raise each
        return each

    return check


@pytest.mark.parametrize("early", [None, False, 0, AssertionError("no"), IndexError("empty"), KeyError("a")])
def test_what_is_not_so_yet_is_asked_again(early: object) -> None:
    async def main() -> str:
        return await until(_in_the_end(early), within=INSIDE, every=0)

    assert eventually(_in_the_end(early), within=INSIDE, every=0) == "there"
    assert asyncio.run(main()) == "there"


def test_an_error_of_another_kind_escapes() -> None:
    with pytest.raises(TypeError, match="wrong"):
        eventually(_in_the_end(TypeError("wrong")), within=INSIDE, every=0)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (0, "not within 0 s: a hint (last answer 0)"),
        (AssertionError("2 of 3"), "not within 0 s: a hint (2 of 3)"),
        (KeyError("a"), "not within 0 s: a hint (KeyError('a'))"),
    ],
)
def test_who_waits_in_vain_is_told_for_what_and_what_was_seen_last(last: object, said: str) -> None:
    with pytest.raises(AssertionError) as told:
        eventually(_in_the_end(last), within=0, what="a hint")

    assert str(told.value) == said
