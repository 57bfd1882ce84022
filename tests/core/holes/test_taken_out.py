"""The table of holes: every row has its rule, its test, and ways to take the rule out, each of which fails the test."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.holes.taken_out import TABLE, Way, caches

PAGE = Path("docs/concepts/decisions.md")
ROW = re.compile(r"^\| (\d+) \| .* \| `(test_\w+)` \|$", re.MULTILINE)
WAYS = [
    pytest.param(number, way, id=f"{number}.{place}")
    for number, hole in TABLE.items()
    for place, way in enumerate(hole.ways, 1)
]


@pytest.fixture
def unremembered() -> Iterator[None]:
    """No answer remembered before or after: what a patched function said must not outlive it."""
    for forget in caches():
        forget()
    yield
    for forget in caches():
        forget()


@pytest.mark.parametrize(("number", "way"), WAYS)
@pytest.mark.usefixtures("unremembered")
def test_a_rule_that_is_taken_out_fails_its_test(number: int, way: Way) -> None:
    with pytest.MonkeyPatch.context() as patch:
        way(patch)

        with pytest.raises(AssertionError):
            TABLE[number].test()


def test_every_row_has_a_way_to_take_its_rule_out() -> None:
    assert list(TABLE) == list(range(1, 63))
    assert [number for number, hole in TABLE.items() if not hole.ways] == []


def test_every_row_has_a_test_of_its_own_and_every_test_a_row() -> None:
    tests = {hole.test.__name__ for hole in TABLE.values()}
    modules = {sys.modules[hole.test.__module__] for hole in TABLE.values()}

    assert len(tests) == len(TABLE)
    assert {name for module in modules for name in vars(module) if name.startswith("test_")} == tests


def test_the_page_names_each_row_with_its_test(root: Path) -> None:
    told = ROW.findall((root / PAGE).read_text())

    assert [(int(number), name) for number, name in told] == [
        (number, hole.test.__name__) for number, hole in TABLE.items()
    ]
