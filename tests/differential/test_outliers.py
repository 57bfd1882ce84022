"""Outlier detection by single calls: after each call of a script the same endpoints are out, by Envoy and by us.

The calls are Envoy's: which endpoint each reached and what came of it is told to our engine, which must come to the same.
Sweeps are far apart here; `test_sweeps` looks at them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from tests.differential import ours
from tests.differential.peers import HANG, RESET, Peer, Peers, Reply, listed, refusing, serving
from tests.differential.real import Envoy, bootstrap, ejecting, running

from reachline.core.outlier_events import Saw

pytestmark = pytest.mark.real

BAD, GATEWAY, FINE = Reply(500), Reply(503), Reply(200)
SLOW = "/slow"
"""Calls to it time out early."""
REFUSED = "refused"
NEVER = "600s"
KINDS = ("consecutive_5xx", "consecutive_gateway_failure", "consecutive_local_origin_failure")
COUNTED = (
    *(f"ejections_{word}_{kind}" for word in ("detected", "enforced") for kind in KINDS),
    "ejections_overflow",
    "ejections_enforced_total",
    "ejections_active",
)


class Case(NamedTuple):
    """What each endpoint answers (a list, its last for ever; `refused`: nobody listens), the rules, and how many calls."""

    endpoints: tuple[tuple[Any, ...] | str, ...]
    rules: dict[str, Any]
    calls: int = 12
    path: str = "/"


GOOD = (200,)
WIDE = {"max_ejection_percent": 100}
SPLIT = WIDE | {"split_external_local_origin_errors": True}
CASES = {
    "three 5xx in a row": Case(((500,), GOOD, GOOD), WIDE | {"consecutive_5xx": 3}),
    "a good one between ends the run": Case(((500, 500, 200, 500), GOOD), WIDE | {"consecutive_5xx": 3}, 16),
    "4xx is good": Case(((500, 500, 404, 500, 500, 500), GOOD), WIDE | {"consecutive_5xx": 3}, 14),
    "501 to 599 are bad": Case(((501, 599, 505), GOOD), WIDE | {"consecutive_5xx": 3}),
    "threshold of one": Case(((500,), GOOD, GOOD), WIDE | {"consecutive_5xx": 1}, 6),
    "threshold of zero never fires": Case(((500,), GOOD), WIDE | {"consecutive_5xx": 0}, 12),
    "two of three": Case(((500,), (500,), GOOD), WIDE | {"consecutive_5xx": 2}),
    "all of them": Case(((500,), (500,)), WIDE | {"consecutive_5xx": 2}, 10),
    "all of one": Case(((500,),), WIDE | {"consecutive_5xx": 2}, 6),
    "cap of 67 lets two of three go": Case(((500,),) * 3, {"max_ejection_percent": 67, "consecutive_5xx": 2}),
    "cap of 66 lets one of three go": Case(((500,),) * 3, {"max_ejection_percent": 66, "consecutive_5xx": 2}),
    "cap of 33 lets none of three go": Case(((500,),) * 3, {"max_ejection_percent": 33, "consecutive_5xx": 2}),
    "the default cap lets none of three go": Case(((500,),) * 3, {"consecutive_5xx": 2}),
    "the default cap lets one of ten go": Case((*((500,),) * 2, *(GOOD,) * 8), {"consecutive_5xx": 1}, 30),
    "always one goes": Case(((500,),) * 3, {"consecutive_5xx": 2, "always_eject_one_host": True}),
    "always one goes, of a cap of zero": Case(
        ((500,),) * 2, {"consecutive_5xx": 2, "always_eject_one_host": True, "max_ejection_percent": 0}
    ),
    "detected and not enforced, again and again": Case(
        ((500,),), WIDE | {"consecutive_5xx": 3, "enforcing_consecutive_5xx": 0}, 20
    ),
    "gateway failures": Case(
        ((502, 503, 504), GOOD),
        WIDE | {"consecutive_gateway_failure": 3, "enforcing_consecutive_gateway_failure": 100},
    ),
    "another 5xx ends a run of gateway failures": Case(
        ((503, 503, 500, 503, 503, 503), GOOD),
        WIDE | {"consecutive_gateway_failure": 3, "enforcing_consecutive_gateway_failure": 100, "consecutive_5xx": 50},
        16,
    ),
    "gateway failures are not enforced by themselves": Case(
        ((503,), GOOD), WIDE | {"consecutive_gateway_failure": 2, "consecutive_5xx": 5}, 14
    ),
    "both at once: the gateway is asked first": Case(
        ((503,), GOOD),
        WIDE | {"consecutive_gateway_failure": 3, "enforcing_consecutive_gateway_failure": 100, "consecutive_5xx": 3},
    ),
    "the 5xx that fired is told, the gateway's run goes on": Case(
        ((503,), GOOD), WIDE | {"consecutive_gateway_failure": 4, "consecutive_5xx": 3, "enforcing_consecutive_5xx": 0}, 20
    ),
    "not split: refused is a 5xx": Case((REFUSED, GOOD, GOOD), WIDE | {"consecutive_5xx": 3}),
    "not split: a reset is a 5xx": Case(((RESET,), GOOD), WIDE | {"consecutive_5xx": 2}, 8),
    "not split: a timeout is a 5xx": Case(((HANG,), GOOD), WIDE | {"consecutive_5xx": 2}, 5, SLOW),
    "not split: a mixture is one run": Case(((500, RESET, 503), GOOD), WIDE | {"consecutive_5xx": 3}, 8),
    "split: refused": Case((REFUSED, GOOD, GOOD), SPLIT | {"consecutive_local_origin_failure": 2}),
    "split: refused is no 5xx": Case(
        (REFUSED, GOOD), SPLIT | {"consecutive_5xx": 1, "consecutive_local_origin_failure": 4}, 10
    ),
    "split: timeouts": Case(((HANG,), GOOD), SPLIT | {"consecutive_local_origin_failure": 2}, 6, SLOW),
    "split: a 5xx is no local failure": Case(
        ((500,), GOOD), SPLIT | {"consecutive_local_origin_failure": 1, "consecutive_5xx": 3}, 10
    ),
    "split: not enforced": Case(
        (REFUSED, GOOD),
        SPLIT | {"consecutive_local_origin_failure": 2, "enforcing_consecutive_local_origin_failure": 0},
    ),
    "split: gateway": Case(
        ((504,), GOOD),
        SPLIT | {"consecutive_gateway_failure": 2, "enforcing_consecutive_gateway_failure": 100},
    ),
}  # fmt: skip


def drawn(seed: int) -> Case:
    """A case by chance of a fixed seed."""
    chance = Random(seed)
    endpoints = tuple(
        tuple(chance.choices((200, 404, 500, 502, 503), (4, 1, 3, 1, 2), k=8)) for _ in range(chance.randint(2, 5))
    )
    rules = {
        "consecutive_5xx": chance.randint(0, 4),
        "consecutive_gateway_failure": chance.randint(1, 3),
        "enforcing_consecutive_5xx": chance.choice((0, 100, 100)),
        "enforcing_consecutive_gateway_failure": chance.choice((0, 100)),
        "max_ejection_percent": chance.choice((0, 25, 34, 50, 67, 100)),
        "always_eject_one_host": chance.random() < 0.3,
    }
    return Case(endpoints, rules, 16)


DRAWN = {f"drawn {seed}": drawn(seed) for seed in range(24)}
EVERY = CASES | DRAWN


class World(NamedTuple):
    envoy: Envoy
    peers: Peers
    documents: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def world(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("outliers")
    with ExitStack() as stack:
        peers = stack.enter_context(serving())
        documents = {}
        for number, (name, case) in enumerate(EVERY.items()):
            ports = [
                stack.enter_context(refusing()) if isinstance(each, str) else peers.add(Peer(calls=listed(*each, then=each[-1]))).port
                for each in case.endpoints
            ]  # fmt: skip
            documents[name] = document(f"c{number}", ports, case.rules)
        config = bootstrap(list(documents.values()), directory)
        envoy = stack.enter_context(running(envoy_binary, config, directory))
        yield World(envoy, peers, documents)


def document(name: str, ports: list[int], rules: dict[str, Any]) -> dict[str, Any]:
    never = {"interval": NEVER, "base_ejection_time": NEVER, "max_ejection_time": NEVER}
    return ejecting(name, ports, never | rules)


def test_every_case_has_its_own_cluster_and_is_read_by_both(world: World) -> None:
    assert len(world.envoy.hosts()) == len(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_the_same_endpoints_are_out_after_each_call(world: World, name: str) -> None:
    case, said = EVERY[name], world.documents[name]
    machine = ours.Kept(said)
    ports = [each.address.port for each in machine.cluster.settings.membership.members]
    refused, known = ports[case.endpoints.index(REFUSED)] if REFUSED in case.endpoints else 0, 0

    for number in range(case.calls):
        status, port = call(world, said["name"], case.path, refused)
        if not port:
            assert len(machine.ejected) == len(ports), (number, status, machine.ejected)
            continue
        assert port not in machine.ejected, f"call {number} reached an endpoint that is out by us"
        for saw, code in seen(case, status, port == refused, world):
            machine.saw(str(port), saw, number, code=code)
        if status >= 500:
            # The number after each bad call; who it is, whenever that changes: the list is long.
            assert active(world, said["name"]) == len(machine.ejected), f"after call {number}"
            if len(machine.ejected) != known:
                assert out(world, said["name"]) == machine.ejected, f"after call {number}"
                known = len(machine.ejected)

    assert out(world, said["name"]) == machine.ejected
    counters = world.envoy.counters(said["name"])
    theirs = {key: counters[f"outlier_detection.{key}"] for key in COUNTED}
    assert theirs == {key: machine.counts.get(key, 0) for key in COUNTED}
    assert counters["upstream_rq_completed"] > 0
    if name in CASES:
        assert (
            theirs["ejections_detected_consecutive_5xx"] > 0
            or "zero never" in name
            or "split" in name
            or "gateway" in name
        )


def call(world: World, cluster: str, path: str, refused: int) -> tuple[int, int]:
    """One call: its status, and the endpoint that it reached (0: none, all are out)."""
    world.peers.last = 0
    status, _, body = world.envoy.door.get(path, {"x-cluster": cluster})
    port = world.peers.last
    world.envoy.barrier()
    if not port and b"no healthy upstream" not in body:
        port = refused
    return status, port


def seen(case: Case, status: int, is_refused: bool, world: World) -> list[tuple[Saw, int | None]]:
    """What Envoy's router tells its detector of such a call."""
    del world
    if is_refused:
        return [(Saw.UNCONNECTED, None)]
    connected: tuple[Saw, int | None] = (Saw.CONNECTED, None)
    if case.path == SLOW and status == 504:
        return [connected, (Saw.TIMEOUT, None)]
    if status == 503 and any(RESET in each for each in case.endpoints):
        return [connected, (Saw.UNCONNECTED, None)]
    return [connected, (Saw.ANSWERED if status < 500 else Saw.FAILED, status)]


