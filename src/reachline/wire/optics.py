"""Optical modules: the light they receive, from their own memory (SFF-8472 for SFP, SFF-8636 and SFF-8436 for QSFP). Pure.

Offsets are those of the kernel's dump: an SFP's second device follows its first, a QSFP's upper pages follow each other.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["SFP", "Light", "light"]

SFP: Final = 0x2
"""ETH_MODULE_SFF_8472 (linux/ethtool.h)…"""
_QSFP: Final = frozenset((0x3, 0x4))
"""…and its SFF_8636 and SFF_8436."""
_WORD: Final = struct.Struct(">H")
_SLOPES: Final = struct.Struct(">5f")

_SFP_MONITORS: Final = 92
_MONITORED, _EXTERNAL = 0x40, 0x10
"""Bits there: it measures at all; its numbers want the coefficients that it carries."""
_SFP_SECOND: Final = 256
_SFP_LIGHT: Final = _SFP_SECOND + 104
_SFP_WARNING: Final = _SFP_SECOND + 38
_SFP_SLOPES: Final = _SFP_SECOND + 56

_QSFP_STATUS: Final = 2
_FLAT: Final = 0x04
"""Bit there: it has no upper pages."""
_QSFP_LIGHT: Final = (34, 36, 38, 40)
_QSFP_WARNING: Final = 128 + 3 * 128 + (182 - 128)
"""Byte 182 of upper page 3."""


class Light(NamedTuple):
    """Power in 1/10 µW: the darkest lane's, and below which the module itself warns (0: it does not say)."""

    received: int
    warning: int = 0


def light(kind: int, memory: bytes) -> Light | None:
    """The light of a module of this kind (`ethtool_modinfo.type`); None where it does not measure any, or tells too little."""
    if kind == SFP:
        return _sfp(memory)
    return _qsfp(memory) if kind in _QSFP else None


def _sfp(memory: bytes) -> Light | None:
    if len(memory) < _SFP_LIGHT + _WORD.size or not memory[_SFP_MONITORS] & _MONITORED:
        return None
    received, warning = _word(memory, _SFP_LIGHT), _word(memory, _SFP_WARNING)
    if not memory[_SFP_MONITORS] & _EXTERNAL:
        return Light(received, warning)
    slopes = _SLOPES.unpack_from(memory, _SFP_SLOPES)
    return Light(_calibrated(received, slopes), _calibrated(warning, slopes))


def _qsfp(memory: bytes) -> Light | None:
    if len(memory) < _QSFP_LIGHT[-1] + _WORD.size:
        return None
    has_limits = len(memory) >= _QSFP_WARNING + _WORD.size and not memory[_QSFP_STATUS] & _FLAT
    received = min(_word(memory, at) for at in _QSFP_LIGHT)
    return Light(received, _word(memory, _QSFP_WARNING) if has_limits else 0)


def _word(memory: bytes, at: int) -> int:
    return int(_WORD.unpack_from(memory, at)[0])


def _calibrated(raw: int, slopes: tuple[float, ...]) -> int:
    """The module's own polynomial, its highest power first; what is no power is none."""
    power = 0.0
    for slope in slopes:
        power = power * raw + slope
    # NaN compares as neither: a module that has garbage there measures nothing.
    return round(power) if 0 <= power <= 2**16 else 0
