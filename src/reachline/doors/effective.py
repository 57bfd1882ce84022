"""What a cluster obeys in the end, and where each number comes from: default < mode < preset < class < top-level block < cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from pydantic import BaseModel

from reachline.doors.limits import Limits, RateLimit, RttLimit
from reachline.doors.origin import Path
from reachline.doors.presets import CLASSES, MODES, PRESETS
from reachline.doors.settings import Document, Tunable

__all__ = ["Effective", "Path", "effective", "key_of", "lifted", "steps"]

Model = TypeVar("Model", bound=BaseModel)


class _Say(Protocol):
    """Notes that the layer at hand decides this key, by itself or because it `follows` another."""

    def __call__(self, path: Path, follows: str = "") -> None: ...


_DOUBLINGS: Final = 16
"""The ceiling of the cooldown above its start, as in every preset."""
_LONGEST: Final = 604_800.0
"""Seconds of the longest ceiling that may be written: a week."""
_FOLLOWS: Final = (("degraded", "exit"), ("failed", "failed_exit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """A cluster's settings, whole, and for each key by its path where its value was said."""

    settings: Tunable
    sources: Mapping[Path, str]
    paths: Mapping[Path, Path]
    """For each key that stands in the document, the path it stands at."""

    @property
    def steps(self) -> tuple[float, ...]:
        """Shares of the base weight: the trial's, then the ramp's; the last is 1."""
        breaker = self.settings.circuit_breaker
        return steps(breaker.half_open.traffic_ratio, breaker.recovery.step_ratios)

    def is_written(self, path: Path) -> bool:
        """Whether a person wrote this key, rather than a preset or a class."""
        return path in self.paths

    def whence(self, cluster: Path, path: Path) -> Path:
        """The document's path of what decided a key; the cluster's where nothing in the document did."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.paths:
                return (*self.paths[path[:length]], *path[length:])
        return cluster


def steps(ratio: float, ladder: tuple[float, ...]) -> tuple[float, ...]:
    """The trial's share, then the ladder's above it: the source document's list begins with the trial itself."""
    return (ratio, *(step for step in ladder if step > ratio))


def effective(document: Document, cluster: str) -> Effective:
    """The merged settings of one cluster; KeyError where the document has none of that name."""
    own = document.clusters[cluster]
    mode = own.mode if "mode" in own.model_fields_set else document.mode
    preset = own.preset if "preset" in own.model_fields_set else document.preset
    named = own.service_class if "service_class" in own.model_fields_set else document.service_class
    base = Tunable()
    book = _Book(document=document)
    settings = base.model_copy(update={name: getattr(base, name) for name in Tunable.model_fields})
    settings = _overlay(settings, MODES[mode], (), book.said_by(f"mode {mode}"))
    settings = _overlay(settings, PRESETS[preset], (), book.said_by(f"preset {preset}"))
    if named is not None:
        settings = _overlay(settings, CLASSES[named], (), book.said_by(f"class {named}"))
    settings = _overlay(settings, lifted(document), (), book.written_at((), document))
    settings = _overlay(settings, lifted(own), (), book.written_at(("clusters", cluster), own))
    return Effective(settings=_capped(settings, book), sources=book.sources, paths=book.paths)


@dataclass(slots=True, kw_only=True)
class _Book:
    """Who said what, while layers are laid over each other. Written by `effective` alone."""

    document: Document
    sources: dict[Path, str] = field(default_factory=dict)
    paths: dict[Path, Path] = field(default_factory=dict)

    def said_by(self, name: str) -> _Say:
        def say(path: Path, follows: str = "") -> None:
            del follows
            self.sources[path] = name

        return say

    def written_at(self, root: Path, layer: Tunable) -> _Say:
        def say(path: Path, follows: str = "") -> None:
            home = (*root, *_home(layer, path))
            self.paths[path] = home
            place = self.document.place(home)
            self.sources[path] = f"follows {follows}, {place}" if follows else place

        return say


def _home(layer: Tunable, path: Path) -> Path:
    """Where a key of this layer stands, which may be one level above its place."""
    if path[:2] == ("circuit_breaker", "recovery") and layer.recovery is not None:
        return path[1:]
    raised = layer.circuit_breaker.cooldown_multiplier is not None
    if raised and path == ("circuit_breaker", "half_open", "cooldown_multiplier"):
        return ("circuit_breaker", "cooldown_multiplier")
    return path


def _capped(settings: Tunable, book: _Book) -> Tunable:
    """Where only the cooldown is written, its ceiling stays four doublings above."""
    breaker = settings.circuit_breaker
    cooldown, cap = ("circuit_breaker", "cooldown_seconds"), ("circuit_breaker", "max_cooldown_seconds")
    if cooldown not in book.paths or cap in book.paths:
        return settings
    book.sources[cap] = "follows cooldown_seconds"
    longest = min(_DOUBLINGS * breaker.cooldown_seconds, _LONGEST)
    return _with(settings, circuit_breaker=_with(breaker, max_cooldown_seconds=longest))


def lifted(layer: Tunable) -> Tunable:
    """The layer with what was written one level too high put where it belongs."""
    breaker = layer.circuit_breaker
    changed = breaker.cooldown_multiplier is not None
    if changed:
        half_open = _with(breaker.half_open, cooldown_multiplier=breaker.cooldown_multiplier)
        breaker = _with(breaker, half_open=half_open)
    if layer.recovery is not None:
        breaker = _with(breaker, recovery=_overlay_plain(breaker.recovery, layer.recovery))
        changed = True
    return _with(layer, circuit_breaker=breaker) if changed else layer


def key_of(model: type[BaseModel], name: str) -> str:
    """A field's key as it stands in a document."""
    return model.model_fields[name].alias or name


def _with(model: Model, **values: object) -> Model:
    return model.model_copy(update=values)


def _overlay_plain(base: Model, top: BaseModel) -> Model:
    return _with(base, **{name: getattr(top, name) for name in top.model_fields_set})


def _overlay(base: Model, top: BaseModel, path: Path, say: _Say) -> Model:
    """`base` with every field that was set in `top`; blocks are merged key by key."""
    values: dict[str, object] = {}
    for name in type(base).model_fields:
        if name not in top.model_fields_set:
            continue
        here = (*path, key_of(type(base), name))
        old, new = getattr(base, name), getattr(top, name)
        if isinstance(old, RateLimit | RttLimit) and isinstance(new, RateLimit | RttLimit):
            values[name] = _limit(old, new, here, say)
        elif isinstance(new, BaseModel) and isinstance(old, BaseModel):
            values[name] = _overlay(old, new, here, say)
        else:
            values[name] = new
        say(here)
    return _with(base, **values)


def _limit(old: Model, new: BaseModel, path: Path, say: _Say) -> Model:
    """A limit whose exit was not said with it moves in proportion, so that hysteresis stays what it was."""
    values: dict[str, object] = {name: getattr(new, name) for name in new.model_fields_set}
    for name in values:
        say((*path, name))
    for enter, leave in _FOLLOWS:
        if enter in values and leave not in values:
            values[leave] = _in_proportion(str(path[-1]), values[enter], enter, leave)
            say((*path, leave), follows=enter)
    return _with(old, **values)


def _in_proportion(metric: str, level: object, enter: str, leave: str) -> float | None:
    """The exit of a level by the base table's proportion of this metric."""
    if not isinstance(level, float | int):
        return None
    base = getattr(Limits(), metric)
    return float(level) * float(getattr(base, leave)) / float(getattr(base, enter))