def active(world: World, cluster: str) -> int:
    """How many endpoints Envoy has ejected."""
    return int(
        world.envoy.admin(f"/stats?format=json&filter=^cluster.{cluster}.outlier_detection.ejections_active$")["stats"][
            0
        ]["value"]
    )


def out(world: World, cluster: str) -> set[int]:
    """The endpoints that Envoy has ejected."""
    hosts = world.envoy.hosts()[cluster]
    return {port for port, host in hosts.items() if host["health_status"].get("failed_outlier_check")}


def test_the_event_log_is_envoys_key_by_key(world: World) -> None:
    """Of one ejection, both logs: all but the times and the addresses."""
    said = world.documents["three 5xx in a row"]
    machine = ours.Kept(said)
    port = str(machine.cluster.settings.membership.members[0].address.port)
    for number in range(3):
        machine.saw(port, Saw.FAILED, number, code=500)
    own = machine.events[0]

    theirs = eventually(world, said["name"])

    assert {**theirs[0], "upstream_url": "", "timestamp": ""} == {**own, "upstream_url": ""}


def eventually(world: World, cluster: str) -> list[dict[str, Any]]:
    for _ in range(500):
        found = [each for each in world.envoy.events() if each["cluster_name"] == cluster]
        if found:
            return found
        world.envoy.barrier()
    raise AssertionError("no event was logged")
