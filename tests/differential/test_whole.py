"""Whole clusters, from one document: who is a member while names and assignments change, by Envoy and by a cluster kept in process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from tests.differential.peers import CHECK, Peer, Reply, serving
from tests.differential.real import Envoy, bootstrap, running

from reachline.net.ads import Ads
from reachline.testing.nameserver import nameserver
from reachline.testing.wait import until
from reachline.upstream.finding import discovery_of
from reachline.upstream.keeper import Keeper
from reachline.upstream.kept import KeptCluster
from reachline.upstream.reading import read
from reachline.upstream.settings import ControlPlane

pytestmark = pytest.mark.real

EDS: Final = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
DNS: Final = "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster"
CARES: Final = "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"
QUESTIONS: Final = 4
"""Of each side after a change: then it has heard of it."""

Member = tuple[int, int, str]
"""Weight, priority and discovery's word for its health."""


@asynccontextmanager
async def kept(document: Mapping[str, Any]) -> AsyncIterator[KeptCluster]:
    """Ours of the same document, with the network."""
    loop, name = asyncio.get_running_loop(), document["name"]

    def no_ads(plane: ControlPlane) -> Ads:
        raise AssertionError(plane)

    def stir() -> None:
        loop.call_soon(keeper.stir)

    settings = read({name: {key: value for key, value in document.items() if key != "name"}}, place="test")[name]
    made = KeptCluster(settings, clock=loop.time, wall=lambda: 0.0, rng=Random(1), stir=stir)
    keeper = Keeper(made, discovery_of(settings, Random(1), no_ads))
    made.wake()
    task = asyncio.create_task(keeper.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def both(
    binary: Path, directory: Path, theirs: Mapping[str, Any], own: Mapping[str, Any]
) -> AsyncIterator[tuple[Envoy, KeptCluster]]:
    """An Envoy and ours, each of its document."""
    node = {"id": "n", "cluster": "n"}
    with ExitStack() as stack:
        started = running(binary, bootstrap([dict(theirs)], directory, node=node), directory)
        # In a thread: what it waits for may be told by this loop.
        envoy = await asyncio.to_thread(stack.enter_context, started)
        async with kept(own) as cluster:
            yield envoy, cluster


def by_envoy(envoy: Envoy, name: str) -> dict[str, Member]:
    found = envoy.admin("/clusters?format=json")["cluster_statuses"]
    hosts = next(each.get("host_statuses", []) for each in found if each["name"] == name)
    return {
        "{address}:{port_value}".format(**host["address"]["socket_address"]): (
            host["weight"], host.get("priority", 0), host["health_status"]["eds_health_status"],
        )
        for host in hosts
    }  # fmt: skip


def by_us(cluster: KeptCluster) -> dict[str, Member]:
    members = [row.member for row in cluster.rows()]
    told = {"UNKNOWN": "HEALTHY", "TIMEOUT": "UNHEALTHY"}
    return {
        str(each.address): (each.weight, each.priority, told.get(each.health.name, each.health.name)) for each in members
    }  # fmt: skip


async def agree(envoy: Envoy, cluster: KeptCluster, expected: Mapping[str, Member]) -> None:
    """Both come to the same endpoints."""
    with suppress(AssertionError):
        await until(lambda: by_envoy(envoy, cluster.name) == by_us(cluster) == expected, within=10.0)
    assert (by_envoy(envoy, cluster.name), by_us(cluster)) == (expected, expected)


def named(kind: str, port: int) -> dict[str, Any]:
    where = {"socket_address": {"address": "a.test", "port_value": 80}}
    server = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    resolver = {
        "name": "envoy.network.dns_resolver.cares",
        "typed_config": {"@type": CARES, "resolvers": [server]},
    }
    names = {"dns_refresh_rate": "0.05s", "dns_lookup_family": "V4_ONLY", "typed_dns_resolver_config": resolver}
    by_type: dict[str, Any] = {"type": kind, **names}
    by_extension = {"cluster_type": {"name": "envoy.cluster.dns", "typed_config": {"@type": DNS, **names}}}
    return {
        "name": "c",
        **(by_extension if kind == "envoy.cluster.dns" else by_type),
        "load_assignment": {"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": where}}]}]},
    }


