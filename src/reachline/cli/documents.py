"""The kinds of documents that `reachline config check` knows, each by the keys it begins with. A kind is one line in `TABLE`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from reachline.doors import reach
from reachline.doors.composer import compose
from reachline.errors import Problem

__all__ = ["TABLE", "Checked", "kind_of"]


class Checked(NamedTuple):
    """A document that is right."""

    counts: dict[str, int]
    said: str
    """What it holds, for people."""
    warnings: tuple[Problem, ...]


class Kind(NamedTuple):
    """`keys`: one of them at the top says that it is this kind."""

    keys: frozenset[str]
    check: Callable[[str, str], Checked]
    """Of text and the file's name; ConfigError with all problems."""


def kind_of(text: str) -> str:
    """The name of the kind in `TABLE`; what no other kind claims is a document of our own."""
    value = compose(text.replace("\t", " "), name="").value
    if not isinstance(value, Mapping):
        return "reach"
    return next((name for name, kind in TABLE.items() if kind.keys & set(value)), "reach")


def _reach(text: str, name: str) -> Checked:
    document = reach.read(text, name=name, environ=os.environ)
    lines = sum(len(reach.lines(document, each)) for each in document.clusters)
    counts = {"clusters": len(document.clusters), "lines": lines, "agents": len(document.agents)}
    agents = _many(counts["agents"], "agent") if counts["agents"] else "any agent that joins"
    said = f"{_many(counts['clusters'], 'cluster')}, {_many(lines, 'line')}, {agents}"
    return Checked(counts, said, document.warnings)


def _envoy(text: str, name: str) -> Checked:
    from reachline.doors.envoy.whole import read  # noqa: PLC0415  (a door of its own, for its own documents)

    chain = read(text, name=name)
    endpoints = sum(len(each.membership.members) for each in chain.settings.clusters.values())
    counts = {"listeners": len(chain.listeners), "clusters": len(chain.settings.clusters), "endpoints": endpoints}
    elsewhere = [word for word, source in (("listeners", chain.lds), ("clusters", chain.cds)) if source is not None]
    said = ", ".join(_many(count, word.removesuffix("s")) for word, count in counts.items())
    more = f"; more {' and '.join(elsewhere)} come from elsewhere" if elsewhere else ""
    return Checked(counts, f"an Envoy bootstrap: {said}{more}", chain.notices)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


TABLE: Final[dict[str, Kind]] = {
    "envoy": Kind(
        frozenset(
            {"static_resources", "staticResources", "dynamic_resources", "dynamicResources", "admin", "node",
             "layered_runtime", "layeredRuntime", "cluster_manager", "clusterManager", "overload_manager", "static_layer"}
        ),
        _envoy,
    ),
    "reach": Kind(frozenset({"clusters"}), _reach),
}  # fmt: skip
"""In the order in which they are asked."""
