"""The two 64-bit hashes that consistent hashing is built on, byte-exact: xxHash64 and MurmurHash2 (64A).

Python's own `hash` differs from process to process; these are the same everywhere, so that one key reaches the same endpoint
from every client, ours or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, unpack_from
from typing import Final

__all__ = ["MURMUR_SEED", "murmur2_64", "xxh64", "xxh64_chain"]

_ALL: Final = 0xFFFF_FFFF_FFFF_FFFF
_P1: Final = 0x9E37_79B1_85EB_CA87
_P2: Final = 0xC2B2_AE3D_27D4_EB4F
_P3: Final = 0x1656_67B1_9E37_79F9
_P4: Final = 0x85EB_CA77_C2B2_AE63
_P5: Final = 0x27D4_EB2F_1656_67C5
"""The primes of the xxHash specification."""

_WORDS: Final = tuple(Struct(f"<{count}Q") for count in range(4))
"""Of what is shorter than a stripe: most keys are."""

MURMUR_SEED: Final = 0xC70F_6907
"""The seed that libstdc++ gives MurmurHash2, and Envoy after it."""
_MURMUR: Final = 0xC6A4_A793_5BD1_E995


def xxh64(data: bytes, seed: int = 0) -> int:
    """xxHash64 of `data`, 0…2⁶⁴-1."""
    size = len(data)
    value, at = _lanes(data, seed) if size >= 32 else (seed + _P5, 0)
    value = (value + size) & _ALL
    for lane in _WORDS[(size - at) >> 3].unpack_from(data, at):
        lane = lane * _P2 & _ALL
        value ^= ((lane << 31 | lane >> 33) & _ALL) * _P1 & _ALL
        value = ((value << 27 | value >> 37) & _ALL) * _P1 + _P4 & _ALL
    at += (size - at) & ~7
    if size - at >= 4:
        value ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _ALL
        value = ((value << 23 | value >> 41) & _ALL) * _P2 + _P3 & _ALL
        at += 4
    for byte in data[at:]:
        value ^= byte * _P5 & _ALL
        value = ((value << 11 | value >> 53) & _ALL) * _P1 & _ALL
    value = (value ^ value >> 33) * _P2 & _ALL
    value = (value ^ value >> 29) * _P3 & _ALL
    return value ^ value >> 32


def _lanes(data: bytes, seed: int) -> tuple[int, int]:
    """Four accumulators over all whole stripes of 32 bytes, merged; and where they end."""
    lanes = [(seed + _P1 + _P2) & _ALL, (seed + _P2) & _ALL, seed, (seed - _P1) & _ALL]
    words = unpack_from(f"<{len(data) >> 5 << 2}Q", data)
    for place, word in enumerate(words):
        each = (lanes[place & 3] + word * _P2) & _ALL
        lanes[place & 3] = ((each << 31 | each >> 33) & _ALL) * _P1 & _ALL
    value = (
        sum((each << turn | each >> 64 - turn) & _ALL for each, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
    )
    for each in lanes:
        each = each * _P2 & _ALL
        value ^= ((each << 31 | each >> 33) & _ALL) * _P1 & _ALL
        value = (value * _P1 + _P4) & _ALL
    return value, len(words) * 8


def xxh64_chain(parts: Sequence[bytes]) -> int:
    """xxHash64 over several texts, each seeded by the hash before it; how Envoy hashes a header that came more than once."""
    value = 0
    for part in parts or (b"",):
        value = xxh64(part, value)
    return value


def murmur2_64(data: bytes, seed: int = MURMUR_SEED) -> int:
    """MurmurHash2 in its 64-bit form (64A) of `data`, 0…2⁶⁴-1."""
    size = len(data)
    value = seed ^ size * _MURMUR & _ALL
    for word in unpack_from(f"<{size >> 3}Q", data):
        word = word * _MURMUR & _ALL
        value = (value ^ (word ^ word >> 47) * _MURMUR & _ALL) * _MURMUR & _ALL
    if size & 7:
        value = (value ^ int.from_bytes(data[size & ~7 :], "little")) * _MURMUR & _ALL
    value = (value ^ value >> 47) * _MURMUR & _ALL
    return value ^ value >> 47
