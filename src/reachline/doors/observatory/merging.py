"""Several files as one document, as Xray's `-confdir` makes it, and one of an array of documents by its `remarks`.

Top-level blocks replace each other, whole. Inbounds and outbounds replace the one of the same tag; new inbounds come last, new
outbounds first, in front of those of the files before, but last where the file's name holds `tail`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from reachline.doors.findings import Findings
from reachline.doors.observatory.text import compose
from reachline.doors.origin import Path, Places
from reachline.doors.wording import dotted, nearest
from reachline.errors import ConfigError, Problem

__all__ = ["KEYS", "Merged", "Source", "looks_like_xray", "merge", "tag_of"]

_LISTS: Final = ("inbounds", "outbounds")
KEYS: Final = (
    "log", "api", "dns", "routing", "policy", *_LISTS, "transport", "stats", "reverse", "fakeDns", "metrics", "observatory",
    "burstObservatory", "version", "geodata", "remarks", "reachline",
)  # fmt: skip
"""Top-level keys: Xray's, what clients add to tell documents apart, and ours, which Xray ignores."""
_TELLING: Final = ("outbounds", "inbounds", "routing", "observatory", "burstobservatory")
"""By these a document is told to be Xray's."""
_MOST: Final = 64
"""Names listed in a hint."""


class Source(NamedTuple):
    """One file: its name, which decides where its outbounds go, and its text."""

    name: str
    text: str


class Merged(NamedTuple):
    """The document with where each of its parts was written."""

    value: dict[str, object]
    files: tuple[Places, ...]
    origins: Mapping[Path, tuple[int, Path]]
    """Of a part of the document: its file and its path there."""

    def place(self, path: Path, *, key: bool = False) -> str:
        """`file:line:column`."""
        file, there = self.origin(path)
        places = self.files[file]
        return places.text(places.at(there, key=key))

    def order(self, path: Path) -> tuple[int, int, int]:
        """What findings are sorted by: file, line, column."""
        file, there = self.origin(path)
        return file, *self.files[file].at(there)

    def origin(self, path: Path) -> tuple[int, Path]:
        """The file, and the path there."""
        for length in range(len(path), -1, -1):
            if (found := self.origins.get(path[:length])) is not None:
                return found[0], (*found[1], *path[length:])
        return 0, path


def looks_like_xray(text: str) -> bool:
    """Whether a text is JSON with a top-level block of Xray's. Says nothing of whether it is right."""
    if text.lstrip("\ufeff \t\r\n")[:1] not in {"{", "[", "/", "#"}:
        return False
    value = compose(text, name="").value
    if isinstance(value, list):
        return any(isinstance(each, dict) and _is_telling(each) for each in value)
    return isinstance(value, dict) and _is_telling(value)


def _is_telling(value: Mapping[str, object]) -> bool:
    return any(key.casefold() in _TELLING for key in value)


def merge(sources: Sequence[Source], *, remarks: str | None = None) -> Merged:
    """The one document of all files, in their order. ConfigError where a text is none, or where it is not said which of several."""
    composed = [compose(source.text, name=source.name) for source in sources]
    troubles = [
        Problem(
            place=each.places.text(found.place), path=dotted(found.path), value="", rule=found.rule, hint=found.hint
        )
        for each in composed
        for found in each.troubles
    ]
    if troubles:
        raise ConfigError(*troubles)
    files = tuple(each.places for each in composed)
    merged = Merged({}, files, {(): (0, ())})
    chosen = [_chosen(each.value, each.places, remarks) for each in composed]
    if remarks is not None and not any(is_named for _, _, is_named in chosen):
        raise _unknown(remarks, composed[0].places, chosen)
    for number, (value, at, _) in enumerate(chosen):
        _override(merged, value, (number, at), sources[number].name)
    return merged


