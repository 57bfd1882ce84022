"""Parts of a cluster's endpoints: subsets, the caller's own zone, weights from reported loads, and how much may be under way."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest
from tests.differential.peers import Peer, Reply, always, serving
from tests.differential.real import Door, Envoy, bootstrap, running
from tests.wanted import shows

from reachline.errors import Overflow
from reachline.members import Membership, compare
from reachline.model import Locality
from reachline.testing.wait import eventually
from reachline.upstream.kept import KeptCluster
from reachline.upstream.reading import read

pytestmark = pytest.mark.real

STAGES: Final = (("canary", "1"), ("canary", "2"), ("stable", "1"), ("stable", "1"), ("stable", "2"), ("", ""))
"""Of each endpoint: stage and version."""
WANTED: Final[dict[str, dict[str, str]]] = {
    "stage": {"stage": "canary"},
    "both": {"stage": "stable", "version": "1"},
    "unknown-value": {"stage": "gone"},
    "fewer": {"stage": "canary", "version": "9"},
    "unknown-key": {"colour": "blue"},
}
"""What calls ask for, by path."""
KEYS: Final = [{"keys": ["stage"]}, {"keys": ["stage", "version"]}]
FEWER: Final = [
    {"keys": ["stage"]},
    {"keys": ["stage", "version"], "fallback_policy": "KEYS_SUBSET", "fallback_keys_subset": ["stage"]},
]
SUBSETS: Final[dict[str, dict[str, Any]]] = {
    "none": {"fallback_policy": "NO_FALLBACK", "subset_selectors": KEYS},
    "any": {"fallback_policy": "ANY_ENDPOINT", "subset_selectors": KEYS},
    "default": {
        "fallback_policy": "DEFAULT_SUBSET", "default_subset": {"stage": "stable", "version": "2"}, "subset_selectors": KEYS,
    },
    "keys": {"fallback_policy": "NO_FALLBACK", "subset_selectors": FEWER},
    "selector": {
        "fallback_policy": "ANY_ENDPOINT", "subset_selectors": [{"keys": ["stage"], "fallback_policy": "NO_FALLBACK"}],
    },
}  # fmt: skip
ZONES: Final = "aabbbbcc"
"""Of each upstream endpoint; of callers, this one in a."""
CALLERS: Final = "aabbc"
LOADS: Final = (0.1, 0.4, 0.4)
REPORTED: Final = (
    "type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3"
    ".ClientSideWeightedRoundRobin"
)
WINDOW: Final = 1.5
"""Seconds for which ejections wait for one another: several calls long."""
LIMITS: Final = {
    "requests": ({"max_requests": 2}, 2, "upstream_rq_active_overflow"),
    "connections": ({"max_connections": 2, "max_pending_requests": 1}, 3, "upstream_rq_pending_overflow"),
}
"""Thresholds, how many calls at once they allow, and what those beyond are counted as."""


class World(NamedTuple):
    envoy: Envoy
    documents: dict[str, dict[str, Any]]
    held: Peer
    waiting: list[Peer]


def endpoint(port: int, metadata: Mapping[str, str] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
    return made | ({"metadata": {"filter_metadata": {"envoy.lb": metadata}}} if metadata else {})


def assigned(name: str, *groups: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "load_assignment": {"cluster_name": name, "endpoints": list(groups)}, **fields}


def zoned(name: str, zones: str, ports: list[int], **fields: Any) -> dict[str, Any]:
    groups = [
        {
            "locality": {"zone": zone},
            "lb_endpoints": [endpoint(port) for port, at in zip(ports, zones, strict=False) if at == zone],
        }
        for zone in dict.fromkeys(zones)
    ]
    return assigned(name, *groups, **fields)


def reporting() -> dict[str, Any]:
    config = {"@type": REPORTED, "blackout_period": "0s", "weight_update_period": "1s"}
    typed = {"name": "p", "typed_config": config}
    return {"load_balancing_policy": {"policies": [{"typed_extension_config": typed}]}}


def documents(ports: list[int], loaded: list[int], held: int, waiting: list[int]) -> dict[str, dict[str, Any]]:
    staged = [
        endpoint(port, {key: value for key, value in (("stage", stage), ("version", version)) if value})
        for port, (stage, version) in zip(ports, STAGES, strict=False)
    ]
    found = {
        f"subset-{name}": assigned(f"subset-{name}", {"lb_endpoints": staged}, lb_subset_config=config)
        for name, config in SUBSETS.items()
    }
    found["zoned"] = zoned("zoned", ZONES, ports)
    found["callers"] = zoned("callers", CALLERS, ports)
    found["reported"] = assigned("reported", {"lb_endpoints": [endpoint(port) for port in loaded]}, **reporting())
    found["merged"] = assigned(
        "merged",
        {"lb_endpoints": [endpoint(port) for port in waiting]},
        common_lb_config={"healthy_panic_threshold": {"value": 0}, "update_merge_window": f"{WINDOW}s"},
        outlier_detection={"consecutive_5xx": 1, "max_ejection_percent": 100, "base_ejection_time": "300s"},
    )
    for name, (threshold, _, _) in LIMITS.items():
        limits = {"thresholds": [threshold]}
        found[name] = assigned(name, {"lb_endpoints": [endpoint(held)]}, circuit_breakers=limits)
    return found


def load(utilisation: float) -> Reply:
    text = f"TEXT rps_fractional=100,application_utilization={utilisation}"
    return Reply(headers=(("endpoint-load-metrics", text),))


@pytest.fixture(scope="module")
def world(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("parts")
    with serving() as peers:
        ports = [peers.add().port for _ in ZONES]
        loaded = [peers.add(calls=always(load(each))).port for each in LOADS]
        held, waiting = peers.add(), [peers.add() for _ in range(4)]
        made = documents(ports, loaded, held.port, [each.port for each in waiting])
        whole = bootstrap(
            list(made.values()), directory, node={"id": "n", "cluster": "callers", "locality": {"zone": "a"}}
        )
        whole["cluster_manager"]["local_cluster_name"] = "callers"
        filters = whole["static_resources"]["listeners"][0]["filter_chains"][0]["filters"]
        routes = filters[0]["typed_config"]["route_config"]["virtual_hosts"][0]["routes"]
        for path, wanted in WANTED.items():
            match = {"filter_metadata": {"envoy.lb": wanted}}
            routes.insert(
                0, {"match": {"prefix": f"/{path}"}, "route": {"cluster_header": "x-cluster", "metadata_match": match}}
            )
        with running(envoy_binary, whole, directory) as envoy:
            yield World(envoy, made, held, waiting)


def ours(document: Mapping[str, Any], **more: Any) -> KeptCluster:
    name = document["name"]
    found = read({name: {key: value for key, value in document.items() if key != "name"}}, place="test")[name]
    settings = replace(found, **more)
    made = KeptCluster(settings, clock=lambda: 0.0, wall=lambda: 0.0, rng=Random(1))
    made.update(compare(Membership(), settings.membership))
    made.wake()
    return made


def port_of(pick: Any) -> int:
    return 0 if pick is None else int(pick.address[1])


@pytest.mark.parametrize("path", WANTED)
@pytest.mark.parametrize("name", SUBSETS)
def test_a_call_that_names_metadata_reaches_the_same_endpoints(world: World, name: str, path: str) -> None:
    cluster, count = ours(world.documents[f"subset-{name}"]), 2 * len(STAGES)

    theirs = Counter(world.envoy.call(f"subset-{name}", path=f"/{path}")[1] for _ in range(count))

    assert theirs == Counter(port_of(cluster.pick(subset=WANTED[path])) for _ in range(count))
    assert world.envoy.counters(f"subset-{name}")["lb_subsets_created"] > 0


def test_calls_stay_in_the_callers_zone_as_far_as_that_is_fair(world: World) -> None:
    callers = Counter(Locality(zone=zone) for zone in CALLERS)
    cluster = ours(world.documents["zoned"], home=Locality(zone="a"), callers=callers)
    zone = {member.address.port: member.locality.zone for member in cluster.settings.membership.members}
    count = 400

    own = Counter(zone[port_of(cluster.pick())] for _ in range(count))
    theirs = Counter(zone[world.envoy.call("zoned")[1]] for _ in range(count))

    # Two fifths of the callers and a quarter of the endpoints are in a: 62.5 % stay; b and c have 10 % and 5 % to spare.
    for where, share in {"a": 0.625, "b": 0.25, "c": 0.125}.items():
        spread = 5 * math.sqrt(count * share * (1 - share))
        assert abs(own[where] - count * share) <= spread, (where, own)
        assert abs(theirs[where] - count * share) <= spread, (where, theirs)
    counters = world.envoy.counters("zoned")
    assert counters["lb_zone_routing_sampled"] > 0
    assert counters["lb_zone_routing_cross_zone"] == theirs["b"] + theirs["c"]


def test_endpoints_weigh_by_what_they_report(world: World) -> None:
    cluster, now = ours(world.documents["reported"]), 0.0
    cluster._clock = lambda: now
    loads = dict(zip((each.address.port for each in cluster.settings.membership.members), LOADS, strict=True))
    for _ in range(30):
        with cluster.attempt() as call:
            call.load(dict(load(loads[port_of(call.pick)]).headers).get)
    now = 1.0
    cluster.turn()
    own = Counter(port_of(cluster.pick()) for _ in range(60))

    def is_alike() -> bool:
        """Sixty of Envoy's calls; a new schedule may begin inside of them, so that a turn lies on either side."""
        theirs = Counter(world.envoy.call("reported")[1] for _ in range(60))
        return all(abs(theirs[port] - count) <= 2 for port, count in own.items())

    assert sorted(own.values()) == [10, 10, 40]
    eventually(is_alike, what="weights from reports")


