"""EDS against a control plane over real gRPC that sends good, bad, stale and no answers, and goes away."""

from __future__ import annotations

import asyncio
import contextlib
import math
from contextlib import aclosing
from random import Random
from typing import Any

import pytest

pytest.importorskip("envoy.service.discovery.v3.discovery_pb2", reason="xds-protos is not installed")

from tests.discovery.plane import EDS, assigned, endpoint, plane
from tests.discovery.watch import Watch

from reachline.discovery.eds import Eds
from reachline.errors import ConfigError
from reachline.model import Health, Locality
from reachline.net.ads import Ads
from reachline.testing.wait import until
from reachline.wire import ads as wire_ads
from reachline.wire.xds import Node


@contextlib.asynccontextmanager
async def running(address, **options):
    """An `Ads` whose task runs."""
    ads = Ads(address, node=Node(id="n1", cluster="shop", metadata={"k": 1}), rng=Random(1), **options)
    task = asyncio.ensure_future(ads.run())
    try:
        yield ads
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def watching(ads, name="a", **options):
    async with aclosing(Eds(ads, name, **options).watch()) as updates:
        yield Watch(updates)


@contextlib.asynccontextmanager
async def taken(*endpoints, delta=False):
    """(plane, ads, its stream, a watch that has its first update)."""
    async with plane() as server, running(server.address, delta=delta) as ads, watching(ads) as watch:
        first = asyncio.ensure_future(watch.next())
        stream = await server.stream()
        await stream.next()
        say = stream.tell if delta else stream.say
        await say(assigned("a", *endpoints), nonce="n1")
        await first
        await stream.next()
        yield server, ads, stream, watch


@pytest.mark.parametrize("delta", [False, True])
def test_endpoints_come_with_all_that_is_said_of_them_and_the_answer_is_acknowledged(delta) -> None:
    async def main():
        async with plane() as server, running(server.address, delta=delta) as ads, watching(ads) as watch:
            first = asyncio.ensure_future(watch.next())
            stream = await server.stream()
            request = await stream.next()
            message = assigned(
                "a",
                endpoint("10.0.0.1", health_status="DRAINING", load_balancing_weight=3,
                         metadata={"filter_metadata": {"envoy.lb": {"v": "1"}}}),
                endpoint("10.0.0.2"),
                locality={"region": "r", "zone": "z"}, priority=1, load_balancing_weight=7,
                policy={"drop_overloads": [{"category": "t", "drop_percentage": {"numerator": 50}}], "overprovisioning_factor": 150},
            )  # fmt: skip
            await (stream.tell(message, nonce="n1") if delta else stream.say(message, nonce="n1"))
            update, answer = await first, await stream.next()

        assert (request.node.id, request.node.user_agent_name, request.node.metadata["k"]) == ("n1", "reachline", 1)
        assert list(request.resource_names_subscribe if delta else request.resource_names) == ["a"]
        assert not answer.node.id
        assert (answer.response_nonce, answer.error_detail.message) == ("n1", "")
        one, two = update.added
        assert (str(one.address), one.weight, one.priority, one.health) == ("10.0.0.1:80", 3, 1, Health.DRAINING)
        assert (one.locality, one.metadata) == (Locality(region="r", zone="z"), {"envoy.lb": {"v": "1"}})
        assert (two.weight, two.health) == (1, Health.UNKNOWN)
        assert update.membership.locality_weights == {one.place: 7}
        assert update.membership.drops == (("t", 0.5),)
        assert (update.membership.overprovisioning, update.trouble) == (1.5, "")

    asyncio.run(main())


def test_a_change_of_weight_and_a_move_keep_the_endpoint() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1"), endpoint("10.0.0.2")) as (_, _ads, stream, watch):
            kept = watch.last.membership.members[0]
            await stream.say(
                assigned("a", endpoint("10.0.0.1"), endpoint("10.0.0.2", load_balancing_weight=5)), nonce="n2"
            )
            update = await watch.next()
            assert [shift.after.weight for shift in update.changed] == [5]
            assert update.membership.members[0] is kept

            await stream.say(assigned("a", endpoint("10.0.0.1"), priority=2), nonce="n3")
            update = await watch.next()
            assert [shift.after.priority for shift in update.moved] == [2]
            assert (update.added, len(update.removed)) == ((), 1)

    asyncio.run(main())


