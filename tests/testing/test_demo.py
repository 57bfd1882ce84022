"""The demo's words come from the script and from what the center publishes, and from nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from reachline.doors import reach
from reachline.errors import ConfigError
from reachline.testing.demo import STORY, Narrator, state_of
from reachline.testing.faults import CALM
from reachline.testing.story import STATES, Story, read


def story() -> Story:
    return read(STORY.read_text(), name="story.yaml")


def row(**changes: object) -> dict[str, Any]:
    return {"health": "healthy", "breaker": "closed", "weight": 100, "base": 100, "reason": ""} | changes


def narrator() -> Narrator:
    return Narrator(story=story(), line="shop/east")


def test_the_built_in_story_follows_the_incident_of_the_source_document() -> None:
    told = story()

    knobs = [told.knobs_of(scene) for scene in told.script]

    assert [scene.phase for scene in told.script] == ["calm", "jitter", "unanswered", "timeouts", "repair"]
    assert [each.unanswered for each in knobs] == [*sorted(each.unanswered for each in knobs[:-1]), 0]
    assert knobs[1].jitter > 0.3 > knobs[0].jitter
    assert knobs[0] == knobs[-1] == told.calm.knobs
    assert set(told.seen) == set(STATES)


def test_the_story_fits_into_what_a_newcomer_is_promised(root: Any) -> None:
    """Repair, cooldown, a window that forgets, trial and ramp of the quickstart's preset: all within 210 s."""
    document = reach.read((root / "examples" / "quickstart.yaml").read_text(), name="quickstart.yaml")
    rules = reach.rules(document, "shop").breaker
    repair = story().script[-1].at
    forgotten = 30 + 4  # the preset's window, and the timeout and tail of its newest bad sample

    back = repair + max(forgotten, rules.cooldown_ms / 1000) + (len(rules.steps_milli) - 1) * rules.step_ms / 1000

    assert back <= 210
    assert story().length >= back


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "closed"), ({"health": "degraded"}, "degraded"), ({"breaker": "open"}, "open"),
        ({"breaker": "half_open", "health": "unhealthy"}, "half_open"), ({"breaker": "ramp"}, "ramp"),
    ],
)  # fmt: skip
def test_a_lines_state_is_its_breaker_first(changes: dict[str, object], state: str) -> None:
    assert state_of(row(**changes)) == state


def test_a_turned_knob_is_told_with_the_lines_name() -> None:
    telling = narrator()

    telling.elapsed = 65.0
    words = telling.turned(telling.story.script[1])

    assert words.startswith("  1:05  east begins to jitter\n")
    assert telling.told()["title"] == "east begins to jitter"
    assert telling.told()["phase"] == "jitter"


def test_what_the_center_publishes_is_told_once_with_its_reason_and_weight() -> None:
    telling = narrator()
    assert telling.saw(row()) == ""

    words = telling.saw(row(health="degraded", weight=78, reason="vote.p95.degraded"))

    assert "east is called degraded" in words
    assert "vote.p95.degraded" in words
    assert "78 of" in words
    assert telling.saw(row(health="degraded", weight=78, reason="vote.p95.degraded")) == ""


def test_a_falling_weight_is_told_in_steps_a_person_can_see() -> None:
    telling = narrator()
    telling.saw(row(health="degraded", weight=78))

    told = [telling.saw(row(health="degraded", weight=weight)) for weight in (75, 71, 70, 68)]

    assert [words.strip() for words in told] == ["", "", "shop/east: weight 78 → 70", ""]


def test_a_story_that_is_not_over_is_not_begun_again() -> None:
    telling = narrator()
    assert telling.is_over

    telling.saw(row(breaker="ramp", weight=25))
    telling.elapsed = telling.story.length + 5

    assert not telling.is_over
    assert telling.told()["next"] == "the story begins again once the line is healthy"


def test_scenes_hold_until_the_next_one() -> None:
    told = story()

    assert told.scene_at(0.0) == told.script[0]
    assert told.scene_at(told.script[1].at - 0.1) == told.script[0]
    assert told.scene_at(told.script[1].at) == told.script[1]
    assert told.knobs_of(None) == told.calm.knobs != CALM


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a block"),
        ("line: e\nlength: 10s\nphases: {a: A}\nscript: []\n", "script must have a scene"),
        ("line: e\nlength: 10s\nphases: {a: A}\nscript: [{at: 11s, phase: a, title: t, say: s}]\n", "end before length"),
        ("line: e\nlength: 10s\nphases: {a: A}\nscript: [{at: 1s, phase: b, title: t, say: s}]\n", "phases lacks b"),
        ("line: e\nlength: 10s\nphases: {a: A}\nscript: [{at: 1s, phase: a, title: t, say: s, knobs: {reset: 2}}]\n", "share"),
        ("line: e\nlength: 10s\nphases: {a: A}\nseen: {gone: {phase: a, title: t, say: s}}\nscript: [{at: 1s, phase: a, title: t, say: s}]\n", "unknown states gone"),
    ],
)  # fmt: skip
def test_a_story_that_cannot_be_played_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        read(text, name="story.yaml")

    assert all(problem.place.startswith("story.yaml") for problem in refused.value.problems)