def _chosen(value: object, places: Places, remarks: str | None) -> tuple[Mapping[str, object], Path, bool]:
    """The document of a file, its path there, and whether it has the name asked for."""
    if isinstance(value, Mapping):
        return value, (), remarks is not None and _remarks(value) == remarks
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value) or not value:
        rule = "must be a block, {…}, or a list of such documents"
        raise ConfigError(Problem(place=places.text(places.at(())), path="", value="", rule=rule))
    if len(value) == 1 and remarks is None:
        return value[0], (0,), False
    names = [_remarks(each) for each in value]
    if remarks is None:
        raise ConfigError(_several(places, names))
    if names.count(remarks) > 1:
        at = names.index(remarks, names.index(remarks) + 1)
        rule = f"is the second document named {remarks!r}"
        raise ConfigError(Problem(place=places.text(places.at((at,))), path=f"[{at}].remarks", value="", rule=rule))
    return (value[names.index(remarks)], (names.index(remarks),), True) if remarks in names else ({}, (), False)


def _remarks(value: Mapping[str, object]) -> str:
    found = next((each for key, each in value.items() if key.casefold() == "remarks"), "")
    return found if isinstance(found, str) else ""


def _several(places: Places, names: Sequence[str]) -> Problem:
    listed = ", ".join(repr(name) if name else "one without a name" for name in names[:_MOST])
    rule = f"holds {len(names)} documents; say which by its remarks"
    return Problem(place=places.text(places.at(())), path="", value="", rule=rule, hint=f"there are {listed}")


def _unknown(remarks: str, places: Places, chosen: Sequence[tuple[Mapping[str, object], Path, bool]]) -> ConfigError:
    named = ", ".join(repr(name) for value, _, _ in chosen if (name := _remarks(value)))
    hint = f"there are {named}" if named else "look at the remarks of the documents"
    return ConfigError(
        Problem(place=places.name, path="remarks", value=repr(remarks), rule="names no document", hint=hint)
    )


def _override(merged: Merged, value: Mapping[str, object], origin: tuple[int, Path], name: str) -> None:
    file, at = origin
    known = {key.casefold(): key for key in KEYS}
    for written, each in value.items():
        key = known.get(written.casefold(), written)
        if each is None:
            continue
        if key in _LISTS and isinstance(each, list):
            _join(merged, key, each, (file, (*at, written)), is_tail="tail" in name.lower())
        else:
            merged.value[key] = each
            _origins(merged)[(key,)] = (file, (*at, written))


def _origins(merged: Merged) -> dict[Path, tuple[int, Path]]:
    assert isinstance(merged.origins, dict)
    return merged.origins


def _join(merged: Merged, key: str, added: Sequence[object], origin: tuple[int, Path], *, is_tail: bool) -> None:
    """Items with where they were written, put where Xray puts them."""
    file, at = origin
    origins = _origins(merged)
    present = merged.value.get(key)
    here = present if isinstance(present, list) else []
    items: list[tuple[object, tuple[int, Path]]] = [(each, origins[key, number]) for number, each in enumerate(here)]
    new: list[tuple[object, tuple[int, Path]]] = []
    for number, each in enumerate(added):
        entry = (each, (file, (*at, number)))
        # Tags are compared with those of the files before, and empty ones are equal, as Xray has it.
        same = (
            next((place for place, (old, _) in enumerate(items) if tag_of(old) == tag_of(each)), None) if here else None
        )
        if same is None:
            new.append(entry)
        else:
            items[same] = entry
    before = key == "outbounds" and not is_tail
    joined = new + items if before else items + new
    merged.value[key] = [each for each, _ in joined]
    origins.setdefault((key,), origin)
    origins.update({(key, number): place for number, (_, place) in enumerate(joined)})


def tag_of(value: object) -> str:
    """Of an inbound or outbound as a document has it, empty where it has none."""
    found = (
        next((each for key, each in value.items() if key.casefold() == "tag"), "") if isinstance(value, Mapping) else ""
    )
    return found if isinstance(found, str) else ""


def strange_keys(merged: Merged, found: Findings) -> None:
    """Warn of top-level keys that look like a slip: Xray ignores them."""
    names = {key.casefold(): key for key in KEYS}
    for key in merged.value:
        if key.casefold() not in names and (close := nearest(key.casefold(), tuple(names))):
            found.warn((key,), "unknown block, which Xray ignores", f"did you mean '{names[close]}'?", about_key=True)
