"""The same documents and the same calls: which endpoint Envoy picks, and which we do. Exactly, where no chance is drawn."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.differential import ours
from tests.differential.peers import Peer, serving
from tests.differential.real import Envoy, bootstrap, running

from reachline.core.pick import Memory

pytestmark = pytest.mark.real

PEERS = 9
KEYS = tuple(f"key-{number}" for number in range(40))
EXTENSION = "type.googleapis.com/envoy.extensions.load_balancing_policies."


class Group(NamedTuple):
    """Endpoints of one locality and priority: (peer, weight, health) of each."""

    endpoints: tuple[tuple[int, int, str], ...]
    priority: int = 0
    zone: str = ""
    weight: int | None = None


def even(*peers: int, health: str = "HEALTHY", **more: Any) -> Group:
    return Group(tuple((peer, 1, health) for peer in peers), **more)


def weighted(*weights: int, **more: Any) -> Group:
    return Group(tuple((peer, weight, "HEALTHY") for peer, weight in enumerate(weights)), **more)


def extended(kind: str, **fields: Any) -> dict[str, Any]:
    typed = {"name": "p", "typed_config": {"@type": EXTENSION + kind, **fields}}
    return {"load_balancing_policy": {"policies": [{"typed_extension_config": typed}]}}


class Case(NamedTuple):
    """A cluster: its endpoints and its other fields."""

    groups: tuple[Group, ...]
    fields: dict[str, Any]
    hostnames: bool = False
    hash_keys: bool = False


RING, MAGLEV, BY_LOCALITY = {"lb_policy": "RING_HASH"}, {"lb_policy": "MAGLEV"}, {"locality_weighted_lb_config": {}}
CALM = {"healthy_panic_threshold": {"value": 0}}
NAMED: dict[str, Any] = {
    "type": "STRICT_DNS",
    "common_lb_config": {"consistent_hashing_lb_config": {"use_hostname_for_hashing": True}},
}
ZONES = (even(0, 1, 2, zone="a", weight=1), even(3, 4, zone="b", weight=3))
SICK = (even(0, health="UNHEALTHY"), even(1, health="HEALTHY"), even(2, 3, priority=1))
HASHED = {
    "ring": Case((even(*range(PEERS)),), RING),
    "ring of a few points": Case((even(0, 1, 2),), RING | {"ring_hash_lb_config": {"minimum_ring_size": 7}}),
    "ring with a ceiling": Case(
        (weighted(1, 5, 9),), RING | {"ring_hash_lb_config": {"minimum_ring_size": 64, "maximum_ring_size": 64}}
    ),
    "ring by weights": Case((weighted(1, 3, 7, 2),), RING),
    "ring by murmur": Case((weighted(2, 1, 1),), RING | {"ring_hash_lb_config": {"hash_function": "MURMUR_HASH_2"}}),
    "ring by hostname": Case(
        (even(0, 1, 2, 3),),
        RING | NAMED,
        hostnames=True,
    ),
    "ring by hash_key": Case((even(0, 1, 2, 3),), RING, hash_keys=True),
    "ring by extension": Case((even(0, 1, 2),), extended("ring_hash.v3.RingHash", minimum_ring_size=100)),
    "ring by locality": Case(ZONES, RING | {"common_lb_config": BY_LOCALITY}),
    "ring with a weight of a locality that is not asked for": Case(ZONES, RING),
    "ring without the unhealthy": Case((even(0, 1, 2), even(3, 4, health="UNHEALTHY")), RING),
    "ring without the degraded": Case((even(0, 1, 2), even(3, 4, health="DEGRADED")), RING | {"common_lb_config": CALM}),
    "ring without the drained": Case((even(0, 1), even(3, health="DRAINING")), RING),
    "ring in panic": Case((even(0), even(1, 2, 3, health="UNHEALTHY")), RING),
    "ring over priorities": Case(SICK, RING),
    "ring with a bound, idle": Case(
        (even(0, 1, 2),), RING | {"common_lb_config": {"consistent_hashing_lb_config": {"hash_balance_factor": 120}}}
    ),
    "ring over localities with the unhealthy": Case(
        (*ZONES, even(5, 6, zone="a", health="UNHEALTHY", weight=1)), RING | {"common_lb_config": BY_LOCALITY}
    ),
    "maglev": Case((even(*range(PEERS)),), MAGLEV),
    "maglev small": Case((even(0, 1, 2),), MAGLEV | {"maglev_lb_config": {"table_size": 11}}),
    "maglev by weights": Case((weighted(1, 3, 7, 2),), MAGLEV | {"maglev_lb_config": {"table_size": 1_021}}),
    "maglev by locality": Case(ZONES, MAGLEV | {"common_lb_config": BY_LOCALITY}),
    "maglev of one": Case((even(0),), MAGLEV),
    "maglev by extension": Case((weighted(2, 1),), extended("maglev.v3.Maglev", table_size=101)),
    "maglev over priorities": Case(SICK, MAGLEV),
    "maglev in panic": Case((even(0), even(1, 2, 3, health="TIMEOUT")), MAGLEV),
    "maglev by hostname": Case(
        (even(0, 1, 2, 3),),
        MAGLEV | NAMED,
        hostnames=True,
    ),
}  # fmt: skip
LEAST = {"lb_policy": "LEAST_REQUEST"}
# Not weights like 7, 5, 3, 2: where turns fall together but for rounding, their order follows from Envoy's start by chance.
TURNS = {
    "round robin": (Case((even(0, 1, 2),), {}), 3),
    "round robin 1 2 3": (Case((weighted(1, 2, 3),), {}), 6),
    "round robin 5 1 1": (Case((weighted(5, 1, 1),), {}), 7),
    "round robin 25 75": (Case((weighted(25, 75),), {}), 4),
    "round robin 3 3 1": (Case((weighted(3, 3, 1),), {}), 7),
    "round robin of thirds": (Case((weighted(3, 3, 3, 1),), {}), 10),
    "round robin without the unhealthy": (Case((even(0, 1, 2), even(3, health="UNHEALTHY")), {}), 3),
    "round robin by extension": (Case((weighted(1, 4),), extended("round_robin.v3.RoundRobin")), 5),
    "least request 1 3, idle": (Case((weighted(1, 3),), LEAST), 4),
    "least request 1 2 4, idle": (Case((weighted(1, 2, 4),), LEAST), 7),
    "least request without bias": (
        Case((weighted(2, 3),), LEAST | {"least_request_lb_config": {"active_request_bias": {"default_value": 0, "runtime_key": "b"}}}),
        5,
    ),
    "priority 0 alone": (Case((even(0, 1), even(2, priority=1)), {}), 2),
    "the second priority while the first has nobody": (
        Case((even(0, health="UNHEALTHY"), even(1, 2, priority=1)), {"common_lb_config": CALM}), 2,
    ),
    "the degraded while nobody is healthy": (
        Case((even(0, health="UNHEALTHY"), even(1, 2, health="DEGRADED")), {"common_lb_config": CALM}), 2,
    ),
    "all of them in panic": (Case((even(0), even(1, 2, health="UNHEALTHY")), {}), 3),
    "exactly half is no panic": (Case((even(0), even(1, health="UNHEALTHY")), {}), 1),
    "a drained one does not count for panic": (Case((even(0), even(1, 2, health="DRAINING")), {}), 1),
}  # fmt: skip
COUNTED = {
    "localities 1 and 3": (Case(ZONES, {"common_lb_config": BY_LOCALITY}), 48),
    "localities of which one is half sick": (
        Case((*ZONES, even(5, 6, 7, zone="b", health="UNHEALTHY", weight=3)), {"common_lb_config": CALM | BY_LOCALITY}),
        100,
    ),
    "localities that nobody asked to weigh": (Case(ZONES, {}), 50),
}
SHARED = {
    "half of the first priority": Case((even(0), even(1, health="UNHEALTHY"), even(2, 3, priority=1)), {}),
    "a third of the first, half of the second": Case(
        (even(0), even(1, 2, health="UNHEALTHY"), even(3, priority=1), even(4, health="UNHEALTHY", priority=1)),
        {"common_lb_config": CALM},
    ),
    "healthy, degraded and dead": Case(
        (even(0), even(1, health="DEGRADED"), even(2, health="UNHEALTHY")), {"common_lb_config": CALM}
    ),
    "three priorities": Case(
        (
            even(0), even(1, 2, 3, health="UNHEALTHY"), even(4, priority=1), even(5, 6, health="UNHEALTHY", priority=1),
            even(7, priority=2),
        ),
        {"common_lb_config": CALM},
    ),
    "the second priority in panic as well": Case(
        (even(0, 1, 2, health="UNHEALTHY"), even(3, priority=1), even(4, 5, health="UNHEALTHY", priority=1)), {}
    ),
}  # fmt: skip
CASES = HASHED | {name: each for group in (TURNS, COUNTED) for name, (each, _) in group.items()} | SHARED
SCANNED = Case((even(0, 1, 2),), extended("least_request.v3.LeastRequest", selection_method="FULL_SCAN"))
CHOSEN = Case((even(3, 4),), LEAST)


def bounded(factor: int) -> dict[str, Any]:
    return {"common_lb_config": {"consistent_hashing_lb_config": {"hash_balance_factor": factor}}}


BOUND = {
    "ring with a bound of 100": Case((even(0, 1, 2, 3, 4),), RING | bounded(100)),
    "ring with a bound of 150": Case((weighted(1, 2, 3, 1, 1),), RING | bounded(150)),
    "maglev with a bound of 120": Case((even(0, 1, 2, 3, 4),), MAGLEV | bounded(120)),
    "maglev with a bound of 110": Case((weighted(3, 1, 1, 1),), MAGLEV | bounded(110)),
}


class World(NamedTuple):
    envoy: Envoy
    documents: dict[str, dict[str, Any]]
    held: list[Peer]


def document(name: str, case: Case, ports: list[int]) -> dict[str, Any]:
    groups = []
    for group in case.groups:
        endpoints = []
        for peer, weight, health in group.endpoints:
            endpoint: dict[str, Any] = {
                "address": {"socket_address": {"address": "127.0.0.1", "port_value": ports[peer]}}
            }
            said = {"endpoint": endpoint, "load_balancing_weight": weight, "health_status": health}
            if case.hostnames:
                endpoint["hostname"] = f"host-{peer}.example"
            if case.hash_keys:
                said["metadata"] = {"filter_metadata": {"envoy.lb": {"hash_key": f"hash-{peer}"}}}
            endpoints.append(said)
        made: dict[str, Any] = {"priority": group.priority, "lb_endpoints": endpoints}
        if group.zone:
            made["locality"] = {"zone": group.zone}
        if group.weight is not None:
            made["load_balancing_weight"] = group.weight
        groups.append(made)
    # The same locality of a priority stands in one group, as control planes write it.
    merged: dict[tuple[int, str], dict[str, Any]] = {}
    for each, group in zip(groups, case.groups, strict=True):
        first = merged.setdefault((group.priority, group.zone), each)
        if first is not each:
            first["lb_endpoints"] += each["lb_endpoints"]
    return {"name": name, "load_assignment": {"cluster_name": name, "endpoints": list(merged.values())}, **case.fields}


@pytest.fixture(scope="module")
def world(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("picks")
    with serving() as peers:
        ports = [peers.add().port for _ in range(PEERS)]
        held = [peers.add() for _ in range(5)]
        documents = {name: document(_named(name), case, ports) for name, case in CASES.items()}
        waiting = [peer.port for peer in held]
        documents |= {"scan": document("scan", SCANNED, waiting), "choose": document("choose", CHOSEN, waiting)}
        documents |= {name: document(_named(name), case, waiting) for name, case in BOUND.items()}
        with running(envoy_binary, bootstrap(list(documents.values()), directory), directory) as envoy:
            yield World(envoy, documents, held)


def _named(name: str) -> str:
    return name.replace(" ", "_").replace(",", "")


def calls(world: World, name: str, *keys: str) -> list[int]:
    """The endpoints of a call by each key; that Envoy really made them is checked."""
    cluster = world.documents[name]["name"]
    before = world.envoy.counters(cluster).get("upstream_rq_completed", 0)
    answers = [world.envoy.call(cluster, key) for key in keys]
    assert {status for status, _ in answers} == {200}
    assert world.envoy.counters(cluster)["upstream_rq_completed"] == before + len(keys)
    return [port for _, port in answers]


@pytest.mark.parametrize("name", HASHED)
def test_a_key_reaches_the_same_endpoint(world: World, name: str) -> None:
    chooser = ours.Kept(world.documents[name])

    theirs = calls(world, name, *KEYS)

    assert theirs == [chooser.pick(key) for key in KEYS]


@pytest.mark.parametrize("name", TURNS)
def test_a_cycle_of_turns_is_the_same_wherever_it_begins(world: World, name: str) -> None:
    period = TURNS[name][1]
    chooser = ours.Kept(world.documents[name])
    own = [chooser.pick() for _ in range(2 * period)]

    theirs = calls(world, name, *[""] * 2 * period)

    assert own[:period] == own[period:]
    assert theirs in [own[at:] + own[:at] for at in range(period)]


@pytest.mark.parametrize("name", COUNTED)
def test_whole_cycles_give_each_endpoint_as_many_calls(world: World, name: str) -> None:
    count = COUNTED[name][1]
    chooser = ours.Kept(world.documents[name])

    own = Counter(chooser.pick() for _ in range(count))
    theirs = Counter(calls(world, name, *[""] * count))

    assert theirs.keys() == own.keys()
    # Both begin somewhere inside of a cycle: an endpoint's first turn may lie on either side.
    assert max(abs(theirs[port] - own[port]) for port in theirs) <= 2


@pytest.mark.parametrize("name", SHARED)
def test_priorities_and_the_degraded_get_our_shares(world: World, name: str) -> None:
    count = 200
    found = ours.cluster(world.documents[name])
    plan = ours.shares(world.documents[name])
    level = {each.address.port: each.priority for each in found.membership.members}

    theirs = Counter(level[port] for port in calls(world, name, *[""] * count))

    for priority, percent in enumerate(map(sum, zip(plan.healthy, plan.degraded, strict=True))):
        share = percent / 100
        spread = 5 * math.sqrt(count * share * (1 - share))
        assert abs(theirs[priority] - count * share) <= spread, (theirs, plan)


def test_the_least_of_all_is_picked_while_others_have_calls_under_way(world: World) -> None:
    memory, own = Memory(), []
    chooser = ours.Kept(world.documents["scan"], memory=memory)
    for _ in range(3):
        own.append(chooser.pick())
        memory.load(f"127.0.0.1:{own[-1]}").active += 1

    with holding(world, "scan") as hold:
        theirs = [hold("") for _ in range(3)]

    assert set(own) == set(theirs)
    assert len(set(theirs)) == 3


@pytest.mark.parametrize("name", BOUND)
def test_a_bound_sends_keys_on_to_the_same_endpoints(world: World, name: str) -> None:
    memory, own, theirs = Memory(), [], []
    chooser = ours.Kept(world.documents[name], memory=memory)

    with holding(world, world.documents[name]["name"]) as hold:
        for number in range(18):
            # One key for a while, so that its endpoint is full soon wherever it lies; then others beside it.
            key = f"key-{max(number - 8, 0) % 3}"
            own.append(chooser.pick(key))
            theirs.append(hold(key))
            memory.load(f"127.0.0.1:{theirs[-1]}").active += 1

    assert theirs == own
    assert len(set(theirs[:9])) > 1, "nobody was ever full"


def test_of_two_draws_with_replacement_the_busy_one_gets_a_quarter(world: World) -> None:
    busy, count, memory = world.held[3], 200, Memory()
    chooser = ours.Kept(world.documents["choose"], memory=memory)
    memory.load(f"127.0.0.1:{busy.port}").active += 1
    own = sum(chooser.pick() == busy.port for _ in range(count))
    release = threading.Event()
    theirs = 0
    # One call that waits at the busy endpoint; the others are not held, so they show where they went.
    busy.held = release
    taken = _hold_until_at(world, "choose", busy)
    busy.held = None
    for _ in range(count):
        theirs += world.envoy.call("choose")[1] == busy.port
    release.set()
    taken.join(10)

    for each in (own, theirs):
        assert abs(each - count / 4) <= 5 * math.sqrt(count * 3 / 16)


@contextmanager
def holding(world: World, name: str) -> Iterator[Callable[[str], int]]:
    """Calls of a cluster that wait until the end; each is made by its key, and says which endpoint has it."""
    release, threads = threading.Event(), []
    for peer in world.held:
        peer.held = release

    def hold(key: str) -> int:
        before = {peer.port: len(peer.called) for peer in world.held}
        threads.append(threading.Thread(target=_call, args=(world.envoy.port, name, key)))
        threads[-1].start()
        while True:
            for peer in world.held:
                if len(peer.called) > before[peer.port]:
                    return peer.port
            assert threads[-1].is_alive(), "the call reached nobody"
            time.sleep(0.002)

    try:
        yield hold
    finally:
        release.set()
        for thread in threads:
            thread.join(10)
        for peer in world.held:
            peer.held = None


def _hold_until_at(world: World, name: str, busy: Peer) -> threading.Thread:
    """Call until one call waits at the endpoint."""
    while True:
        before = len(busy.called)
        thread = threading.Thread(target=_call, args=(world.envoy.port, name))
        thread.start()
        while thread.is_alive() and len(busy.called) == before:
            thread.join(0.01)
        if len(busy.called) > before:
            return thread


def _call(port: int, name: str, key: str = "") -> None:
    from tests.differential.real import Door

    door = Door(port)
    door.get("/", {"x-cluster": name} | ({"x-key": key} if key else {}))
    door.close()
