"""A demo's story as data: when which knobs are turned, and the words for what is then seen. Reads text, does nothing."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from reachline.doors.composer import compose
from reachline.doors.problems import Finding, Locator
from reachline.doors.units import Duration, Share, refuse
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.testing.faults import Knobs

__all__ = ["STATES", "KnobSettings", "Scene", "Sight", "Story", "read"]

STATES: Final = ("degraded", "open", "half_open", "ramp", "closed")
"""What the center may publish of the story's line that is worth words."""


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class KnobSettings(_Settings):
    """Faults of one proxy; see `faults.Knobs`."""

    delay: Duration = Field(0.0, ge=0, le=60)
    jitter: Duration = Field(0.0, ge=0, le=60)
    unanswered: Share = Field(0.0, ge=0, le=1)
    reset: Share = Field(0.0, ge=0, le=1)
    refuse: bool = False

    @property
    def knobs(self) -> Knobs:
        """The same as a value of the proxy."""
        return Knobs(**self.model_dump())


class Scene(_Settings):
    """One turn of the knobs, and what to tell about it. Without knobs the line is as calm as the others."""

    at: Duration
    phase: str
    title: str
    say: str
    knobs: KnobSettings | None = None


class Sight(_Settings):
    """Words for a state that the center publishes."""

    phase: str
    title: str
    say: str


class Story(_Settings):
    """The whole: one line's faults over time."""

    line: str = Field(min_length=1)
    length: Annotated[Duration, Field(gt=0, le=3_600)]
    calm: KnobSettings = KnobSettings()
    script: Annotated[tuple[Scene, ...], Field(strict=False)]
    seen: dict[str, Sight] = Field(default_factory=dict)
    phases: dict[str, str] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_told_in_order(self) -> Self:
        times = [scene.at for scene in self.script]
        if not times:
            raise refuse("script must have a scene", "begin with one at 0s")
        if times != sorted(times) or times[-1] >= self.length:
            raise refuse("script must be in order of time and end before length", "sort the scenes by `at`")
        if strange := sorted(self.seen.keys() - set(STATES)):
            raise refuse(f"seen has unknown states {', '.join(strange)}", f"there are {', '.join(STATES)}")
        told = {scene.phase for scene in self.script} | {sight.phase for sight in self.seen.values()}
        if missing := sorted(told - self.phases.keys()):
            raise refuse(f"phases lacks {', '.join(missing)}", "give every phase a short title")
        return self

    def knobs_of(self, scene: Scene | None) -> Knobs:
        """The knobs of the story's line in a scene; those of calm outside of one."""
        return scene.knobs.knobs if scene and scene.knobs else self.calm.knobs

    def scene_at(self, elapsed: Seconds) -> Scene | None:
        """The newest scene that has begun."""
        return next((scene for scene in reversed(self.script) if scene.at <= elapsed), None)


def read(text: str, *, name: str) -> Story:
    """The story in `text`; ConfigError holds every problem with its place."""
    composed = compose(text, name=name)
    locator = Locator(value=composed.value, places=composed.places)
    if composed.troubles or not isinstance(composed.value, dict):
        troubles = [
            Problem(place=composed.places.text(each.place), path="", value="", rule=each.rule, hint=each.hint)
            for each in composed.troubles
        ]
        raise ConfigError(*troubles or [Problem(place=name, path="", value="", rule="is not a block of keys")])
    try:
        return Story.model_validate(composed.value)
    except ValidationError as error:
        found = [_finding(each) for each in error.errors(include_url=False)]
        raise ConfigError(*(locator.located(each).problem for each in found)) from error


def _finding(error: ErrorDetails) -> Finding:
    path, hint = error["loc"], str(error.get("ctx", {}).get("hint", ""))
    if error["type"] == "missing":
        return Finding(path=path[:-1], rule="is required", about_key=True, missing=str(path[-1]))
    if error["type"] == "extra_forbidden":
        return Finding(path=path, rule="is unknown", about_key=True)
    return Finding(path=path, rule=error["msg"], hint=hint)
