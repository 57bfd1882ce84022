"""From the text of a scenario file to scenarios, each with the file's defaults filled in; or every problem with its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from reachline.doors.composer import compose
from reachline.doors.origin import Path
from reachline.doors.problems import Finding, Locator, explained, nearest
from reachline.errors import ConfigError, Problem
from reachline.simulate.scenarios import ALL, Phase, Scenario, ScenarioFile

__all__ = ["read"]

_SDK: Final = "sdk"
_WHOLE: Final = frozenset({"lines", "rng_seeds", "syn_rto_ms"})
"""Keys that a scenario replaces as a whole."""


def read(text: str, *, name: str) -> tuple[Scenario, ...]:
    """The file's scenarios in its order; ConfigError holds every problem found."""
    composed = compose(text, name=name)
    locator = Locator(value=composed.value, places=composed.places)
    troubles = [
        Problem(place=composed.places.text(each.place), path="", value="", rule=each.rule, hint=each.hint)
        for each in composed.troubles
    ]
    if troubles:
        raise ConfigError(*troubles)
    if not isinstance(composed.value, dict):
        raise ConfigError(
            Problem(place=name, path="", value="", rule="is not a block of keys", hint="begin with scenarios:")
        )
    try:
        file = ScenarioFile.model_validate(composed.value)
    except ValidationError as error:
        raise _refused([_finding(each, locator) for each in error.errors(include_url=False)], locator) from None
    merged = tuple(_merged(file, each) for each in file.scenarios)
    findings = [*_twice(merged), *(each for at, one in enumerate(merged) for each in _checked(one, ("scenarios", at)))]
    if findings:
        raise _refused(findings, locator)
    return merged


def _refused(findings: Iterable[Finding], locator: Locator) -> ConfigError:
    located = sorted((locator.located(each) for each in findings), key=lambda each: each.place)
    return ConfigError(*dict.fromkeys(each.problem for each in located))


def _finding(error: ErrorDetails, locator: Locator) -> Finding:
    if error["type"] != "extra_forbidden":
        return explained(error, locator)
    path = error["loc"]
    known = _keys(path[:-1])
    close = nearest(str(path[-1]), known)
    hint = f"did you mean '{close}'?" if close else f"known here: {', '.join(known)}"
    return Finding(path=path, rule="unknown key", hint=hint, about_key=True)


def _keys(path: Path) -> tuple[str, ...]:
    """The keys of the block at a path of the file."""
    kind: Any = ScenarioFile
    for step in path:
        kind = _inner(kind, step)
    models = [each for each in _plain(kind) if isinstance(each, type) and issubclass(each, BaseModel)]
    return tuple(info.alias or name for model in models for name, info in model.model_fields.items())


def _inner(kind: Any, step: str | int) -> Any:
    for each in _plain(kind):
        if isinstance(each, type) and issubclass(each, BaseModel):
            for name, info in each.model_fields.items():
                if step in {name, info.alias}:
                    return info.annotation
        elif get_args(each):
            return get_args(each)[-1]
    return None


def _plain(kind: Any) -> Iterator[Any]:
    """What a type may be, unions and annotations opened."""
    origin = getattr(kind, "__origin__", None)
    if hasattr(kind, "__metadata__"):
        yield from _plain(origin)
    elif type(kind).__name__ in {"UnionType", "_UnionGenericAlias", "Union"}:
        for each in get_args(kind):
            yield from _plain(each)
    elif kind is not type(None):
        yield kind


def _merged(file: ScenarioFile, one: Scenario) -> Scenario:
    """The scenario, with what it leaves out taken from the defaults, key by key."""
    said = {
        key: getattr(file.defaults, key) for key in type(file.defaults).model_fields if key not in one.model_fields_set
    }
    blocks = {
        key: _over(getattr(file.defaults, key), getattr(one, key))
        for key in type(file.defaults).model_fields
        if key in one.model_fields_set and key not in _WHOLE and isinstance(getattr(one, key), BaseModel)
    }
    return one.model_copy(update={**said, **blocks})


def _over(below: BaseModel, above: BaseModel) -> BaseModel:
    said = {
        key: _over(getattr(below, key), value) if isinstance(value := getattr(above, key), BaseModel) else value
        for key in above.model_fields_set
    }
    return below.model_copy(update=said)


