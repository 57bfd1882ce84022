"""Every audience is told the newest state, by its zone; nobody is told less than an earlier start of the center said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.center.steered import ENVOY, Center

from reachline.center.xds import steering as steering_of
from reachline.center.xds.layout import Host
from reachline.center.xds.places import Places
from reachline.center.xds.resources import Audience, Kind, audience_of
from reachline.center.xds.steering import SETTLES_MS, Steering
from reachline.discovery import DnsSettings
from reachline.doors import reach
from reachline.model import Health, Locality
from reachline.net.names import Names as Resolver
from reachline.testing.nameserver import Nameserver, nameserver
from reachline.testing.wait import until
from reachline.wire import resources as resources_of
from reachline.wire.ads import CDS, EDS, LDS
from reachline.wire.xds import Node

QUICK = DnsSettings(refresh=0.02, respect_ttl=False, jitter=0.0, failure_base=0.02, failure_max=0.02)
PLAIN = "clusters: {shop: {lines: {a: 'tcp://10.0.0.1:80', b: 'tcp://10.0.0.2:80'}}}"
LISTENED = "clusters: {shop: {lines: ['http://10.0.0.1:80'], listen: '127.0.0.1:9000'}}"
NAMED = "clusters: {shop: {lines: {a: 'tcp://a.test:80', b: 'tcp://10.0.0.2:80'}}}"


def test_who_asks_first_is_told_at_once_and_then_of_every_change() -> None:
    center = Center(PLAIN)
    steering = center.steering()
    first = center.told()
    assert first is not None
    assert center.endpoints() == {"a": ["10.0.0.1"], "b": ["10.0.0.2"]}

    center.weighs("a", 0, Health.UNHEALTHY)
    steering.refresh()

    assert center.told() is not first
    assert first.get(CDS, "shop") is center.told().get(CDS, "shop")  # type: ignore[union-attr]


def test_audiences_in_zones_that_no_line_names_share_what_they_are_told() -> None:
    center = Center(PLAIN)
    center.steering()

    assert center.told(Audience(Kind.ENVOY, Locality(zone="x"))) is center.told(Audience(Kind.OWN, Locality(zone="y")))
    assert center.told(Audience(Kind.GRPC)) is not center.told(ENVOY)


def test_each_zone_is_told_its_own_lines() -> None:
    center = Center(
        "clusters: {shop: {lines: {a: {to: 'tcp://10.0.0.1:80', from: az1}, b: {to: 'tcp://10.0.0.2:80', from: az2}}}}\n"
        "agents: {one: {locality: {zone: az1}}, two: {locality: {zone: az2}}}"
    )
    center.steering()

    assert list(center.endpoints(Audience(Kind.GRPC, Locality(zone="az2")))) == ["b@az2"]
    assert list(center.endpoints()) == ["a@az1", "b@az2"]


def test_who_is_not_told_because_there_are_too_many_kinds_of_clients_is_said(monkeypatch) -> None:
    monkeypatch.setattr(steering_of, "_MOST_GROUPS", 1)
    center = Center(PLAIN)
    steering = center.steering()

    faults = []
    for audience in (ENVOY, Audience(Kind.GRPC)):
        center.told(audience)
        faults.append(steering.fault)

    assert faults == ["", "1 more kinds of clients in zones than the 1 that are told at once"]


def test_who_comes_has_no_others_rendered() -> None:
    center = Center(PLAIN)
    steering = center.steering()
    before = center.told()
    center.weighs("a", 0, Health.UNHEALTHY)  # of which steering is not told yet

    center.told(Audience(Kind.GRPC))

    assert center.told() is before
    steering.refresh()
    assert center.told() is not before


def test_an_assignment_that_is_too_large_is_left_out_alone_and_named(monkeypatch) -> None:
    text = "clusters: {small: {lines: ['tcp://10.0.0.9:80']}, shop: {lines: {a: 'tcp://10.0.0.1:80', b: 'tcp://10.0.0.2:80'}}}"
    monkeypatch.setattr(resources_of, "LARGEST", 100)
    center = Center(text)
    steering = center.steering()

    found = center.told()

    assert found is not None
    assert [list(found.shelf(url).by_name) for url in (CDS, EDS)] == [["small"], ["small"]]
    assert steering.fault == ""
    assert "shop: 1" in steering.notes()["shop"][0]
    assert "at most 100 are served" in steering.notes()["shop"][0]

    monkeypatch.setattr(resources_of, "LARGEST", 1_000)
    center.weighs("a", 7, Health.HEALTHY)
    steering.refresh()
    assert set(center.told().shelf(EDS).by_name) == {"small", "shop"}  # type: ignore[union-attr]
    monkeypatch.setattr(resources_of, "LARGEST", 100)
    kept = center.told().get(EDS, "shop")  # type: ignore[union-attr]
    center.weighs("a", 9, Health.HEALTHY)
    steering.refresh()
    assert center.told().get(EDS, "shop") is kept  # type: ignore[union-attr]
    assert "keep the last ones" in steering.notes()["shop"][0]


def test_another_document_is_told_once_it_is_in_force() -> None:
    center = Center(PLAIN)
    steering = center.steering()
    center.told()

    center.board.drop("shop")
    center.read(PLAIN.replace("shop", "store"))
    steering.follow(center.document)

    found = center.told()
    assert found is not None
    assert list(found.shelf(CDS).by_name) == ["store"]


def test_a_renamed_cluster_is_told_in_one_step_once_its_first_tick_has_published_it() -> None:
    center = Center(LISTENED)
    steering = center.steering()
    first = center.told()

    center.board.drop("shop")
    document = reach.read(LISTENED.replace("shop", "store"), name="d.yaml", environ={})
    steering.follow(document)
    assert center.told() is first

    center.read(LISTENED.replace("shop", "store"))
    steering.refresh()

    found = center.told()
    assert found is not None
    assert list(found.shelf(CDS).by_name) == ["store"]
    assert list(found.shelf(LDS).by_name) == ["127.0.0.1:9000"]


def test_evidence_finds_every_line_that_data_planes_are_told_of_however_the_document_writes_it() -> None:
    center = Center(
        "clusters: {shop: {lines: {a: 'tcp://[2001:DB8:0::1]:80', b: {to: 'tcp://10.0.0.2:80', family: 4},"
        " c: {to: 'tcp://10.0.0.3:80', via: 'socks5://10.0.0.9:1080'}}}}"
    )
    steering = center.steering()
    assert center.endpoints().keys() == {"a", "b"}

    lines = center.board.clusters["shop"].value.lines.values()
    found = Places(lines, steering.resolved()).seen_from("")

    assert found == {("shop", "2001:db8::1", 80): "shop/a", ("shop", "10.0.0.2", 80): "shop/b"}


def test_it_is_settled_once_something_is_known_of_every_line() -> None:
    center = Center(PLAIN)
    steering = center.steering()
    center.told()
    assert not steering.settled.value

    center.weighs("a", 100, Health.HEALTHY)
    steering.refresh()
    assert not steering.settled.value

    center.weighs("b", 0, Health.UNHEALTHY)
    steering.refresh()
    assert steering.settled.value


def test_it_is_settled_at_last_also_where_nobody_judges() -> None:
    center = Center(PLAIN)
    steering = center.steering()
    center.now_ms = SETTLES_MS

    steering.refresh()

    assert steering.settled.value


def test_nodes_whose_bootstrap_has_a_way_for_access_logs_are_an_audience_of_their_own() -> None:
    said = Node(id="e", user_agent="envoy", metadata={"reachline": {"als": True}})

    assert audience_of(said).logs_access
    assert not audience_of(replace(said, metadata={"reachline": 1})).logs_access
    assert not audience_of(replace(said, user_agent="gRPC C-core")).logs_access
    assert not audience_of(replace(said, user_agent="reachline")).logs_access


# Names.


@asynccontextmanager
async def named(server: Nameserver) -> AsyncIterator[tuple[Center, Steering]]:
    nowhere = Path(os.devnull)
    center = Center(NAMED, Health.HEALTHY)
    steering = Steering(
        center.board, center.cells, center.document, rng=Random(1), dns=QUICK,
        resolver=lambda: Resolver(servers=[server.address], resolv=nowhere, hosts=nowhere, wait=5, tries=1),
    )  # fmt: skip
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(steering.run())
        try:
            yield center, steering
        finally:
            running.cancel()


def test_nothing_is_said_before_every_name_was_asked_for_once() -> None:
    async def run() -> None:
        async with nameserver() as server:
            server.set("a.test", "10.0.0.7")
            async with named(server) as (center, steering):
                assert center.told() is None
                assert not steering.is_ready

                await until(center.endpoints, what="endpoints")

                assert center.endpoints() == {"a": ["10.0.0.7"], "b": ["10.0.0.2"]}
                assert steering.resolved()["shop/a"] == (("10.0.0.7", 80),)  # type: ignore[index]
                assert steering.settled.value

    asyncio.run(run())


def test_the_last_good_answer_stays_whatever_a_name_server_says_later() -> None:
    async def run() -> None:
        async with nameserver() as server:
            server.set("a.test", "10.0.0.7")
            async with named(server) as (center, steering):
                await until(center.endpoints, what="endpoints")

                for code in ("SERVFAIL", "NXDOMAIN"):
                    server.codes["a.test"] = code
                    await until(steering.notes, what="a note")
                    assert center.endpoints()["a"] == ["10.0.0.7"]
                    assert "a.test" in steering.notes()["shop"][0]
                    server.set("a.test", "10.0.0.7")
                    await until(lambda: not steering.notes(), what="no note")

                server.set("a.test", "10.0.0.8")
                await until(lambda: center.endpoints()["a"] == ["10.0.0.8"], what="the new address")

    asyncio.run(run())


def test_a_name_that_nobody_knows_is_left_out_and_keeps_who_knows_more_waiting() -> None:
    async def run() -> None:
        async with nameserver() as server, named(server) as (center, steering):
            await until(center.endpoints, what="endpoints")

            assert center.endpoints() == {"b": ["10.0.0.2"]}
            assert not steering.settled.value
            assert any("has no address yet" in said for said in steering.notes()["shop"])

    asyncio.run(run())


def test_a_name_that_is_wanted_again_before_anybody_noticed_keeps_its_answer() -> None:
    async def run() -> None:
        async with nameserver() as server:
            server.set("a.test", "10.0.0.7")
            async with named(server) as (center, steering):
                await until(center.endpoints, what="endpoints")

                steering.names.want(())
                steering.names.want({Host("a.test")})

                assert not steering.names.pending
                assert steering.names.addresses == {Host("a.test"): ("10.0.0.7",)}

    asyncio.run(run())


def test_what_was_known_of_a_name_ends_with_its_last_line() -> None:
    async def run() -> None:
        async with nameserver() as server:
            server.set("a.test", "10.0.0.7")
            async with named(server) as (center, steering):
                await until(center.endpoints, what="endpoints")

                steering.names.want(())

                await until(lambda: not steering.names.addresses, what="nothing known")

    asyncio.run(run())