STEPS: Final = (
    # (what the name server says from now on, the endpoints of a strict cluster, of a logical one)
    (("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.0.0.2"), ("10.0.0.1",)),
    (("10.0.0.2", "10.0.0.3"), ("10.0.0.2", "10.0.0.3"), ("10.0.0.2",)),
    ("SERVFAIL", ("10.0.0.2", "10.0.0.3"), ("10.0.0.2",)),
    (("10.0.0.3", "10.0.0.2"), ("10.0.0.2", "10.0.0.3"), ("10.0.0.3",)),
    ("NXDOMAIN", (), ("10.0.0.3",)),
    (("10.0.0.4",), ("10.0.0.4",), ("10.0.0.4",)),
    (("fd00::1",), (), ("10.0.0.4",)),
    (("10.0.0.5",), ("10.0.0.5",), ("10.0.0.5",)),
)
"""An address that is not of the family asked for is an answer without addresses."""


@pytest.mark.parametrize("kind", ["STRICT_DNS", "LOGICAL_DNS", "envoy.cluster.dns"])
def test_names_that_change_fail_vanish_and_return_give_the_same_endpoints(
    kind: str, envoy_binary: Path, tmp_path: Path
) -> None:
    async def main() -> int:
        async with nameserver() as for_envoy, nameserver() as for_us:
            servers = (for_envoy, for_us)
            for server in servers:
                server.set("a.test", *STEPS[0][0], ttl=0)
            theirs, own = (named(kind, server.address.port) for server in servers)
            async with both(envoy_binary, tmp_path, theirs, own) as (envoy, cluster):
                for said, strict, logical in STEPS:
                    for server in servers:
                        if isinstance(said, str):
                            server.codes["a.test"] = said
                        else:
                            server.set("a.test", *said, ttl=0)
                    before = [server.asked["a.test/A"] for server in servers]

                    def heard(before: list[int] = before) -> bool:
                        now = [server.asked["a.test/A"] for server in servers]
                        return all(after >= least + QUESTIONS for after, least in zip(now, before, strict=True))

                    await until(heard)
                    chosen = logical if kind == "LOGICAL_DNS" else strict
                    await agree(envoy, cluster, {f"{host}:80": (1, 0, "HEALTHY") for host in chosen})
                return int(envoy.counters("c")["membership_change"])

    changes = asyncio.run(main())

    assert changes >= len({STEPS[at][2 if kind == "LOGICAL_DNS" else 1] for at in range(len(STEPS))})


def assigned(path: Path, **more: Any) -> dict[str, Any]:
    source = {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}
    return {"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": source}, **more}


def said(*groups: tuple[int, Mapping[int, tuple[int, str]]]) -> dict[str, Any]:
    """An assignment: by priority, the weight and health of each port."""
    endpoints = [
        {
            "priority": priority,
            "lb_endpoints": [
                {
                    "endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}},
                    "load_balancing_weight": weight,
                    "health_status": health,
                }
                for port, (weight, health) in ports.items()
            ],
        }
        for priority, ports in groups
    ]
    return {"@type": EDS, "cluster_name": "c", "endpoints": endpoints}


def write(path: Path, resources: list[dict[str, Any]] | str, number: int) -> None:
    """As control planes do it: a new file takes the place of the old one."""
    new = path.with_suffix(".new")
    new.write_text(
        resources if isinstance(resources, str) else json.dumps({"version_info": str(number), "resources": resources})
    )
    new.rename(path)


