"""The wanted differences: few, each shown by a test, none shown that is not listed, and the page says the same."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from tests.wanted import WANTED, shows

from reachline.talk.check_http import HttpCheck

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/envoy-differences.md"
MOST = 8
"""More than one can keep in mind is no list of exceptions."""


def shown() -> Counter[str]:
    """Differences by how many tests say that they show them."""
    found: Counter[str] = Counter()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        if "shows(" not in text:
            continue
        for each in ast.walk(ast.parse(text)):
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
                found.update(
                    str(argument.value)
                    for call in each.decorator_list
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "shows"
                    for argument in call.args
                    if isinstance(argument, ast.Constant)
                )
    return found


def test_there_are_few() -> None:
    assert len(WANTED) <= MOST


def test_each_is_shown_by_a_test_and_no_other_is_used() -> None:
    assert set(shown()) == set(WANTED)


def test_what_is_not_listed_cannot_be_used() -> None:
    with pytest.raises(KeyError):
        shows("a difference that nobody wants")


def test_the_page_holds_the_same_rows() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]

    assert rows[2:] == [f"| {each.envoy} | {each.here} | {each.why} |" for each in WANTED.values()]


@shows("user agent")
def test_a_check_says_who_asks() -> None:
    assert b"user-agent: reachline-check" in HttpCheck().ask("payments").begin().lower()
