"""SETTINGS: what either end says of itself (RFC 9113, 6.5)."""

from __future__ import annotations

from enum import IntEnum
from struct import iter_unpack
from typing import Final

from reachline.proxy.http2.frames import LARGEST, SETTINGS, BrokenError, frame, pack_setting
from reachline.proxy.http2.limits import MAX_WINDOW, Code, Limits

__all__ = ["Setting", "heard", "said"]


class Setting(IntEnum):
    """What is known of them."""

    TABLE = 1
    PUSH = 2
    STREAMS = 3
    WINDOW = 4
    FRAME = 5
    LIST = 6
    CONNECT = 8


_MOST: Final = 32
"""In one frame; there are seven."""
_LARGEST_EVER: Final = (1 << 24) - 1


def said(limits: Limits, *, is_client: bool) -> bytes:
    """The first frame of a connection."""
    pairs = {
        Setting.TABLE: limits.table,
        **({Setting.PUSH: 0} if is_client else {Setting.CONNECT: int(limits.allow_connect)}),
        Setting.STREAMS: limits.streams,
        Setting.WINDOW: limits.stream_window,
    }
    return frame(SETTINGS, 0, 0, b"".join(pack_setting(name, value) for name, value in pairs.items()))


def heard(payload: bytes, *, is_client: bool) -> dict[int, int]:
    """The last value of each setting that is known; BrokenError where one cannot be."""
    if len(payload) % 6:
        raise BrokenError(Code.FRAME_SIZE_ERROR, "SETTINGS of half a setting")
    if len(payload) > _MOST * 6:
        raise BrokenError(Code.ENHANCE_YOUR_CALM, f"more than {_MOST} settings")
    found: dict[int, int] = dict(iter_unpack(">HI", payload))
    push = found.get(Setting.PUSH, 0)
    if push > (0 if is_client else 1):
        raise BrokenError(Code.PROTOCOL_ERROR, "ENABLE_PUSH")
    if found.get(Setting.WINDOW, 0) > MAX_WINDOW:
        raise BrokenError(Code.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE")
    if not LARGEST <= found.get(Setting.FRAME, LARGEST) <= _LARGEST_EVER:
        raise BrokenError(Code.PROTOCOL_ERROR, "MAX_FRAME_SIZE")
    if found.get(Setting.CONNECT, 0) > 1:
        raise BrokenError(Code.PROTOCOL_ERROR, "ENABLE_CONNECT_PROTOCOL")
    return found
