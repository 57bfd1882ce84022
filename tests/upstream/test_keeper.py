"""A cluster and its keeper in virtual time: when endpoints come, go, fail, return, and what is told of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from tests.upstream.kept import Peers, addresses, call, keeping, members, picks
from tests.upstream.virtual import run

from reachline.core.checking import Fault, Verdict
from reachline.members import Membership, Update, compare
from reachline.model import Health
from reachline.testing.wait import until
from reachline.upstream.keeper import Keeper

A, B, C = addresses(3)
BAD = Verdict(Fault.ACTIVE, status=503)
REFUSED = Verdict(Fault.NETWORK)


class Told:
    """A discovery that tells what it is given."""

    def __init__(self, *first: Update) -> None:
        self.queue: asyncio.Queue[Update] = asyncio.Queue()
        self._membership = Membership()
        for update in first:
            self.queue.put_nowait(update)

    def tell(self, after: Membership, trouble: str = "") -> None:
        update = compare(self._membership, after, trouble=trouble)
        self._membership = after
        self.queue.put_nowait(update)

    async def watch(self) -> AsyncGenerator[Update, None]:
        while True:
            yield await self.queue.get()


def test_settled_with_the_first_endpoints_where_nothing_is_checked() -> None:
    async def main() -> None:
        async with keeping(targets=[A, B]) as (cluster, settled):
            await asyncio.sleep(0.001)
            assert settled == ["c"]
            assert set(picks(cluster)) == {A, B}

    run(main())


def test_settled_once_the_first_checks_are_over() -> None:
    async def main() -> None:
        discovery, peers = Told(), Peers()
        peers.answers = {B: REFUSED}
        document: dict[str, Any] = {
            "type": "file",
            "path": "unused",
            "checks": {"http": {"path": "/"}, "initial_jitter": 2.0},
        }
        async with keeping(discovery, peers, **document) as (cluster, settled):
            await asyncio.sleep(1.0)
            assert not settled
            discovery.tell(members("10.0.0.1", "10.0.0.2", "10.0.0.3"))
            await asyncio.sleep(0.0)
            assert not settled
            await asyncio.sleep(2.1)
            assert settled == ["c"]
            assert set(picks(cluster)) == {A, C}

    run(main())


def test_checks_that_take_too_long_keep_nobody_waiting() -> None:
    async def main() -> None:
        document: dict[str, Any] = {
            "targets": [A],
            "checks": {"http": {"path": "/"}, "initial_jitter": 3_600.0},
            "warm": 2.0,
        }
        async with keeping(**document) as (cluster, settled):
            await asyncio.sleep(1.9)
            assert not settled
            await asyncio.sleep(1.2)
            assert settled == ["c"]
            assert set(picks(cluster)) == {A}

    run(main())


def test_a_failed_check_takes_an_endpoint_out_and_passes_bring_it_back() -> None:
    async def main() -> None:
        peers = Peers()
        document: dict[str, Any] = {"targets": [A, B], "checks": {"http": {"path": "/"}, "interval": 1.0}}
        async with keeping(peers=peers, **document) as (cluster, _):
            await asyncio.sleep(0.5)
            peers.answers[A] = BAD
            await asyncio.sleep(1.0)
            assert set(picks(cluster)) == {B}
            del peers.answers[A]
            await asyncio.sleep(1.0)
            assert cluster.explain(A)[0].why == "failed its checks, 1 passed since"
            await asyncio.sleep(1.0)
            assert set(picks(cluster)) == {A, B}

    run(main())


def test_a_cluster_that_nobody_called_is_checked_as_often_in_our_words_and_seldom_in_envoys() -> None:
    async def main() -> None:
        own, theirs = Peers(), Peers()
        check: dict[str, Any] = {"http_health_check": {"path": "/"}, "timeout": "1s", "interval": "1s"}
        check |= {"unhealthy_threshold": 1, "healthy_threshold": 1}
        socket = {"socket_address": {"address": "10.0.0.1", "port_value": 80}}
        endpoints = [{"lb_endpoints": [{"endpoint": {"address": socket}}]}]
        envoy: dict[str, Any] = {
            "load_assignment": {"cluster_name": "c", "endpoints": endpoints},
            "health_checks": [check],
        }
        async with (
            keeping(peers=own, targets=[A], checks={"http": {"path": "/"}, "interval": 1.0}),
            keeping(peers=theirs, **envoy) as (cluster, _),
        ):
            await asyncio.sleep(10.5)
            assert (own.asked[A], theirs.asked[A]) == (11, 1)
            with cluster.attempt():
                pass
            await asyncio.sleep(60.0)
            assert theirs.asked[A] > 10

    run(main())


def test_an_ejection_ends_on_time_or_by_a_passing_check() -> None:
    async def main() -> None:
        rules = {"consecutive_5xx": 1}
        checks = {"http": {"path": "/"}, "interval": 5.0}
        async with (
            keeping(targets=[A, B], outliers=rules) as (plain, _),
            keeping(targets=[A, B], outliers=rules, checks=checks) as (checked, _),
        ):
            await asyncio.sleep(1.0)
            call(plain, A, 500)
            call(checked, A, 500)
            await asyncio.sleep(3.0)
            assert plain.open_lines() == checked.open_lines() == (f"c/{A}",)
            await asyncio.sleep(2.0)
            assert (plain.open_lines(), checked.open_lines()) == ((f"c/{A}",), ())
            await asyncio.sleep(24.9)
            assert plain.open_lines()
            await asyncio.sleep(0.2)
            assert not plain.open_lines()
            assert set(picks(plain)) == {A, B}

    run(main())


def test_a_header_of_immediate_failure_on_a_call_fails_its_checks_at_once() -> None:
    async def main() -> None:
        document: dict[str, Any] = {"targets": [A, B], "checks": {"http": {"path": "/"}, "interval": 5.0}}
        async with keeping(**document) as (cluster, _):
            await asyncio.sleep(1.0)
            pick = next(pick for _ in range(99) if (pick := cluster.pick()) and pick.target == A)
            cluster.failed_by_call(pick)
            await asyncio.sleep(0.01)
            assert set(picks(cluster)) == {B}
            assert cluster.metrics()["health_check.passive_failure"] == 1
            assert cluster.metrics()["membership_excluded"] == 1

    run(main())


def envoy_file(**more: Any) -> dict[str, Any]:
    check: dict[str, Any] = {
        "http_health_check": {"path": "/"},
        "timeout": "1s",
        "interval": "1s",
        "no_traffic_interval": "1s",
    }
    check |= {"unhealthy_threshold": 1, "healthy_threshold": 1}
    source = {"path_config_source": {"path": "unused"}}
    return {"type": "EDS", "eds_cluster_config": {"eds_config": source}, "health_checks": [check], **more}


def test_as_in_envoy_an_endpoint_that_discovery_forgot_serves_until_a_check_fails() -> None:
    async def main() -> None:
        discovery, peers = Told(), Peers()
        async with keeping(discovery, peers, **envoy_file()) as (cluster, _):
            discovery.tell(members("10.0.0.1", "10.0.0.2"))
            await asyncio.sleep(0.5)
            discovery.tell(members("10.0.0.2"))
            await asyncio.sleep(2.0)
            assert set(picks(cluster)) == {A, B}
            assert "names it no more" in cluster.explain(A)[0].why
            asked = peers.asked[A]
            peers.answers[A] = BAD
            await asyncio.sleep(3.0)
            assert set(picks(cluster)) == {B}
            assert peers.asked[A] == asked + 1
            assert cluster.metrics()["membership_change"] == 2

    run(main())


def test_one_that_discovery_called_unhealthy_or_that_is_not_to_stay_goes_at_once() -> None:
    async def main() -> None:
        for document, health in (
            (envoy_file(), Health.UNHEALTHY),
            (envoy_file(ignore_health_on_host_removal=True), None),
        ):
            discovery = Told()
            async with keeping(discovery, **document) as (cluster, _):
                discovery.tell(members("10.0.0.1", "10.0.0.2", health=health or Health.UNKNOWN))
                await asyncio.sleep(0.5)
                discovery.tell(members("10.0.0.2"))
                await asyncio.sleep(0.1)
                assert [row.key for row in cluster.rows()] == [B]

    run(main())


def test_new_endpoints_are_left_out_of_sums_where_settings_say_so() -> None:
    async def main() -> None:
        common = {"ignore_new_hosts_until_first_hc": True}
        discovery, peers = Told(), Peers()
        async with keeping(discovery, peers, **envoy_file(common_lb_config=common)) as (cluster, _):
            peers.waits = 0.25
            discovery.tell(members("10.0.0.1"))
            await asyncio.sleep(0.1)
            assert cluster.metrics()["membership_excluded"] == 1
            await asyncio.sleep(0.5)
            assert cluster.metrics()["membership_excluded"] == 0

    run(main())


def test_a_first_look_that_finds_nothing_leaves_what_is_known_from_before() -> None:
    async def main() -> None:
        async with keeping(targets=[A, B]) as (cluster, _):
            await asyncio.sleep(0.001)
            discovery = Told(compare(Membership(), Membership(), trouble="no name server answers"))
            again = asyncio.create_task(Keeper(cluster, discovery).run())
            await asyncio.sleep(1.0)
            assert set(picks(cluster)) == {A, B}
            assert cluster.stats().trouble == "no name server answers"
            discovery.tell(members("10.0.0.3"))
            await asyncio.sleep(1.0)
            assert set(picks(cluster)) == {C}
            assert not cluster.stats().trouble
            again.cancel()

    run(main())


def test_events_are_told_in_envoys_words_and_written_where_the_settings_say(tmp_path: Path) -> None:
    told: list[Mapping[str, object]] = []
    checks = {"http": {"path": "/"}, "interval": 1.0, "event_log_path": str(tmp_path / "checks.log")}
    outliers = {"consecutive_5xx": 1, "event_log_path": str(tmp_path / "outliers.log")}

    async def main() -> None:
        async with keeping(told=told, targets=[A, B], checks=checks, outliers=outliers) as (cluster, _):
            await asyncio.sleep(0.5)
            call(cluster, A, 500)
            await asyncio.sleep(1.0)

    run(main())

    written = [
        json.loads(line)
        for name in ("checks.log", "outliers.log")
        for line in (tmp_path / name).read_text().splitlines()
    ]
    assert sorted(map(str, written)) == sorted(map(str, told))
    assert [each["action"] for each in told if "action" in each] == ["EJECT", "UNEJECT"]
    assert told[0] == {
        "health_checker_type": "HTTP",
        "host": {
            "socket_address": {
                "protocol": "TCP",
                "address": "10.0.0.1",
                "port_value": 80,
                "resolver_name": "",
                "ipv4_compat": False,
                "network_namespace_filepath": "",
            }
        },
        "cluster_name": "c",
        "add_healthy_event": {"first_check": True},
        "timestamp": "1970-01-01T00:00:00.000Z",
        "locality": {"region": "", "zone": "", "sub_zone": ""},
    }


def test_a_log_that_cannot_be_written_and_a_listener_that_raises_end_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        outliers = {"consecutive_5xx": 1, "event_log_path": str(tmp_path / "none" / "outliers.log")}
        async with keeping(told=Deaf(), targets=[A, B], outliers=outliers) as (cluster, _):
            await asyncio.sleep(0.5)
            call(cluster, A, 500)
            await asyncio.sleep(60.0)
            assert set(picks(cluster)) == {A, B}

    run(main())


class Deaf(list[Mapping[str, object]]):
    def append(self, item: Mapping[str, object], /) -> None:
        raise ValueError(item)


def test_a_picker_that_takes_long_to_make_is_made_aside_and_waited_for_once() -> None:
    async def main() -> None:
        discovery = Told()
        async with keeping(discovery, type="file", path="unused", policy="maglev") as (cluster, settled):
            discovery.tell(members("10.0.0.1", "10.0.0.2"))
            await until(lambda: settled == ["c"])
            assert set(picks(cluster)) == {A, B}

            discovery.tell(members("10.0.0.2", "10.0.0.3"))
            await until(lambda: set(picks(cluster)) == {B, C})
            assert cluster.is_current

    asyncio.run(main())