@pytest.mark.parametrize("delta", [False, True])
def test_one_bad_assignment_in_a_good_response_is_refused_by_name_and_its_endpoints_stay(delta) -> None:
    async def main():
        async with taken(endpoint("10.0.0.1"), delta=delta) as (_, ads, stream, watch), watching(ads, "b") as other:
            second = asyncio.ensure_future(other.next())
            await stream.next()
            messages = (
                assigned("a", endpoint("not-an-ip", load_balancing_weight=0)),
                assigned("b", endpoint("10.0.1.1")),
            )
            await (stream.tell(*messages, nonce="n2") if delta else stream.say(*messages, nonce="n2", version="2"))
            answer, update = await stream.next(), await watch.next()

            assert [each.address.host for each in (await second).added] == ["10.0.1.1"]
            assert answer.response_nonce == "n2"
            assert answer.error_detail.code == 3
            assert answer.error_detail.message == (
                "a: endpoints[0].lb_endpoints[0].address must be a numeric address; a name needs strict_dns or logical_dns "
                "(got 'not-an-ip'); endpoints[0].lb_endpoints[0].weight must be a whole number, 1 to 4294967295 (got 0)"
            )
            assert delta or answer.version_info == "1"
            assert [each.address.host for each in update.membership.members] == ["10.0.0.1"]
            assert update.trouble.startswith("refused: endpoints[0].lb_endpoints[0].address must be")
            assert not update.is_change

            good = assigned("a", endpoint("10.0.0.9"))
            await (stream.tell(good, nonce="n3") if delta else stream.say(good, nonce="n3"))
            assert await watch.hosts() == ["10.0.0.9"]
            assert watch.last.trouble == ""

    asyncio.run(main())


def test_a_resource_of_garbage_is_refused_and_serving_goes_on() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1")) as (_, ads, stream, watch):
            await stream.say(b"\xff\xff\xff", nonce="n2")
            assert "resources[0]: cannot be read" in (await stream.next()).error_detail.message
            assert await watch.hosts() == ["10.0.0.1"]
            assert watch.last.trouble.startswith("refused: cannot be read")
            assert ads.refused == 1

    asyncio.run(main())


def test_a_stale_nonce_takes_nothing_back() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1")) as (_, ads, stream, watch):
            await stream.say(assigned("a", endpoint("10.0.0.2")), nonce="n2", version="2")
            assert await watch.hosts() == ["10.0.0.2"]
            await stream.say(assigned("a", endpoint("10.0.0.1")), nonce="n1", version="1")
            await until(lambda: ads.ignored == 1)
            await stream.say(assigned("a", endpoint("10.0.0.3")), nonce="n3", version="3")

            assert await watch.hosts() == ["10.0.0.3"]
            assert [(await stream.next()).response_nonce for _ in range(2)] == ["n2", "n3"]

    asyncio.run(main())


@pytest.mark.parametrize("delta", [False, True])
def test_a_lost_stream_is_opened_again_with_what_is_at_hand_and_endpoints_stay(delta) -> None:
    async def main():
        async with taken(endpoint("10.0.0.1"), delta=delta) as (server, _, stream, watch):
            stream.drop()
            assert await watch.hosts() == ["10.0.0.1"]
            assert watch.last.trouble.endswith("the control plane ended the stream")

            again = await server.stream()
            request = await again.next()
            assert request.node.id == "n1"
            assert request.response_nonce == ""
            if delta:
                assert dict(request.initial_resource_versions) == {"a": "1"}
            else:
                assert (request.version_info, list(request.resource_names)) == ("1", ["a"])
            message = assigned("a", endpoint("10.0.0.2"))
            await (again.tell(message, nonce="n1") if delta else again.say(message, nonce="n1"))
            assert await watch.hosts() == ["10.0.0.2"]
            assert watch.last.trouble == ""

    asyncio.run(main())


def test_bytes_that_are_no_message_end_the_stream_and_a_new_one_begins() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1")) as (server, _, stream, watch):
            await stream.raw(b"\x0a\xff")
            assert await watch.hosts() == ["10.0.0.1"]
            assert "DiscoveryResponse cannot be read" in watch.last.trouble

            assert (await (await server.stream()).next()).version_info == "1"

    asyncio.run(main())


def test_a_control_plane_that_is_away_ends_the_first_wait_and_is_named() -> None:
    async def main():
        async with running("127.0.0.1:1") as ads, watching(ads, initial_fetch_timeout=3.0) as watch:
            assert await watch.hosts() == []
            assert watch.last.trouble.startswith("127.0.0.1:1: ")

    asyncio.run(main())


def test_a_control_plane_that_is_silent_ends_the_first_wait_and_may_speak_later() -> None:
    async def main():
        async with (
            plane() as server,
            running(server.address) as ads,
            watching(ads, initial_fetch_timeout=0.2) as watch,
        ):
            assert await watch.hosts() == []
            assert watch.last.trouble
            stream = await server.stream()
            await stream.say(assigned("a", endpoint("10.0.0.1")), nonce="n1")

            while not await watch.hosts():
                assert not watch.last.is_change
            assert watch.last.trouble == ""

    asyncio.run(main())


