"""Memory of optical modules, made here by the standards' own offsets: SFF-8472 (SFP), SFF-8636 (QSFP)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.wire.optics import Light, light

SFF_8472, SFF_8636, SFF_8436, SFF_8079 = 2, 3, 4, 1


def sfp(received: int, warning: int, *, monitors: int = 0x60, slopes: tuple[float, ...] | None = None) -> bytes:
    """A0h with its monitoring byte, A2h with the measured and the limits."""
    memory = bytearray(512)
    memory[0] = 0x03
    memory[92] = monitors
    struct.pack_into(">H", memory, 256 + 104, received)
    struct.pack_into(">H", memory, 256 + 38, warning)
    if slopes:
        struct.pack_into(">5f", memory, 256 + 56, *slopes)
    return bytes(memory)


def qsfp(lanes: tuple[int, int, int, int], warning: int, *, size: int = 640, status: int = 0) -> bytes:
    """The lower page and upper pages 0 to 3, one behind the other."""
    memory = bytearray(640)
    memory[0], memory[2] = 0x11, status
    struct.pack_into(">4H", memory, 34, *lanes)
    struct.pack_into(">H", memory, 128 + 3 * 128 + (182 - 128), warning)
    return bytes(memory[:size])


@pytest.mark.parametrize(
    ("kind", "memory", "expected"),
    [
        (SFF_8472, sfp(5_012, 158), Light(5_012, 158)),
        (SFF_8472, sfp(5_000, 200, monitors=0x50, slopes=(0.0, 0.0, 0.0, 0.5, 10.0)), Light(2_510, 110)),
        (SFF_8472, sfp(100, 10, monitors=0x50, slopes=(0.0, 0.0, 0.01, 0.0, 0.0)), Light(100, 1)),
        (SFF_8472, sfp(5_012, 158, monitors=0x50, slopes=(float("nan"),) * 5), Light(0, 0)),
        (SFF_8472, sfp(5_012, 158, monitors=0x00), None),
        (SFF_8472, sfp(5_012, 158)[:256], None),
        (SFF_8636, qsfp((9_000, 8_000, 120, 8_500), 400), Light(120, 400)),
        (SFF_8436, qsfp((9_000, 8_000, 7_000, 8_500), 400, size=256), Light(7_000)),
        (SFF_8636, qsfp((9_000, 8_000, 7_000, 8_500), 400, status=0x04), Light(7_000)),
        (SFF_8636, b"\x11" * 40, None),
        (SFF_8079, sfp(5_012, 158), None),
    ],
    ids=[
        "sfp", "sfp calibrated outside", "by its square", "garbage coefficients", "does not measure", "first device only",
        "darkest of four lanes", "no limits", "flat memory", "cut short", "unknown kind",
    ],
)  # fmt: skip
def test_the_light_of_a_module_is_read_with_its_own_limit(kind: int, memory: bytes, expected: Light | None) -> None:
    assert light(kind, memory) == expected


@given(kind=st.integers(0, 5), memory=st.binary(max_size=700))
def test_garbage_is_some_light_or_none(kind: int, memory: bytes) -> None:
    found = light(kind, memory)

    assert found is None or (0 <= found.received <= 2**16 and 0 <= found.warning <= 2**16)
