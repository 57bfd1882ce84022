"""Older forms of the document, brought to today's before anything else looks at them. Pure: a mapping in, a mapping out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from reachline.doors.problems import Finding

__all__ = ["CURRENT", "UPGRADES", "upgrade"]

CURRENT: Final = 1
"""The form this release writes about. A document that says nothing is of this form."""

UPGRADES: Final[Mapping[int, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {}
"""By the form they start from; each leads to the next. Form 1 is the first, so there is nothing to upgrade yet."""


def upgrade(
    data: Mapping[str, Any],
    upgrades: Mapping[int, Callable[[Mapping[str, Any]], dict[str, Any]]],
    *,
    current: int = CURRENT,
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """The document in the current form. One that cannot be brought there comes back without its version, and with why."""
    version = data.get("schema_version", current)
    if not isinstance(version, int) or isinstance(version, bool) or version == current:
        return dict(data), ()
    document = dict(data)
    while version in upgrades and version < current:
        version += 1
        document = {**upgrades[version - 1](document), "schema_version": version}
    if version == current:
        return document, ()
    newer = version > current
    rule = "is newer than this release reads" if newer else "is no form this release can upgrade"
    hint = (
        f"install a newer Reachline, or write the document in form {current}"
        if newer
        else f"the current form is {current}"
    )
    without = {key: value for key, value in document.items() if key != "schema_version"}
    return without, (Finding(path=("schema_version",), rule=rule, hint=hint),)
