"""Holes in how lines share: policies, order, guards, capacity, shared risk."""

from __future__ import annotations

import json

from tests.core.holes.world import World, line_id

from reachline.client.answer import line_list
from reachline.core.breaker import Breaker
from reachline.model import Gate, Role, Version
from reachline.wire import listed, view

PAIR = {"a": "", "b": ", role: backup"}
GROUPS = {"a": ", role: traffic", "b": ", role: traffic", "c": ", role: reserve"}


def shut(world: World, names: str) -> World:
    """The world with these lines open, whatever the guard says of it."""
    for name in names:
        row = world.row(name)
        world.ledger.rows[line_id(name)] = row._replace(breaker=Breaker(Gate.OPEN, until_ms=10**9))
    world.ledger.stale = True
    world.wait()
    return world


def shares(world: World) -> list[float]:
    """Per cent of the weight, line by line."""
    raw = [world.ledger.board.standings[line].raw_milli for line in world.ledger.lines]
    return [round(100 * one / max(sum(raw), 1), 1) for one in raw]


def test_lines_are_listed_by_weight_and_then_by_name() -> None:
    world = World()
    world.tick("DHH", times=2)

    assert [one.line for one in world.ledger.snapshot().standings] == [line_id(name) for name in "bca"]


def test_primary_and_backup_share_95_to_5_and_one_carries_all_where_the_other_is_out() -> None:
    world = World(lines=PAIR, cluster="policy: primary_backup")
    world.tick("HH", times=3)
    assert shares(world) == [95, 5]
    world.tick("DH", times=2)
    assert shares(world) == [50, 50]
    world.tick("DH", times=3)
    assert shares(world) == [38.9, 61.1]

    two = World(lines=PAIR | {"c": ", role: backup"}, cluster="policy: primary_backup")
    assert shares(shut(two, "b")) == [95, 0, 5]
    assert shares(shut(two, "a")) == [0, 0, 100]
    assert shares(shut(World(lines=PAIR, cluster="policy: primary_backup"), "ab")) == [95.2, 4.8]


def test_the_reserve_takes_what_the_traffic_group_lacks_and_one_percent_in_health() -> None:
    world = World(lines=GROUPS, cluster="policy: ab_groups")
    assert shares(world) == [49.5, 49.5, 1]
    assert shares(shut(world, "a")) == [0, 70, 30]
    assert shares(shut(world, "b")) == [0, 0, 100]


def test_groups_come_first_and_inside_a_group_its_own_policy() -> None:
    lines = {"a": ", role: [traffic, primary]", "b": ", role: [traffic, backup]", "c": ", role: reserve"}
    world = World(lines=lines, cluster="policy: [ab_groups, primary_backup]")
    assert shares(world) == [94, 5, 1]

    assert shares(shut(world, "a")) == [0, 99, 1]


def test_half_of_a_cluster_and_its_last_line_stay_in_what_is_full_is_poured_on_and_all_open_is_fail_open() -> None:
    world = World(lines="abcd")
    world.tick("FFFF", times=6)
    assert sorted(world.gate(name).name for name in "abcd") == ["CLOSED", "CLOSED", "OPEN", "OPEN"]

    pair = World(lines="ab", cluster="guard: {max_open: 1}")
    pair.tick("FF", times=6)
    assert sorted(pair.gate(name).name for name in "ab") == ["CLOSED", "OPEN"]

    full = World(lines={"a": ", capacity: 10", "b": ", capacity: 100"})
    full.tick("HH", calls={"a": (300, 0), "b": (300, 0)}, times=6)
    assert shares(full)[0] == 14.2  # 8.5 of 60 calls a second

    assert [shut(world, "abcd").weight(name) for name in "abcd"].count(5) == 3
    assert world.ledger.snapshot().panic == "fail_open"


def test_lines_of_one_supplier_are_one_incident_warned_of_and_tried_one_at_a_time() -> None:
    lines = {"a": ", provider: p1", "b": ", provider: p1", "c": ", provider: p1", "d": "", "e": "", "f": ""}
    world = World("circuit_breaker: {cooldown_jitter: 0}", lines=lines)
    world.tick("HHHHHH", times=3)

    world.tick("DDHHHH", times=2)
    assert [world.row(name).incident for name in "abcd"] == ["p1", "p1", "", ""]
    world.tick("DDDDHH")
    assert [world.health(name).name for name in "cd"] == ["DEGRADED", "HEALTHY"]

    world.tick("FFFHHH", times=3)
    seen = set()
    for _ in range(12):
        world.tick("HHHHHH")
        seen.add(tuple(world.gate(name) for name in "abc").count(Gate.HALF_OPEN))
    assert seen == {0, 1}


def test_a_cluster_is_listed_with_all_that_a_client_needs() -> None:
    world = World(lines=PAIR, cluster="policy: primary_backup")
    world.tick("DH", times=3)
    of, figures = world.ledger.lines, view.NO_FIGURES
    rows = [view.line(of[one.line], one, figures, origin=0) for one in world.ledger.snapshot().standings]
    local = listed.local_rules(world.rules, rows, {line_id("a"): world.row().judgement.faults})
    told = {"cluster": "payments", "version": "1.2", "lines": rows, "local_rules": local, "policy": world.rules.policy}

    found = line_list(json.loads(json.dumps(told)), cluster="payments")

    second, first = found.lines
    assert (first.target.text, first.base, first.weight, first.health, first.breaker) == (
        "tcp://a.test:443",
        100,
        44,
        world.health(),
        world.gate(),
    )
    assert (first.reason, first.faults, second.roles) == ("vote.p95.degraded", 2_000_000, frozenset({Role.BACKUP}))
    assert (found.version, found.policy, found.local) == (Version(1, 2), ("primary_backup",), world.rules.local)
    assert found.faults.cost == world.rules.faults.cost
