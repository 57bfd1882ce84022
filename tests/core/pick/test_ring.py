from __future__ import annotations

import random
from collections import Counter

import pytest

from reachline.core.hashing import xxh64
from reachline.core.pick import Member, Memory, Policy, build
from reachline.core.pick.policy import HashFunction
from reachline.core.pick.ring import Ring, points

CHANCE = random.Random(1)

RING = {
    833437586790550860: 94,
    928266305478181108: 92,
    1033482794131418490: 90,
    3551244743356806947: 95,
    3851675632748031481: 93,
    5583722120771150861: 91,
    6311230543546372928: 91,
    7700377290971790572: 93,
    13144177310400110813: 95,
    13444792449719432967: 92,
    15516499411664133160: 94,
    16117243373044804889: 90,
}
"""Six endpoints of Envoy's own test, 127.0.0.1:90…95, two points each."""

MURMUR_RING = {
    1358027074129602068: 85,
    4361834613929391114: 83,
    7224494972555149682: 84,
    7701421856454313576: 81,
    8649315368077433379: 82,
    8739448859063030639: 84,
    9887544217113020895: 81,
    10150910876324007731: 82,
    15168472011420622455: 83,
    15427156902705414897: 80,
    16375050414328759093: 85,
    17613279263364193813: 80,
}


def members(ports: range, weights: dict[int, int] | None = None) -> list[Member[int]]:
    return [Member(port, f"127.0.0.1:{port}", (weights or {}).get(port, 1)) for port in ports]


@pytest.mark.parametrize(
    ("ring", "ports", "function"),
    [(RING, range(90, 96), HashFunction.XX_HASH), (MURMUR_RING, range(80, 86), HashFunction.MURMUR_HASH_2)],
)
def test_a_key_reaches_the_endpoint_that_envoy_sends_it_to(
    ring: dict[int, int], ports: range, function: HashFunction
) -> None:
    picker = build(members(ports), Policy(name="ring_hash", ring_least=12, hash_function=function), Memory(), CHANCE)
    points = list(ring)

    for place, point in enumerate(points):
        assert picker.pick(CHANCE, point) == ring[point]
        assert picker.pick(CHANCE, point + 1) == ring[points[(place + 1) % len(points)]]
    assert picker.pick(CHANCE, 0) == picker.pick(CHANCE, 2**64 - 1) == ring[points[0]]


def test_a_further_attempt_is_the_next_point_of_the_ring() -> None:
    picker = build(members(range(90, 96)), Policy(name="ring_hash", ring_least=12), Memory(), CHANCE)

    assert [picker.pick(CHANCE, 0, attempt) for attempt in (0, 1, 2, 13)] == [94, 92, 90, 92]


@pytest.mark.parametrize(
    ("weights", "least", "most", "counts"),
    [
        ([1, 1], 3, 8_388_608, [2, 2]),
        ([1, 2, 3], 6, 8_388_608, [1, 2, 3]),
        ([1, 1, 1, 1], 6, 6, [2, 1, 2, 1]),
        ([1, 99], 1, 8_388_608, [1, 99]),
        ([1], 1024, 8_388_608, [1024]),
        ([1, 999_999], 1024, 2_000, [1, 1999]),
        ([], 1024, 2_000, []),
    ],
)
def test_points_follow_weights_within_the_ring_sizes(
    weights: list[int], least: int, most: int, counts: list[int]
) -> None:
    total = sum(weights)

    assert points([weight / total for weight in weights], least=least, most=most) == counts


@pytest.mark.parametrize("policy", ["ring_hash", "maglev"])
def test_an_endpoint_that_goes_takes_few_keys_of_others_with_it(policy: str) -> None:
    memory, keys = Memory(), [xxh64(b"%d" % number) for number in range(5_000)]
    before = build(members(range(80, 90)), Policy(name=policy, ring_least=4_096), memory, CHANCE)
    after = build(
        [each for each in members(range(80, 90)) if each.item != 84],
        Policy(name=policy, ring_least=4_096),
        memory,
        CHANCE,
    )

    stayed = [key for key in keys if before.pick(CHANCE, key) != 84]
    moved = sum(before.pick(CHANCE, key) != after.pick(CHANCE, key) for key in stayed)

    assert moved <= len(stayed) * 0.1
    assert {after.pick(CHANCE, key) for key in set(keys) - set(stayed)} > {80, 81}


