"""A client that keeps clusters by itself: real endpoints on loopback, with and without a center, over forks and to the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_process import run

import reachline
from reachline.client import Client
from reachline.testing.door import pair, serving
from reachline.testing.wait import eventually
from reachline.upstream.kept import KeptCluster

CHECKED = {
    "http": {"path": "/healthz"},
    "interval": 0.05,
    "timeout": 5,
    "unhealthy_threshold": 1,
    "healthy_threshold": 1,
}


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(getattr(self.server, "status", 200))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def endpoints(count: int) -> Iterator[list[ThreadingHTTPServer]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Answer) for _ in range(count)]
    threads = [threading.Thread(target=each.serve_forever, args=(0.01,), daemon=True) for each in servers]
    for thread in threads:
        thread.start()
    try:
        yield servers
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def address(server: ThreadingHTTPServer) -> str:
    return f"127.0.0.1:{server.server_address[1]}"


def seen(client: Client, name: str = "own") -> set[str]:
    return {pick.target for _ in range(100) if (pick := client.cluster(name).pick())}


def test_a_cluster_is_found_checked_and_steered_without_a_center() -> None:
    told: list[Mapping[str, object]] = []
    with endpoints(3) as servers:
        targets = [f"http://{address(each)}" for each in servers]
        clusters = {"own": {"targets": targets, "checks": CHECKED, "outliers": {"consecutive_5xx": 2}}}
        with reachline.connect_sync(clusters=clusters, events=told.append) as client:
            cluster = client.cluster("own")
            assert isinstance(cluster, KeptCluster)
            assert cluster.stats().healthy == 3
            pick = cluster.pick()
            assert pick is not None
            assert pick.url in targets
            servers[0].status = 500  # type: ignore[attr-defined]
            eventually(lambda: seen(client) == {address(each) for each in servers[1:]})
            servers[0].status = 200  # type: ignore[attr-defined]
            eventually(lambda: len(seen(client)) == 3)
            stats = client.stats()
            assert (stats.polls, stats.posts.posts) == ({}, 0)
        assert len(seen(client)) == 3

    assert {"add_healthy_event", "eject_unhealthy_event"} <= {key for event in told for key in event}
    assert not [each for each in threading.enumerate() if each.name == "reachline"]


def test_an_ejection_by_calls_ends_by_the_clients_own_thread() -> None:
    targets = ["127.0.0.1:1", "127.0.0.1:2"]
    rules = {"consecutive_5xx": 1, "base_ejection_time": 60, "interval": 0.1}
    short = rules | {"base_ejection_time": 0.2}
    clusters = {"own": {"targets": targets, "outliers": rules}, "soon": {"targets": targets, "outliers": short}}
    told: list[Mapping[str, object]] = []
    with reachline.connect_sync(clusters=clusters, events=told.append) as client:
        cluster = client.cluster("own")
        for each in (cluster, client.cluster("soon")):
            with each.attempt() as attempt:
                attempt.status(500)
            if each is cluster:
                assert attempt.line in cluster.open_lines()
                assert attempt.pick is not None
                assert attempt.pick.target not in seen(client)

        eventually(lambda: len(seen(client, "soon")) == 2)
        assert len(seen(client)) == 1


def test_names_are_followed_from_the_wire_or_the_hosts_file() -> None:
    with endpoints(1) as (server,):
        clusters = {"own": {"targets": [f"localhost:{server.server_address[1]}"], "dns": {"family": "v4"}}}
        with reachline.connect_sync(clusters=clusters) as client:
            pick = client.cluster("own").pick()

    assert pick is not None
    assert (pick.target, pick.hostname) == (address(server), "localhost")


def test_clusters_of_a_center_and_clusters_kept_here_live_in_one_client() -> None:
    with serving(pair(90, 10)) as peer:
        clusters: dict[str, object] = {"payments": None, "own": {"targets": ["10.0.0.1:80"]}}
        with reachline.connect_sync(peer.url, clusters=clusters) as client:
            stats = client.stats().clusters
            assert (stats["payments"].source, stats["own"].source) == ("center", "discovery")
            with client.cluster("own").attempt(), client.cluster("payments").attempt():
                pass
            eventually(lambda: sum(peer.door.outcomes().values()) == 1)

    assert {path.partition("?")[0] for path, _ in peer.door.asked} == {"/api/v1/clusters/payments/lines"}


def test_asyncio_waits_for_the_first_endpoints_without_blocking() -> None:
    async def main() -> None:
        clusters = {"own": {"targets": ["10.0.0.1:80"]}}
        async with (
            await reachline.connect(clusters=clusters) as client,
            client.cluster("own").attempt(key="customer") as attempt,
        ):
            assert attempt.address == ("10.0.0.1", 80)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("clusters", "told"),
    [
        ({}, "clusters: at least one name is needed"),
        ({"no/name": {"targets": []}}, "clusters: must be letters, digits"),
        ({"own": {"targets": ["nowhere"]}}, "clusters.own.targets[0]: must name host and port"),
        ({"own": []}, "clusters.own: must be a cluster's settings"),
    ],
)
def test_clusters_that_cannot_be_are_refused_at_once(clusters: dict[str, object], told: str) -> None:
    with pytest.raises(reachline.ConfigError) as caught:
        reachline.connect_sync(clusters=clusters)

    assert told in str(caught.value)


def test_a_cluster_without_endpoints_is_nobody_and_says_why() -> None:
    with reachline.connect_sync(clusters={"own": {"targets": []}}) as client:
        assert client.cluster("own").pick() is None
        assert client.stats().clusters["own"].trouble == "no endpoints are written down"


FORKED = """
import os, sys
import reachline
from reachline.testing.wait import eventually
assert "reachline.upstream.kept" not in sys.modules
checks = {"http": {"path": "/"}, "interval": 0.05, "timeout": 5, "unhealthy_threshold": 1, "healthy_threshold": 1}
clusters = {"own": {"targets": sys.argv[1:], "checks": checks, "outliers": {"consecutive_5xx": 1}}}
client = reachline.connect_sync(clusters=clusters)
own = client.cluster("own")
assert own.stats().healthy == 2, own.stats()
with own.attempt() as call:
    call.status(500)
    children = []
    for _ in range(3):
        pid = os.fork()
        if not pid:
            break
        children.append(pid)
if not pid:
    assert {own.pick().target for _ in range(100)} == set(sys.argv[1:]), own.explain()
    assert own.stats().calls.errors == 0
    eventually(lambda: own.metrics().get("health_check.success"))
    assert client.stats().is_running
    sys.exit(0)
assert [os.waitpid(each, 0)[1] for each in children] == [0, 0, 0]
assert own.stats().calls.errors == 1
print(len(own.open_lines()), end="")
"""


def test_children_of_a_fork_pick_at_once_check_by_themselves_and_leave_calls_and_ejections_to_the_parent(
    root: Path,
) -> None:
    with endpoints(2) as servers:
        assert run(root, FORKED, *map(address, servers)) in {"0", "1"}