def _twice(merged: tuple[Scenario, ...]) -> Iterator[Finding]:
    counted = Counter(each.id for each in merged)
    for at, one in enumerate(merged):
        if counted[one.id] > 1:
            yield Finding(
                path=("scenarios", at, "id"), rule="stands twice", hint="give each scenario a name of its own"
            )


def _checked(one: Scenario, path: Path) -> Iterator[Finding]:
    agents = [f"a{number}" for number in range(1, one.agents.count + 1)]
    for at, phase in enumerate(one.phases):
        yield from _phase(phase, one, agents, (*path, "phases", at))
    for at, truth in enumerate(one.truth):
        here = (*path, "truth", at)
        yield from _span(truth.from_, truth.to, here)
        yield from _known(truth.line, [*one.lines, ALL], (*here, "line"), "line")
    for at, share in enumerate((one.limits.share_healthy, one.limits.share_at_degrade, one.limits.share_down)):
        if share is not None and len(share) != len(one.lines):
            name = ("share_healthy", "share_at_degrade", "share_down")[at]
            yield Finding(path=(*path, "limits", name), rule=f"must have one share a line, {len(one.lines)} in all")
    if sum(one.traffic.services.values()) > 1:
        yield Finding(path=(*path, "traffic"), rule="services must be at most 1 together")


def _phase(phase: Phase, one: Scenario, agents: list[str], path: Path) -> Iterator[Finding]:
    yield from _span(phase.from_, phase.to, path)
    if phase.line is not None:
        yield from _known(phase.line, [*one.lines, ALL], (*path, "line"), "line")
    for name in [phase.agent] if phase.agent else []:
        yield from _known(name, agents, (*path, "agent"), "agent")
    for at, name in enumerate(phase.agents or ()):
        yield from _known(name, agents, (*path, "agents", at), "agent")
    if phase.partition:
        for side, names in (("center_side", phase.partition.center_side), ("other", phase.partition.other)):
            for at, name in enumerate(names):
                yield from _known(name, [*agents, _SDK], (*path, "partition", side, at), "agent")
    yield from _whole(phase, path)


def _whole(phase: Phase, path: Path) -> Iterator[Finding]:
    """Keys that need each other."""
    if (phase.every_s is None) != (phase.for_s is None):
        yield Finding(path=path, rule="every_s and for_s belong together", about_key=True)
    if phase.every_s and phase.for_s and phase.for_s > phase.every_s:
        yield Finding(path=(*path, "for_s"), rule="must be at most every_s")
    if phase.ramp == "sine" and not phase.period_s:
        yield Finding(path=(*path, "ramp"), rule="needs period_s beside it")
    if (phase.set_ or phase.flow_hash) and phase.line is None:
        yield Finding(
            path=path, rule="says what happens, but to no line", hint="line: NAME, or line: all", about_key=True
        )
    if phase.admin and phase.line is None:
        yield Finding(path=(*path, "admin"), rule="needs a line beside it")
    if (phase.local or phase.silent or phase.clock_offset_s or phase.clock_step_s) and not (
        phase.agent or phase.agents
    ):
        yield Finding(path=path, rule="needs agent or agents", about_key=True)
    if phase.flow_hash and any(bad >= phase.flow_hash.buckets for bad in phase.flow_hash.bad):
        yield Finding(path=(*path, "flow_hash", "bad"), rule="must be below buckets")


def _span(begin: float, end: float, path: Path) -> Iterator[Finding]:
    if end <= begin:
        yield Finding(path=(*path, "to"), rule="must be after from")


def _known(name: str, known: list[str], path: Path, what: str) -> Iterator[Finding]:
    if name not in known:
        close = nearest(name, known)
        hint = f"did you mean {close}?" if close else f"there are: {', '.join(known[:8])}"
        yield Finding(path=path, rule=f"names no {what} of this scenario", hint=hint)


def services(one: Scenario) -> Mapping[str, float]:
    """Share of the instances of each service; one that only a phase names has half of them."""
    named = dict.fromkeys((phase.service for phase in one.phases if phase.service), 0.5)
    said = dict(one.traffic.services) or {str(name): share / max(1, len(named)) for name, share in named.items()}
    rest = 1.0 - sum(said.values())
    return {**said, "main": rest} if rest > 1e-9 else said