@contextmanager
def holding(world: World, cluster: str, count: int) -> Iterator[None]:
    """So many calls of Envoy's that are under way, or wait for a connection."""
    release, threads = threading.Event(), []
    world.held.held = release

    def call() -> None:
        door = Door(world.envoy.port)
        door.get("/", {"x-cluster": cluster})
        door.close()

    def is_counted() -> bool:
        counters = world.envoy.counters(cluster)
        return counters["upstream_rq_active"] + counters["upstream_rq_pending_active"] == len(threads)

    try:
        for _ in range(count):
            threads.append(threading.Thread(target=call))
            threads[-1].start()
            eventually(is_counted, what="a call under way")
        yield
    finally:
        release.set()
        for each in threads:
            each.join(10)
        world.held.held = None


@pytest.mark.parametrize("name", LIMITS)
def test_calls_beyond_a_threshold_are_refused_and_counted(world: World, name: str) -> None:
    (_, most, counter), cluster = LIMITS[name], ours(world.documents[name])

    with holding(world, name, most):
        statuses = [world.envoy.call(name)[0] for _ in range(3)]
        counters = world.envoy.counters(name)
    with ExitStack() as stack:
        begun = 0
        for _ in range(most + 3):
            with suppress(Overflow):
                stack.enter_context(cluster.attempt())
                begun += 1

    assert statuses == [503, 503, 503]
    assert begun == most
    assert cluster.metrics()[counter] == counters[counter] == 3


