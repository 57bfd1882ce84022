"""What is wrong with a document that is plain values, before it is told with its place: of Envoy's and of Xray's alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reachline.doors.origin import Path

__all__ = ["Finding", "Findings"]


class Finding(NamedTuple):
    """One rule broken at a path of the document."""

    path: Path
    rule: str
    hint: str = ""
    about_key: bool = False
    """The key itself is wrong, or its block lacks something: its value is not shown."""
    is_error: bool = True


class Findings:
    """What was found so far, in the order met, each once. Written by whoever reads the document."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def append(self, finding: Finding) -> None:
        self._found[finding] = None

    def refuse(self, path: Path, rule: str, hint: str = "", *, about_key: bool = False) -> None:
        self.append(Finding(path, rule, hint, about_key))

    def warn(self, path: Path, rule: str, hint: str = "", *, about_key: bool = False) -> None:
        """It is told, and the document is taken all the same."""
        self.append(Finding(path, rule, hint, about_key, is_error=False))

    def notice(self, path: Path, rule: str, hint: str = "") -> None:
        """A warning that is about the key, whatever stands there."""
        self.warn(path, rule, hint, about_key=True)
