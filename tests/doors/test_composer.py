"""YAML text to values with places: the core schema, every place, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.doors.composer import MAX_DEPTH, Composed, compose
from reachline.doors.origin import Place


def composed(text: str) -> Composed:
    return compose(text, name="a.yaml")


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("NO", "NO"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("", None),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("1:30", "1:30"),
        ("1e3", 1_000.0),
        ("1_000", "1_000"),
        (".5", 0.5),
        ("-7", -7),
        ("2026-01-01", "2026-01-01"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("5s", "5s"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(scalar: str, expected: object) -> None:
    value = composed(f"a: {scalar}\n").value["a"]

    assert (value, type(value)) == (expected, type(expected))


def test_keys_are_texts_whatever_they_look_like() -> None:
    assert composed("on: 1\n12: 2\ntrue: 3\n").value == {"on": 1, "12": 2, "true": 3}


def test_every_key_and_value_has_its_place() -> None:
    found = composed("a:\n  b: 1\n  c: [x, {d: 2}]\n")

    assert found.places.at(("a",), key=True) == Place(1, 1)
    assert found.places.at(("a", "b")) == Place(2, 6)
    assert found.places.at(("a", "c", 1, "d"), key=True) == Place(3, 11)
    assert found.places.at(("a", "c", 1, "d")) == Place(3, 14)


def test_what_does_not_stand_there_is_placed_at_the_block_above() -> None:
    assert composed("a:\n  b: 1\n").places.at(("a", "x", "y")) == Place(2, 3)


def test_what_lies_under_an_alias_is_placed_where_it_was_written() -> None:
    found = composed("a: &it\n  b: 1\nc: *it\n")

    assert found.value == {"a": {"b": 1}, "c": {"b": 1}}
    assert found.places.at(("c",)) == Place(3, 4)
    assert found.places.at(("c", "b")) == Place(2, 6)


def test_a_key_that_stands_twice_is_told_and_the_first_is_kept() -> None:
    found = composed("a: 1\nb: 2\na: 3\na: {b: 4}\n")

    assert found.value == {"a": 1, "b": 2}
    assert [(each.place, each.rule) for each in found.troubles] == [
        (Place(3, 1), "stands here a second time (first at line 1)"),
        (Place(4, 1), "stands here a second time (first at line 1)"),
    ]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: !!python/object:os.system x\n", "has the tag !python/object:os.system; tags are not read"),
        ("a: !secret x\n", "has the tag !secret; tags are not read"),
        ("a: {<<: *b}\n", "merge keys are not read"),
        ("a: *nowhere\n", "refers to *nowhere, which is not set above"),
        ("[a]: 1\n", "uses a block as a key"),
        ("a: &x 1\n*x : 2\n", "uses an alias as a key"),
        ("a: 1\n---\nb: 2\n", "begins a second document"),
        ("a: 1\n b: 2\n", "is not YAML: mapping values are not allowed"),
        ("a: [1, 2\n", "is not YAML"),
        ("a:\n\t- b\n", "is not YAML"),
        ("a: \x00\n", "holds bytes that are no text"),
        ("\x7fELF\x02", "holds bytes that are no text"),
        ("{a: " * (MAX_DEPTH + 1), f"is nested deeper than {MAX_DEPTH} blocks"),
        ("a: [" + "[" * 100_000, "nest"),
    ],
)
def test_what_is_no_plain_document_is_refused(text: str, rule: str) -> None:
    assert any(rule in trouble.rule for trouble in composed(text).troubles), composed(text).troubles


def test_an_alias_bomb_is_stopped_by_count_before_it_unfolds() -> None:
    levels = "".join(f"l{level + 1}: &l{level + 1} [{', '.join([f'*l{level}'] * 10)}]\n" for level in range(12))

    found = composed(f"l0: &l0 [x]\n{levels}")

    assert not found.whole
    assert "more than 600000 keys and values" in found.troubles[0].rule
    assert found.troubles[0].place.line < 9


@given(st.text(max_size=200))
def test_any_text_is_composed_or_told_what_is_wrong(text: str) -> None:
    found = composed(text)

    assert found.whole or found.troubles


Values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("ab:#- ", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(Values)
def test_json_is_composed_to_itself(value: object) -> None:
    import json

    found = composed(json.dumps(value))

    assert found.value == value
    assert not found.troubles