@shows("merge window")
def test_an_ejection_that_follows_another_waits_until_the_window_is_over(world: World) -> None:
    document, waiting = world.documents["merged"], world.waiting
    cluster, now = ours(document), 10.0
    cluster._clock = lambda: now

    def called_after_ejection(peer: Peer) -> int:
        """Envoy's calls to an endpoint that it has ejected, until they end."""
        peer.calls = always(Reply(500))
        eventually(lambda: world.envoy.call("merged")[1] == peer.port, every=0.0, what="a call that fails")
        world.envoy.barrier()
        before = len(peer.called)
        eventually(lambda: peer.port not in {world.envoy.call("merged")[1] for _ in range(12)}, what="it gets no calls")
        return len(peer.called) - before

    # The first may fall into the window of the start; those after it follow one another.
    theirs = [called_after_ejection(each) for each in waiting[:3]]
    own = []
    for each in waiting[:2]:
        pick = next(pick for _ in waiting if (pick := cluster.pick()) and port_of(pick) == each.port)
        cluster.report(pick, "status")
        own.append({port_of(cluster.pick()) for _ in range(12)} >= {each.port})
        now += 0.1
    now += WINDOW
    cluster.turn()

    assert any(theirs[1:]), theirs
    assert own == [False, True]
    assert {port_of(cluster.pick()) for _ in range(12)} == {each.port for each in waiting[2:]}
