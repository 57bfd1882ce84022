from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.hashing import murmur2_64, xxh64, xxh64_chain

XXH64 = {
    "": 0xEF46DB3751D8E999,
    "a": 0xD24EC4F1A98C6E5B,
    "abc": 0x44BC2CF5AD770999,
    "foo": 3728699739546630719,
    "bar": 5234164152756840025,
    "foo\nbar": 8917841378505826757,
    "lyft": 4400747396090729504,
    "Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
}
"""Of the algorithm's own documentation, of its bindings' and of Envoy's tests; seed 0."""

MURMUR2 = {
    "": 6142509188972423790,
    "foo": 9631199822919835226,
    "bar": 11474628671133349555,
    "foo\nbar": 16306510975912980159,
    "lyft": 12847078931730529320,
}
"""Those of libstdc++'s `std::hash<std::string>`, seed 0xc70f6907."""


@pytest.mark.parametrize(("text", "value"), XXH64.items(), ids=lambda each: repr(each)[:12])
def test_xxhash64_is_the_published_one(text: str, value: int) -> None:
    assert xxh64(text.encode()) == value


@pytest.mark.parametrize(("text", "value"), MURMUR2.items(), ids=lambda each: repr(each)[:12])
def test_murmurhash2_is_that_of_libstdcpp(text: str, value: int) -> None:
    assert murmur2_64(text.encode()) == value


PRIME1, PRIME2, PRIME3, PRIME4, PRIME5 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def by_the_letter(data: bytes, seed: int) -> int:
    """The specification's text, step by step, with a byte-wise reader: slow and plain."""
    mask = 2**64 - 1

    def turned(value: int, by: int) -> int:
        return (value << by | value >> (64 - by)) & mask

    def rounded(lane: int, word: int) -> int:
        return turned((lane + word * PRIME2) & mask, 31) * PRIME1 & mask

    at, value = 0, (seed + PRIME5) & mask
    if len(data) >= 32:
        lanes = [(seed + PRIME1 + PRIME2) & mask, (seed + PRIME2) & mask, seed, (seed - PRIME1) & mask]
        while len(data) - at >= 32:
            for place in range(4):
                lanes[place] = rounded(lanes[place], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        value = (turned(lanes[0], 1) + turned(lanes[1], 7) + turned(lanes[2], 12) + turned(lanes[3], 18)) & mask
        for lane in lanes:
            value = ((value ^ rounded(0, lane)) * PRIME1 + PRIME4) & mask
    value = (value + len(data)) & mask
    while len(data) - at >= 8:
        value = (turned(value ^ rounded(0, int.from_bytes(data[at : at + 8], "little")), 27) * PRIME1 + PRIME4) & mask
        at += 8
    if len(data) - at >= 4:
        word = int.from_bytes(data[at : at + 4], "little")
        value = (turned(value ^ (word * PRIME1 & mask), 23) * PRIME2 + PRIME3) & mask
        at += 4
    for byte in data[at:]:
        value = turned(value ^ (byte * PRIME5 & mask), 11) * PRIME1 & mask
    value = (value ^ value >> 33) * PRIME2 & mask
    value = (value ^ value >> 29) * PRIME3 & mask
    return value ^ value >> 32


@given(st.binary(max_size=100), st.integers(0, 2**64 - 1))
def test_every_length_and_seed_is_hashed_as_the_specification_says(data: bytes, seed: int) -> None:
    assert xxh64(data, seed) == by_the_letter(data, seed)


def test_several_texts_are_hashed_each_from_the_one_before() -> None:
    assert xxh64_chain([b"bar", b"foo"]) == xxh64(b"foo", xxh64(b"bar"))
    assert xxh64_chain([]) == xxh64(b"")