W = (1, "HEALTHY")
ASSIGNED: Final[tuple[tuple[list[dict[str, Any]] | str, dict[int, Member] | None], ...]] = (
    ([said((0, {1: W, 2: W}))], {1: (1, 0, "HEALTHY"), 2: (1, 0, "HEALTHY")}),
    ([said((0, {1: W, 2: W, 3: (7, "UNKNOWN")}))], {1: (1, 0, "HEALTHY"), 2: (1, 0, "HEALTHY"), 3: (7, 0, "HEALTHY")}),
    ([said((0, {1: (5, "DEGRADED"), 3: W}))], {1: (5, 0, "DEGRADED"), 3: (1, 0, "HEALTHY")}),
    ([said((0, {1: (5, "DRAINING"), 3: (1, "TIMEOUT")}))], {1: (5, 0, "DRAINING"), 3: (1, 0, "UNHEALTHY")}),
    ([said((0, {1: W}), (1, {3: W, 4: W}))], {1: (1, 0, "HEALTHY"), 3: (1, 1, "HEALTHY"), 4: (1, 1, "HEALTHY")}),
    ([said((0, {3: W}), (1, {1: W}))], {3: (1, 0, "HEALTHY"), 1: (1, 1, "HEALTHY")}),
    ([said((0, {3: W}))], {3: (1, 0, "HEALTHY")}),
    ("{", None),
    ([said((0, {5: (0, "HEALTHY")}))], None),
    ([said((0, {5: W, 6: W}))], {5: (1, 0, "HEALTHY"), 6: (1, 0, "HEALTHY")}),
    ([said()], {}),
    ([said((0, {7: W}))], {7: (1, 0, "HEALTHY")}),
)  # fmt: skip
"""Files one after the other, and the endpoints of each; None: it is refused, and the ones before stay."""


def test_assignments_that_grow_shrink_move_and_are_broken_give_the_same_endpoints(
    envoy_binary: Path, tmp_path: Path
) -> None:
    path = tmp_path / "eds.json"

    async def main() -> dict[str, int]:
        write(path, ASSIGNED[0][0], 0)
        async with both(envoy_binary, tmp_path, assigned(path), assigned(path)) as (envoy, cluster):
            expected: dict[str, Member] = {}
            for number, (resources, found) in enumerate(ASSIGNED):
                before = refusals(envoy)
                write(path, resources, number)
                if found is None:
                    await until(partial(is_refused, envoy, cluster, before))
                else:
                    expected = {f"127.0.0.1:{port}": member for port, member in found.items()}
                await agree(envoy, cluster, expected)
            return envoy.counters("c")

    counters = asyncio.run(main())

    assert counters["membership_change"] > 0
    assert counters["update_rejected"] > 0


def is_refused(envoy: Envoy, cluster: KeptCluster, before: int) -> bool:
    """By both."""
    return refusals(envoy) > before and cluster.trouble != ""


def refusals(envoy: Envoy) -> int:
    counters = envoy.counters("c")
    return counters["update_rejected"] + counters["update_failure"]


@pytest.mark.parametrize("at_once", [False, True])
def test_an_endpoint_that_is_gone_from_the_assignment_serves_on_while_its_checks_pass(
    at_once: bool, envoy_binary: Path, tmp_path: Path
) -> None:
    path = tmp_path / "eds.json"
    checks = {
        "timeout": "1s",
        "interval": "0.1s",
        "no_traffic_interval": "0.1s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
    }
    document = assigned(
        path,
        ignore_health_on_host_removal=at_once,
        health_checks=[checks | {"http_health_check": {"path": CHECK}}],
        common_lb_config={"update_merge_window": "0s"},
    )
    is_well = [True]

    async def main(ports: list[int]) -> None:
        write(path, [said((0, dict.fromkeys(ports, W)))], 0)
        all_of_them = {f"127.0.0.1:{port}": (1, 0, "HEALTHY") for port in ports}
        only_first = {f"127.0.0.1:{ports[0]}": (1, 0, "HEALTHY")}
        async with both(envoy_binary, tmp_path, document, document) as (envoy, cluster):
            await until(lambda: envoy.counters("c")["health_check.healthy"] == 2 and cluster.stats().healthy == 2)
            await agree(envoy, cluster, all_of_them)
            write(path, [said((0, {ports[0]: W}))], 1)
            await until(lambda: envoy.counters("c")["update_success"] >= 2)
            asked = len(gone.checked)
            if not at_once:
                # By both, some times more after the change.
                await until(lambda: len(gone.checked) > asked + 8)
            await agree(envoy, cluster, only_first if at_once else all_of_them)
            is_well[0] = False
            await agree(envoy, cluster, only_first)

    with serving() as peers:
        stays = peers.add()
        gone = peers.add(Peer(checks=lambda _: Reply(200 if is_well[0] else 503)))
        asyncio.run(main([stays.port, gone.port]))