def test_without_more_points_for_the_others_no_key_of_theirs_moves() -> None:
    hashes = {port: [xxh64(b"%d_%d" % (port, number)) for number in range(50)] for port in range(80, 90)}
    before = Ring(list(hashes), list(hashes.values()))
    del hashes[84]
    after = Ring(list(hashes), list(hashes.values()))

    for key in (xxh64(b"%d" % number) for number in range(2_000)):
        assert after.pick(CHANCE, key) == before.pick(CHANCE, key) or before.pick(CHANCE, key) == 84


@pytest.mark.parametrize("policy", ["ring_hash", "maglev"])
def test_shares_of_keys_follow_the_weights(policy: str) -> None:
    weights = {80: 1, 81: 2, 82: 5}
    picker = build(members(range(80, 83), weights), Policy(name=policy, ring_least=16_384), Memory(), CHANCE)

    seen = Counter(picker.pick(CHANCE, xxh64(b"%d" % number)) for number in range(16_000))

    for port, weight in weights.items():
        assert abs(seen[port] - 2_000 * weight) < 2_000 * weight * 0.12


@pytest.mark.parametrize("policy", ["ring_hash", "maglev"])
def test_without_a_key_any_endpoint_is_as_good(policy: str) -> None:
    picker, chance = build(members(range(80, 84)), Policy(name=policy), Memory(), CHANCE), random.Random(3)

    assert {picker.pick(chance) for _ in range(200)} == {80, 81, 82, 83}


def test_hashes_are_computed_once_a_process_and_forgotten_with_their_endpoints() -> None:
    memory = Memory()
    first = build(members(range(80, 83)), Policy(name="ring_hash"), memory, CHANCE)
    known = dict(memory.hashed("xx_hash"))

    again = build(members(range(80, 83)), Policy(name="ring_hash"), memory, CHANCE)
    memory.keep(["127.0.0.1:80"])

    assert all(memory.hashed("xx_hash")[key] is found for key, found in known.items() if key.endswith(":80"))
    assert memory.hashed("xx_hash").keys() == {"127.0.0.1:80"}
    assert [first.pick(CHANCE, key << 50) for key in range(99)] == [again.pick(CHANCE, key << 50) for key in range(99)]


def test_a_bound_sends_the_rest_of_a_key_elsewhere_and_always_the_same_way() -> None:
    memory = Memory()
    policy = Policy(name="ring_hash", ring_least=12, balance_factor=100)
    picker = build(members(range(90, 96)), policy, memory, CHANCE)
    home = picker.pick(CHANCE, 0)
    memory.load(f"127.0.0.1:{home}").active = 4

    away = {picker.pick(CHANCE, 0) for _ in range(20)}

    assert home == 94
    assert len(away) == 1
    assert away != {home}


def test_with_others_over_the_bound_the_one_with_room_serves() -> None:
    memory = Memory()
    picker = build(members(range(90, 93)), Policy(name="maglev", balance_factor=100), memory, CHANCE)
    for port, active in ((90, 9), (91, 9), (92, 3)):
        memory.load(f"127.0.0.1:{port}").active = active

    assert {picker.pick(CHANCE, key << 40) for key in range(50)} == {92}


@pytest.mark.parametrize(("at_home", "elsewhere", "stays"), [(5, 2, True), (6, 1, False)])
def test_a_bound_is_the_endpoints_part_of_all_calls_and_one_more(at_home: int, elsewhere: int, stays: bool) -> None:
    memory = Memory()
    picker = build(members(range(90, 92)), Policy(name="ring_hash", balance_factor=125), memory, CHANCE)
    home, away = (90, 91) if picker.pick(CHANCE, 7) == 90 else (91, 90)
    # Seven are under way: 125 % of eight is ten slots, five for each.
    memory.load(f"127.0.0.1:{home}").active = at_home
    memory.load(f"127.0.0.1:{away}").active = elsewhere

    assert picker.pick(CHANCE, 7) == (home if stays else away)
