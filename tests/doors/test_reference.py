"""The document described from its settings: page, schema and values agree with what is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from reachline.doors import page, reach, reference
from reachline.doors.effective import effective, key_of
from reachline.doors.settings import Document
from reachline.doors.upgrade import upgrade


def test_the_page_is_what_the_settings_say(root: Path) -> None:
    assert (root / "docs/reference/config.md").read_text() == page.markdown(), "run: make docs"


@pytest.mark.parametrize("model", reference.models(Document))
def test_every_key_has_a_reason(model: type[BaseModel]) -> None:
    assert (model.__doc__ or "").strip()
    assert [
        name for name, field in model.model_fields.items() if not (field.description or "").endswith((".", "`"))
    ] == []


def test_every_key_is_on_the_page() -> None:
    text = page.markdown()

    assert [
        name
        for model in reference.models(Document)
        for name in model.model_fields
        if f"`{key_of(model, name)}`" not in text
    ] == []


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    schema = reference.schema()
    blocks = [schema, *schema["$defs"].values()]

    assert all(block["additionalProperties"] is False for block in blocks if block.get("type") == "object")
    assert reference.MODELINE in schema["$comment"]
    assert json.loads(json.dumps(schema)) == schema


def test_defaults_in_the_schema_are_written_as_people_write_them() -> None:
    defined = reference.schema()["$defs"]

    assert defined["TcpProbe"]["properties"]["every"]["default"] == "5s"
    assert defined["HalfOpen"]["properties"]["traffic_ratio"]["default"] == "5%"
    assert defined["Center"]["properties"]["journal_size"]["default"] == "2GB"
    assert defined["HalfOpen"]["properties"]["min_success_requests"]["default"] == 200


@pytest.mark.parametrize("preset", ["quick_recovery", "default", "high_stability"])
def test_what_is_shown_can_be_written_back_and_means_the_same(preset: str) -> None:
    first = reach.read(f"preset: {preset}\nclusters: {{c: {{lines: ['tcp://h:1'], class: rpc}}}}", name="a")
    written: dict[str, Any] = {}
    for path, value in reference.values(effective(first, "c").settings):
        if value != "–":
            put(written, path, value)

    second = reach.read(yaml.safe_dump({"clusters": {"c": {"lines": ["tcp://h:1"], **written}}}), name="b")

    assert reach.rules(second, "c") == reach.rules(first, "c")


def put(document: dict[str, Any], path: tuple[str | int, ...], shown: str) -> None:
    """The shown value as YAML has it: a list where commas stand, else what the text reads as."""
    for step in path[:-1]:
        document = document.setdefault(str(step), {})
    parsed = [yaml.safe_load(item) for item in shown.split(", ")]
    document[str(path[-1])] = parsed if path[-1] == "step_ratios" else parsed[0]
    if path[-1] == "max_cooldown_seconds":
        document[str(path[-1])] = float(shown)


def test_secrets_are_hidden_when_shown() -> None:
    document = reach.read(
        "clusters: {c: {lines: ['http://h'], probes: {http: {headers: {A: geheim}}}}}\ncenter: {token: sesame}",
        name="a",
    )
    shown = f"{list(reference.values(effective(document, 'c').settings))} {list(reference.values(document.center))}"

    assert "geheim" not in shown
    assert "sesame" not in shown
    assert "A: ***" in shown


# ----------------------------------------------------------------------------------------------------------- upgrades


def test_older_forms_are_upgraded_step_by_step() -> None:
    steps = {
        1: lambda document: {**document, "b": document["a"]},
        2: lambda document: {**document, "c": document["b"] + 1},
    }
    old = {"schema_version": 1, "a": 1}

    found, findings = upgrade(old, steps, current=3)

    assert (found, findings) == ({"schema_version": 3, "a": 1, "b": 1, "c": 2}, ())
    assert old == {"schema_version": 1, "a": 1}


def test_a_gap_in_the_upgrades_is_told() -> None:
    _, [finding] = upgrade({"schema_version": 1}, {2: dict}, current=3)

    assert finding.path == ("schema_version",)
