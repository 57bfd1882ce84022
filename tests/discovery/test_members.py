"""Diffs of a cluster's endpoints: identity by address, moves are moves, what stays keeps its object."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.discovery.static import Static
from reachline.errors import ConfigError
from reachline.members import Address, Drop, Member, Membership, Place, compare, distinct, is_numeric
from reachline.model import Health, Locality

A, B, C = (Member(address=Address(f"10.0.0.{each}", 80)) for each in (1, 2, 3))
NAN: Any = math.nan
ZONE = Locality(region="r", zone="z")


def cluster(*members, **fields):
    return Membership(members=members, **fields)


def test_what_comes_and_goes_is_added_and_removed_and_what_stays_is_neither() -> None:
    update = compare(cluster(A, B), cluster(B, C))

    assert (update.added, update.removed, update.moved, update.changed) == ((C,), (A,), (), ())


def test_an_endpoint_that_stays_keeps_its_object() -> None:
    again = replace(B)

    update = compare(cluster(A, B), cluster(again, A))

    assert update.membership.members[0] is B
    assert not update.is_change


@pytest.mark.parametrize("fields", [{"priority": 1}, {"locality": ZONE}, {"priority": 1, "weight": 9}])
def test_another_priority_or_locality_is_a_move_and_not_a_new_endpoint(fields) -> None:
    update = compare(cluster(A, B), cluster(replace(A, **fields), B))

    assert (update.added, update.removed, update.changed) == ((), (), ())
    assert [(shift.before, shift.after.address) for shift in update.moved] == [(A, A.address)]


@pytest.mark.parametrize("fields", [{"weight": 2}, {"health": Health.DRAINING}, {"metadata": {"envoy.lb": {"v": "1"}}}])
def test_weight_health_and_metadata_change_in_place(fields) -> None:
    update = compare(cluster(A), cluster(replace(A, **fields)))

    assert [shift.after for shift in update.changed] == [replace(A, **fields)]
    assert (update.added, update.removed, update.moved) == ((), (), ())


def test_only_the_places_that_differ_are_named_and_both_ends_of_a_move() -> None:
    far = replace(C, priority=2)

    update = compare(cluster(A, B, far), cluster(A, replace(B, priority=1, locality=ZONE), far))

    assert update.places == (Place(0, Locality()), Place(1, ZONE))


def test_a_localitys_new_weight_touches_that_place_alone() -> None:
    here, there = Place(0, Locality()), Place(0, ZONE)
    before = cluster(A, replace(B, locality=ZONE), locality_weights={here: 1, there: 1})

    update = compare(before, replace(before, locality_weights={here: 1, there: 2}))

    assert (update.policy_changed, update.places) == (True, (there,))


def test_what_is_said_of_the_cluster_alone_is_a_change_too() -> None:
    update = compare(cluster(A), cluster(A, drops=(Drop("throttle", 0.5),)))

    assert (update.policy_changed, update.is_change, update.places) == (True, True, ())


def test_an_address_that_stands_twice_counts_once_and_is_reported_with_positions() -> None:
    kept, notices = distinct((A, B, replace(A, weight=7)))

    assert kept == (A, B)
    assert notices == ("10.0.0.1:80 stands at 0 and at 2: the first one counts",)


places = st.builds(
    lambda host, priority, weight: replace(A, address=Address(f"10.0.1.{host}", 80), priority=priority, weight=weight),
    st.integers(1, 6), st.integers(0, 2), st.integers(1, 3),
)  # fmt: skip
clusters: st.SearchStrategy = st.lists(places, max_size=8).map(lambda found: cluster(*distinct(found)[0]))


@settings(max_examples=60)
@given(clusters, clusters)
def test_a_diff_carries_one_cluster_into_the_other_whatever_moved(before: Membership, after: Membership) -> None:
    update = compare(before, after)

    known = {each.address: each for each in before.members}
    for each in update.removed:
        del known[each.address]
    for old, new in (*update.moved, *update.changed):
        assert known[old.address] == old
        known[new.address] = new
    known |= {each.address: each for each in update.added}
    assert known == {each.address: each for each in after.members}
    assert update.is_change is (set(before.members) != set(after.members))
    touched = [each for each in after.members if each not in before.members]
    assert {each.place for each in touched} <= set(update.places)


async def told(discovery: Static) -> list:
    return [update async for update in discovery.watch()]


def test_static_tells_its_endpoints_once_and_ends() -> None:
    (update,) = asyncio.run(told(Static([A, B, A])))

    assert update.added == (A, B)
    assert update.notices == ("10.0.0.1:80 stands at 0 and at 2: the first one counts",)


def test_static_without_endpoints_says_so() -> None:
    (update,) = asyncio.run(told(Static([])))

    assert (update.membership.members, update.trouble) == ((), "no endpoints are written down")


def test_static_refuses_what_cannot_be_with_its_position() -> None:
    bad = [
        replace(A, weight=0),
        replace(A, weight=NAN),
        replace(A, weight=2**32),
        replace(A, address=Address("a.test", 0)),
        replace(A, priority=129),
    ]

    with pytest.raises(ConfigError) as caught:
        Static([A, *bad], place="cluster a")

    assert [str(each) for each in caught.value.problems] == [
        "cluster a: endpoints[1].weight: must be a whole number, 1 to 4294967295 (got 0)",
        "cluster a: endpoints[2].weight: must be a whole number, 1 to 4294967295 (got nan)",
        "cluster a: endpoints[3].weight: must be a whole number, 1 to 4294967295 (got 4294967296)",
        "cluster a: endpoints[4].address: must be a numeric address; a name needs strict_dns or logical_dns (got 'a.test')",
        "cluster a: endpoints[4].port: must be a whole number, 1 to 65535 (got 0)",
        "cluster a: endpoints[5].priority: must be a whole number, 0 to 128 (got 129)",
    ]


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.255", "255.255.255.255", "fd00::1", "::", "fe80::1%eth0"])
def test_an_address_is_known_as_one(host: str) -> None:
    assert is_numeric(host)


@pytest.mark.parametrize(
    "host", ["", "a.test", "256.0.0.1", "10.0.0", "010.0.0.1", "1.2.3.4.5", "1.2.3.4\n", "٣.0.0.1", ":1", "1"]
)
def test_what_only_looks_like_an_address_is_none(host: str) -> None:
    assert not is_numeric(host)
