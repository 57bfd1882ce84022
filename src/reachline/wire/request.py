"""One HTTP request as values, whatever version carries it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Request"]


class Request(NamedTuple):
    """What is asked of whom; header values as they were written."""

    method: str
    scheme: str
    authority: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
