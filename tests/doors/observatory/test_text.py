"""Xray's JSON as people write it: what is read, where it stands, and how broken texts are told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.doors.composer import MAX_DEPTH
from reachline.doors.observatory import text as reader
from reachline.doors.observatory.text import compose
from reachline.doors.origin import Place

_NO_LONE = st.text(st.characters(codec="utf-8"))
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _NO_LONE,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), inner, max_size=4)
    ),
    max_leaves=20,
)
_GAPS = st.sampled_from(["", " ", "\n", "\t", '// a "b\n', "# {c}\n", "/* , */", "/* \n * ** / */ // x\n"])


@given(_VALUES, st.booleans(), st.booleans())
def test_what_json_says_is_read_the_same(value: object, ascii_only: bool, is_indented: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1 if is_indented else None)

    found = compose(text, name="x")

    assert (found.troubles, found.value) == ((), value)


def _written(value: object, gaps: list[str], comma: str) -> str:
    """The value with a gap between any two signs and a comma behind the last item of every block that has one."""
    gap = gaps[len(json.dumps(value)) % len(gaps)]
    if isinstance(value, dict):
        items = [f"{gap}{json.dumps(key)}{gap}:{_written(each, gaps, comma)}" for key, each in value.items()]
    elif isinstance(value, list):
        items = [_written(each, gaps, comma) for each in value]
    else:
        return f"{gap}{json.dumps(value)}{gap}"
    signs = "{}" if isinstance(value, dict) else "[]"
    return f"{gap}{signs[0]}{','.join(items)}{comma if items else ''}{gap}{signs[1]}{gap}"


@given(_VALUES, st.lists(_GAPS, min_size=1, max_size=4), st.sampled_from(["", ","]))
def test_comments_and_trailing_commas_change_nothing(value: object, gaps: list[str], comma: str) -> None:
    found = compose(_written(value, gaps, comma), name="x")

    assert (found.troubles, found.value) == ((), value)


@given(st.text())
def test_no_text_raises(text: str) -> None:
    found = compose(text, name="x")

    assert found.whole or found.troubles


def test_every_key_and_value_has_its_place() -> None:
    places = compose('{ // one\n  "a": [1,\n   {"b": null}], "c": "#"}', name="x").places

    assert places.at(("a",), key=True) == Place(2, 3)
    assert places.at(("a",)) == Place(2, 8)
    assert places.at(("a", 1, "b")) == Place(3, 10)
    assert places.at(("c",)) == Place(3, 23)


@pytest.mark.parametrize(
    ("text", "place", "rule"),
    [
        ("", (1, 1), "is empty"),
        ("// only a comment", (1, 18), "is empty"),
        ('{"a": 1', (1, 8), "lacks a comma or '}' here"),
        ('{"a": 1 "b": 2}', (1, 9), "lacks a comma or '}' here"),
        ('{"a": 1,, "b": 2}', (1, 9), "must be a key in double quotes"),
        ("{a: 1}", (1, 2), "must be a key in double quotes"),
        ("{'a': 1}", (1, 2), "must be a key in double quotes"),
        ('{"a" 1}', (1, 6), "lacks ':' after the key 'a'"),
        ("{\"a\": 'b'}", (1, 7), "is no value"),
        ('{"a": True}', (1, 7), "is no value: True"),
        ('{"a": 012}', (1, 7), "is no number"),
        ('{"a": 1.}', (1, 7), "is no number"),
        ('{"a": 1e999}', (1, 7), "is larger than any number"),
        ('{"a": ' + "1" * 41 + "}", (1, 7), "is a number of more than 40 characters"),
        ('{"a": "b\nc"}', (1, 7), "begins a text that does not end on its line"),
        ('{"a": "\\x"}', (1, 8), "is no escape"),
        ('{"a": 1} {"b": 2}', (1, 10), "goes on after its end"),
        ('{"a": 1 /* b }', (1, 9), "begins a comment that does not end"),
        ("[" * (MAX_DEPTH + 1), (1, MAX_DEPTH + 1), f"is nested deeper than {MAX_DEPTH} blocks"),
        ('{"a": 1,\n "A": 2}', (2, 2), "stands here a second time (first at line 1; case makes no difference)"),
    ],
)
def test_a_broken_text_is_told_with_its_place(text: str, place: tuple[int, int], rule: str) -> None:
    found = compose(text, name="x").troubles

    assert [(tuple(each.place), each.rule) for each in found] == [(place, rule)]


@pytest.mark.parametrize("template", ["{{ .Port }}", "${PORT}", "%{ if x }1%{ endif }", "<%= port %>"])
def test_a_template_is_named_as_one(template: str) -> None:
    (found,) = compose(f'{{\n "port": {template}\n}}', name="x").troubles

    assert found.rule.startswith("is a template: ")
    assert found.place == Place(2, 10)


def test_a_text_of_too_many_values_is_refused_where_it_becomes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_NODES", 5)

    (found,) = compose("[1,2,3,4,5]", name="x").troubles

    assert (found.place, found.rule) == (Place(1, 10), "has more than 5 values")


def test_a_lone_surrogate_becomes_the_replacement_character_as_in_go() -> None:
    assert compose('"\\ud800 \\ud83d\\ude00"', name="x").value == "\ufffd 😀"
