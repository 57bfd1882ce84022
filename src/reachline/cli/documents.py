"""The kinds of documents that commands read, each known by the keys it begins with. A kind is one line in `TABLE`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from reachline.doors.composer import compose
from reachline.errors import ConfigError, Problem
from reachline.net.reload import text_of

if TYPE_CHECKING:
    from reachline.doors.envoy.chain import Chain
    from reachline.doors.settings import Document

__all__ = ["TABLE", "Checked", "bootstrap_in", "check_xray", "directory", "document_in", "kind_of"]

_SUFFIXES: Final = frozenset({".json", ".jsonc"})
"""Of the files that are read in a directory of Xray's…"""
_FOREIGN: Final = frozenset({".yaml", ".yml", ".toml"})
"""…and of those that Xray would read as well, and that are not read here."""


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
    called: str
    """As a sentence about such a document names it."""
    use: str
    """What else is done with one."""


def kind_of(text: str) -> str:
    """The name of the kind in `TABLE`; what no other kind claims is a document of our own."""
    from reachline.doors.observatory import looks_like_xray  # noqa: PLC0415  (a door of its own, for its own documents)

    if looks_like_xray(text):
        return "observatory"
    keys = _top(text)
    return next((name for name, kind in TABLE.items() if kind.keys & keys), "reach")


def document_in(text: str, name: str, *, environ: Mapping[str, str] = os.environ) -> Document:
    """A document of our own; ConfigError with all problems, or with one where it is of another kind."""
    from reachline.doors import reach  # noqa: PLC0415  (pydantic, which a proxy goes without)

    try:
        return reach.read(text, name=name, environ=environ)
    except ConfigError as error:
        raise _other(text, name, "reach") or error from None


def bootstrap_in(text: str, name: str) -> Chain:
    """An Envoy bootstrap; ConfigError likewise."""
    from reachline.doors.envoy.whole import read  # noqa: PLC0415  (a door of its own, for its own documents)

    try:
        return read(text, name=name)
    except ConfigError as error:
        raise _other(text, name, "envoy") or error from None


def _other(text: str, name: str, wanted: str) -> ConfigError | None:
    """What a refused document is instead, where nothing in it speaks for what was wanted."""
    found, keys = kind_of(text), _top(text)
    if found == wanted or keys & TABLE[wanted].keys or (found == "reach" and not keys & TABLE["reach"].keys):
        return None
    rule = f"is {TABLE[found].called}, not {TABLE[wanted].called}"
    return ConfigError(Problem(place=name, path="", value="", rule=rule, hint=TABLE[found].use))


def _top(text: str) -> frozenset[str]:
    """The keys that a document begins with."""
    value = compose(text.replace("\t", " "), name="").value
    return frozenset(value) if isinstance(value, Mapping) else frozenset()


def _reach(text: str, name: str) -> Checked:
    from reachline.doors import reach  # noqa: PLC0415  (as above)

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


def _xray(text: str, name: str) -> Checked:
    return check_xray([(name, text)])


def check_xray(files: Sequence[tuple[str, str]], *, remarks: str | None = None, strict: bool = False) -> Checked:
    """One document of Xray in one or several files, each with its name."""
    from reachline.doors.observatory import Reach, Source, observed, read  # noqa: PLC0415  (as above)

    settings = read([Source(*each) for each in files], remarks=remarks, strict=strict)
    native = sum(each.reach is Reach.NATIVE for each in settings.outbounds)
    seen = settings.observatory
    asked = 0 if seen is None else sum(any(map(tag.startswith, seen.selectors)) for tag in observed(settings))
    counts = {
        "outbounds": len(settings.outbounds),
        "native": native,
        "observed": asked,
        "balancers": len(settings.balancers),
        "rules": len(settings.rules),
    }
    kind = "nothing observes" if seen is None else "burstObservatory" if seen.is_burst else "observatory"
    said = (
        f"an Xray document: {_many(counts['outbounds'], 'outbound')} ({native} reached natively, {asked} observed), "
        f"{_many(counts['balancers'], 'balancer')}, {_many(counts['rules'], 'rule')}, {kind}"
    )
    return Checked(counts, said, settings.warnings)


def directory(path: Path) -> list[tuple[str, str]]:
    """Names and texts of a directory's documents in the order in which Xray's `-confdir` reads them; ConfigError where there are none."""
    files = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES and each.is_file())
    if not files:
        rule, hint = "holds no document", "a directory is read as Xray's -confdir: its .json and .jsonc files by name"
        raise ConfigError(Problem(place=str(path), path="", value="", rule=rule, hint=hint))
    if foreign := sorted(each for each in path.iterdir() if each.suffix in _FOREIGN):
        rule = "is a part of the document for Xray, and only JSON is read here"
        raise ConfigError(
            *(Problem(place=str(each), path="", value="", rule=rule, hint="write it as JSON") for each in foreign)
        )
    return [(str(each), text_of(each)) for each in files]


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


TABLE: Final[dict[str, Kind]] = {
    "envoy": Kind(
        frozenset(
            {"static_resources", "staticResources", "dynamic_resources", "dynamicResources", "admin", "node",
             "layered_runtime", "layeredRuntime", "cluster_manager", "clusterManager", "overload_manager", "static_layer"}
        ),
        _envoy,
        "an Envoy bootstrap",
        "`reachline proxy FILE` forwards by it",
    ),
    "observatory": Kind(
        frozenset({"outbounds", "inbounds", "routing", "observatory", "burstObservatory"}),
        _xray,
        "an Xray document",
        "`reachline config check FILE` says what it holds, `reachline up --door FILE` watches its outbounds",
    ),
    "reach": Kind(
        frozenset({"clusters"}),
        _reach,
        "a center's document",
        "`reachline up FILE` runs it, `reachline envoy bootstrap FILE` prints what follows it",
    ),
}  # fmt: skip
"""In the order in which they are asked."""


def texts(path: Path) -> list[tuple[str, str]]:
    """Names and texts of one file, or of a directory's."""
    return directory(path) if path.is_dir() else [(str(path), text_of(path))]
