from __future__ import annotations

import random

import pytest

from reachline.core.pick import Member, Memory, Policy, Subsetting
from reachline.core.pick.policy import Fallback, Selector, Subsets
from reachline.model import Health

CHANCE = random.Random(1)
MEMBERS = [
    Member("a", "a", metadata={"version": "1", "stage": "prod"}),
    Member("b", "b", metadata={"version": "2", "stage": "prod"}),
    Member("c", "c", metadata={"version": "2", "stage": "test"}),
    Member("d", "d", health=Health.UNHEALTHY, metadata={"version": "3", "stage": "prod"}),
    Member("e", "e"),
]
VERSION, BOTH = frozenset({"version"}), frozenset({"version", "stage"})


def gets(subsets: Subsets, wanted: dict[str, str], *, panic: int = 0) -> str:
    """All that a call with this metadata may get, in order."""
    found = Subsetting(MEMBERS, subsets, Policy(panic=panic), Memory(), CHANCE).of(wanted)
    return "".join(sorted({str(found.pick(CHANCE) or "-") for _ in range(30)}))


def picked(subsets: Subsets, **wanted: str) -> str:
    return gets(subsets, wanted)


def having(fallback: Fallback = Fallback.NONE, **more: object) -> Subsets:
    return Subsets(
        selectors=(Selector(keys=VERSION), Selector(keys=BOTH)),
        fallback=fallback,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"version": "1"}, "a"),
        ({"version": "2"}, "bc"),
        ({"version": "2", "stage": "test"}, "c"),
        ({"version": "4"}, "-"),
        ({"stage": "prod"}, "-"),  # no selector has this key alone
        ({"version": "2", "other": "x"}, "-"),
        ({}, "-"),
    ],
)
def test_a_call_gets_the_subset_it_names(wanted: dict[str, str], found: str) -> None:
    assert gets(having(), wanted) == found


def test_a_subset_that_exists_is_final_also_while_all_in_it_are_down() -> None:
    assert picked(having(Fallback.ANY), version="3") == "-"
    assert gets(having(Fallback.ANY), {"version": "3"}, panic=50) == "d"


def test_the_general_fallback_is_nobody_anybody_or_a_default_subset() -> None:
    assert picked(having(Fallback.ANY), version="9") == "abce"
    assert picked(having(Fallback.DEFAULT, default={"stage": "prod"}), version="9") == "ab"
    assert picked(having(Fallback.DEFAULT, default={"stage": "none"}), version="9") == "-"
    assert picked(having(Fallback.DEFAULT, default={"stage": "none"}, panic_any=True), version="9") == "abce"


def test_a_selectors_fallback_comes_before_the_general_one() -> None:
    selectors = (
        Selector(keys=VERSION, fallback=Fallback.NONE),
        Selector(keys=BOTH, fallback=Fallback.KEYS, fallback_keys=VERSION),
        Selector(keys=frozenset({"stage"}), fallback=Fallback.DEFAULT),
        Selector(keys=frozenset({"x"}), fallback=Fallback.ANY),
    )
    subsets = Subsets(selectors=selectors, fallback=Fallback.ANY, default={"version": "1"})

    assert picked(subsets, version="9") == "-"
    assert picked(subsets, version="2", stage="none") == "bc"
    assert picked(subsets, version="9", stage="none") == "-"
    assert picked(subsets, stage="none") == "a"
    assert picked(subsets, x="1") == "abce"
    assert picked(subsets, y="1") == "abce"


def test_keys_that_no_selector_has_may_be_left_out() -> None:
    assert picked(having(redundant_keys=True), version="2", other="x") == "bc"


def test_each_subset_goes_round_on_its_own_and_over_snapshots() -> None:
    memory, members = (
        Memory(),
        [Member(f"{at}{number}", f"{at}{number}", metadata={"version": at}) for at in "12" for number in range(3)],
    )

    found = []
    for _ in range(2):
        subsets = Subsetting(members, having(), Policy(), memory, CHANCE)
        for _ in range(2):
            found += [subsets.of({"version": version}).pick(CHANCE) for version in "12"]

    assert found == ["10", "20", "11", "21", "12", "22", "10", "20"]
