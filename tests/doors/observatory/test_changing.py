"""A document with outbounds that came and went over an API: who stands where, and what a document that was written anew leaves of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reachline.doors.observatory import Changes, own_tags, read
from reachline.doors.observatory.merging import Source
from reachline.errors import ConfigError

_NONE = Changes()


def _outbound(tag: str, **more: object) -> dict[str, Any]:
    return {"tag": tag, "protocol": "freedom", **more}


def _tags(changes: Changes, *tags: str) -> list[str]:
    """Tags of a document with these outbounds; one without a tag is nobody."""
    document = json.dumps({"outbounds": [_outbound(tag) for tag in tags]})
    return [each.tag for each in read(document, changes=changes).outbounds]


def test_who_comes_is_last() -> None:
    assert _tags(_NONE.added(_outbound("c")).added(_outbound("d")), "a", "b") == ["a", "b", "c", "d"]


def test_who_goes_is_gone_wherever_it_came_from() -> None:
    changes = _NONE.added(_outbound("c")).without("c", is_default=False).without("b", is_default=False)

    assert _tags(changes, "a", "b") == ["a"]


def test_who_went_may_come_again() -> None:
    changes = _NONE.without("b", is_default=False).added(_outbound("b", sendThrough="127.0.0.7"))

    assert _tags(changes, "a", "b", "c") == ["a", "c", "b"]


def test_without_the_default_nobody_is_first_until_the_next_comes() -> None:
    headless = _NONE.without("a", is_default=True)

    assert _tags(headless, "a", "b") == ["", "b"]
    assert read(json.dumps({"outbounds": [_outbound("a")]}), changes=headless).outbounds[0].protocol == "blackhole"
    assert _tags(headless.added(_outbound("c")).added(_outbound("d")), "a", "b") == ["c", "b", "d"]


def test_the_next_default_may_go_as_well() -> None:
    changes = _NONE.without("a", is_default=True).added(_outbound("c")).without("c", is_default=True)

    assert _tags(changes, "a", "b") == ["", "b"]


@pytest.mark.parametrize(
    ("changes", "written", "stand"),
    [
        (_NONE.added(_outbound("c")), ("a", "c", "b"), ["a", "c", "b"]),
        (_NONE.added(_outbound("c")), ("a", "b"), ["a", "b", "c"]),
        (_NONE.without("b", is_default=False), ("a", "b"), ["a"]),
        (_NONE.without("a", is_default=True), ("a", "b"), ["", "b"]),
        (_NONE.without("a", is_default=True), ("b", "a"), ["b"]),
        (_NONE.without("a", is_default=True), ("b",), ["b"]),
        (_NONE.without("a", is_default=True).added(_outbound("c")), ("b",), ["b", "c"]),
        (_NONE.without("a", is_default=True).added(_outbound("c")), ("a", "b"), ["c", "b"]),
        (_NONE.without("a", is_default=True).added(_outbound("c")), ("c", "b"), ["c", "b"]),
    ],
)
def test_what_a_document_says_anew_is_its_own_again(
    changes: Changes, written: tuple[str, ...], stand: list[str]
) -> None:
    assert _tags(changes.settled(written), *written) == stand


def test_who_was_removed_and_left_the_document_may_stand_in_it_later() -> None:
    changes = _NONE.without("b", is_default=False).settled(("a",)).settled(("a", "b"))

    assert _tags(changes, "a", "b") == ["a", "b"]


def test_trouble_of_one_that_came_is_told_of_the_api() -> None:
    with pytest.raises(ConfigError, match=r"api:1:1: outbounds\[1\]\.protocol.*did you mean socks"):
        _tags(_NONE.added({"tag": "x", "protocol": "sock"}), "a")


def test_trouble_of_the_document_keeps_its_place() -> None:
    document = '{"outbounds": [{"tag": "a", "protocol": "freedom"},\n {"tag": "b", "protocol": "sock"}]}'

    with pytest.raises(ConfigError, match=r"xray:2:"):
        read(document, changes=_NONE.without("a", is_default=False))


def test_own_tags_are_those_of_the_files() -> None:
    assert own_tags([Source("xray", json.dumps({"outbounds": [_outbound("a"), {"protocol": "freedom"}]}))]) == ("a", "")
    assert own_tags([Source("xray", "{}")]) == ()
