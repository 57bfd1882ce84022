"""Which outbounds a list of selectors means: by the beginnings of their tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["is_selected", "selected"]


def is_selected(tag: str, selectors: Sequence[str]) -> bool:
    """Whether the tag begins with one of them. An empty selector begins every tag, an empty list none."""
    return any(map(tag.startswith, selectors))


def selected(tags: Iterable[str], selectors: Sequence[str]) -> tuple[str, ...]:
    """Each tag once, sorted by its bytes; an untagged outbound is never selected."""
    return tuple(sorted({tag for tag in tags if tag and is_selected(tag, selectors)}, key=str.encode))
