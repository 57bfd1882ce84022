"""The one thing a probe reads of a certificate by itself: when it ends. A walk over DER, trusting nothing in it."""

from __future__ import annotations

import calendar
from typing import Final

from reachline.errors import RemoteProtocolError

__all__ = ["expires"]

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_FIFTY: Final = 50
"""UTCTime years from 50 on are 19xx (RFC 5280, 4.1.2.5.1)."""


def expires(der: bytes) -> int:
    """`notAfter` of a certificate, unix seconds; RemoteProtocolError where it is not one. Nothing is verified."""
    _, start, end = _element(der, 0, len(der), _SEQUENCE)
    _, at, end = _element(der, start, end, _SEQUENCE)
    tag, _, after = _element(der, at, end)
    if tag == _VERSION:
        at = after
    for _ in ("serialNumber", "signature", "issuer"):
        _, _, at = _element(der, at, end)
    _, at, end = _element(der, at, end, _SEQUENCE)
    _, _, at = _element(der, at, end)
    tag, start, end = _element(der, at, end)
    return _time(tag, der[start:end])


def _element(der: bytes, at: int, end: int, wanted: int | None = None) -> tuple[int, int, int]:
    """(tag, start, end) of the content of the element at `at`."""
    if at + 2 > end:
        raise RemoteProtocolError("certificate cut short")
    tag, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:
        width = length & 0x7F
        if not 1 <= width <= 4 or start + width > end:
            raise RemoteProtocolError("certificate has a malformed length")
        length, start = int.from_bytes(der[start : start + width], "big"), start + width
    if start + length > end:
        raise RemoteProtocolError("certificate cut short")
    if wanted is not None and tag != wanted:
        raise RemoteProtocolError("not a certificate")
    return tag, start, start + length


def _time(tag: int, raw: bytes) -> int:
    text = raw.decode("ascii", "replace")
    if tag == _UTC_TIME and len(text) == 13:
        text = ("19" if text[:2] >= str(_FIFTY) else "20") + text
    elif tag != _GENERALIZED_TIME or len(text) != 15:
        raise RemoteProtocolError("certificate without an end")
    if not (text[:14].isascii() and text[:14].isdigit() and text[14] == "Z"):
        raise RemoteProtocolError("certificate's end is not a time")
    year, *rest = int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))
    try:
        return calendar.timegm((year, *rest, 0, 0, 0))
    except ValueError as error:
        raise RemoteProtocolError("certificate's end is not a time") from error
