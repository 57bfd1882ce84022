"""`file`: a cluster's endpoints in a file, as Envoy's `path_config_source` has them; the directory is watched."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from reachline.errors import ConfigError, Problem, RemoteProtocolError, one_line
from reachline.members import Membership, Update, compare
from reachline.net.reload import changes, text_of

if TYPE_CHECKING:
    from reachline.wire.xds import Assignment

__all__ = ["File"]

_UNREAD: Final = "\0"
"""What no file that is text holds: whatever stands there now is news."""


class File:
    """One cluster's endpoints by a DiscoveryResponse of ClusterLoadAssignments in JSON or YAML; a `Discovery`.

    A file that cannot be read, or does not name the cluster, leaves the endpoints as they are and is the update's trouble.
    The first update comes at once. Needs the extra `xds`.
    """

    def __init__(self, path: str | Path, name: str) -> None:
        """`name` of the assignment: the cluster's, or its `service_name`. ImportError says what to install."""
        from reachline.wire import xds  # noqa: PLC0415  (protobuf, and only xDS needs it)

        self._read: Final = xds.from_document
        self._path: Final = Path(path)
        self.name: Final = name

    async def watch(self) -> AsyncGenerator[Update, None]:
        """As `abc.Discovery` says."""
        told = self._update(None, self._at_hand())
        yield told
        async with aclosing(changes(self._path, known=_UNREAD)) as contents:
            async for content in contents:
                update = self._update(told, content)
                if update.is_change or (update.trouble, update.notices) != (told.trouble, told.notices):
                    told = update
                    yield update

    def _at_hand(self) -> str | ConfigError:
        try:
            return text_of(self._path)
        except ConfigError as error:
            return error

    def _update(self, told: Update | None, content: str | ConfigError) -> Update:
        before = told.membership if told else Membership()
        notices = told.notices if told else ()
        try:
            found = self._assignment(content)
        except ConfigError as error:
            return compare(before, before, trouble=str(error), notices=notices)
        return compare(before, found.membership, notices=found.notices)

    def _assignment(self, content: str | ConfigError) -> Assignment:
        if isinstance(content, ConfigError):
            raise content
        try:
            parsed = self._read(_document(self._path, content))
        except RemoteProtocolError as error:
            raise self._refusal(str(error)) from error
        ours = [each for each in parsed if each.name == self.name]
        if reasons := [each.error for each in (*ours, *parsed) if each.error and each.name in {self.name, ""}]:
            raise self._refusal(reasons[0])
        if len(ours) != 1:
            others = ", ".join(sorted(each.name for each in parsed)) or "none"
            rule = "names it twice" if ours else f"does not name it (it names {others})"
            raise self._refusal(f"{rule}; one resource of this cluster_name belongs there")
        return cast("Assignment", ours[0].value)

    def _refusal(self, rule: str) -> ConfigError:
        return _refused(self._path, self.name, rule)


def _refused(path: Path, name: str, rule: str) -> ConfigError:
    return ConfigError(Problem(place=str(path), path=name, value="", rule=one_line(rule)))


def _document(path: Path, text: str) -> object:
    """JSON where the file is named so, else YAML; RemoteProtocolError where it is neither."""
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"is no JSON: {error}") from error
    from reachline.doors.composer import compose  # noqa: PLC0415  (files in YAML alone need it)

    composed = compose(text, name=str(path))
    for each in composed.troubles:
        raise RemoteProtocolError(f"line {each.place.line}, column {each.place.column}: {each.rule}")
    return composed.value