def test_what_the_control_plane_does_not_have_ends_the_wait_and_what_it_takes_back_stays() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1"), delta=True) as (_, ads, stream, watch):
            await stream.tell(nonce="n2", removed=["a"])
            assert await watch.hosts() == ["10.0.0.1"]
            assert watch.last.trouble == "the control plane does not have it"

            await stream.next()
            async with watching(ads, "b", initial_fetch_timeout=math.inf) as other:
                waiting = asyncio.ensure_future(other.hosts())
                await stream.next()
                await stream.tell(nonce="n3", removed=["b"])
                assert await waiting == []

    asyncio.run(main())


def test_an_assignment_that_is_not_said_again_is_stale_and_drops_its_endpoints() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1")) as (_, _ads, stream, watch):
            policy = {"endpoint_stale_after": "1s"}
            await stream.say(assigned("a", endpoint("10.0.0.1"), policy=policy), nonce="n2")
            assert await watch.hosts() == ["10.0.0.1"]
            assert await watch.hosts() == []
            assert watch.last.trouble == "not said again for 1 s (endpoint_stale_after)"

            await stream.say(assigned("a", endpoint("10.0.0.1")), nonce="n3")
            assert await watch.hosts() == ["10.0.0.1"]

    asyncio.run(main())


def test_a_time_to_live_that_is_over_drops_the_endpoints_and_is_said() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1"), delta=True) as (_, _ads, stream, watch):
            await stream.tell(assigned("a", endpoint("10.0.0.2")), nonce="n2", ttl=1.0)
            assert await watch.hosts() == ["10.0.0.2"]
            assert await watch.hosts() == []
            assert watch.last.trouble == "its time to live is over"

    asyncio.run(main())


def test_an_address_that_stands_twice_is_reported_with_its_positions() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1"), endpoint("10.0.0.2"), endpoint("10.0.0.1")) as (_, _ads, _stream, watch):
            assert watch.last.notices == ("10.0.0.1:80 stands at 0 and at 2: the first one counts",)
            assert len(watch.last.membership.members) == 2

    asyncio.run(main())


def test_an_empty_assignment_empties_the_cluster() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1")) as (_, _ads, stream, watch):
            await stream.say(assigned("a"), nonce="n2")

            assert await watch.hosts() == []
            assert len(watch.last.removed) == 1

    asyncio.run(main())


def test_one_stream_serves_all_and_who_comes_later_is_told_at_once() -> None:
    async def main():
        async with taken(endpoint("10.0.0.1")) as (server, ads, stream, _watch):
            async with watching(ads) as again:
                assert await again.hosts() == ["10.0.0.1"]
            async with watching(ads, "b", initial_fetch_timeout=0.05) as other:
                await other.next()
                assert list((await stream.next()).resource_names) == ["a", "b"]
            assert list((await stream.next()).resource_names) == ["a"]
            assert server.coming.empty()

    asyncio.run(main())


@pytest.mark.parametrize("delta", [False, True])
def test_who_wants_again_what_was_let_go_of_a_moment_ago_is_told_what_is_at_hand(delta) -> None:
    async def main():
        async with plane() as server, running(server.address, delta=delta) as ads:
            async with watching(ads) as watch:
                first = asyncio.ensure_future(watch.hosts())
                stream = await server.stream()
                await stream.next()
                say = stream.tell if delta else stream.say
                await say(assigned("a", endpoint("10.0.0.1")), nonce="n1")
                assert await first == ["10.0.0.1"]
                await stream.next()
            async with watching(ads, initial_fetch_timeout=math.inf) as again:
                assert await again.hosts() == ["10.0.0.1"]
            request = await stream.next()

        assert list(request.resource_names_unsubscribe if delta else request.resource_names) == (["a"] if delta else [])

    asyncio.run(main())


def test_settings_that_cannot_be_are_refused() -> None:
    ads: Any = None
    for name in ("", "a\n", "\udc80"):
        with pytest.raises(ConfigError, match="eds: name: must name an assignment"):
            Eds(ads, name)
    with pytest.raises(
        ConfigError, match=r"eds: initial_fetch_timeout: must be above 0 s; math\.inf waits .* \(got nan\)"
    ):
        Eds(ads, "a", initial_fetch_timeout=math.nan)


def test_a_node_that_cannot_be_said_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="ads: node: cannot be said: "):
        Ads("127.0.0.1:1", node=Node(id="n", metadata={"k": object()}), rng=Random(1))


def test_the_types_name_is_envoys() -> None:
    assert wire_ads.EDS == EDS
