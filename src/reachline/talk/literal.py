"""Bytes as people write them in a document or on a command line: text with escapes, or hex."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MOST", "literal"]

MOST: Final = 4_096
"""Bytes of a request or an expectation: what fits one segment several times over, and every protocol's greeting."""
_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)
_MEANT: Final = {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}
_RULE: Final = r"must be text, with \r \n \t \0 \\ and \xHH for other bytes, or hex: and hexadecimal digits"


def literal(text: str) -> bytes:
    r"""`PING\r\n` or `hex:50494e470d0a` as bytes; ValueError says the rule."""
    found = _from_hex(text.removeprefix("hex:")) if text.startswith("hex:") else _from_escapes(text)
    if len(found) > MOST:
        raise ValueError(f"must be at most {MOST} bytes")
    return found


def _from_hex(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise ValueError(_RULE) from None


def _from_escapes(text: str) -> bytes:
    parts, at = [], 0
    for match in _ESCAPE.finditer(text):
        parts += [text[at : match.start()].encode(), _meant(match[1])]
        at = match.end()
    return b"".join((*parts, text[at:].encode()))


def _meant(escape: str) -> bytes:
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _MEANT:
        raise ValueError(_RULE)
    return _MEANT[escape]
