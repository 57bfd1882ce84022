"""Clusters whose endpoints a control plane assigns, kept by a client: one stream for all, and what bad answers come to."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("envoy.service.discovery.v3.discovery_pb2", reason="xds-protos is not installed")

from tests.discovery.plane import assigned, endpoint, plane

import reachline
from reachline.client import Client
from reachline.errors import Shed
from reachline.net import rpc
from reachline.testing.wait import until


def seen(client: Client, name: str) -> set[str]:
    return {pick.target for _ in range(50) if (pick := client.cluster(name).pick())}


def eds(address: str, delta: bool = False) -> dict[str, object]:
    return {"type": "eds", "control_plane": {"address": address, "delta": delta}, "policy": "round_robin"}


def test_one_stream_serves_all_clusters_and_what_is_bad_changes_nothing() -> None:
    async def main() -> None:
        async with plane() as control:
            clusters = {name: eds(control.address) for name in ("a", "b")}
            async with await reachline.connect(clusters=clusters, wait=0.0) as client:
                client.start()
                stream = await control.stream()
                while len((await stream.next()).resource_names) < 2:
                    pass
                await stream.say(
                    assigned("a", endpoint("10.0.0.1"), endpoint("10.0.0.2")),
                    assigned("b", endpoint("10.0.0.3")),
                    nonce="1",
                )
                assert await client.wait_async(10)
                assert seen(client, "a") == {"10.0.0.1:80", "10.0.0.2:80"}
                assert seen(client, "b") == {"10.0.0.3:80"}
                assert (await stream.next()).response_nonce == "1"

                # One bad resource in a good response: it is refused by name, the other counts.
                await stream.say(assigned("a", endpoint("nowhere")), assigned("b", endpoint("10.0.0.4")), nonce="2")
                answer = await stream.next()
                assert answer.HasField("error_detail")
                assert "a" in answer.error_detail.message
                await until(lambda: seen(client, "b") == {"10.0.0.4:80"})
                assert seen(client, "a") == {"10.0.0.1:80", "10.0.0.2:80"}
                assert "refused" in client.stats().clusters["a"].trouble

                # A stale nonce says nothing, garbage ends the stream, and both leave what is there.
                await stream.say(assigned("b", endpoint("10.0.0.9")), nonce="2")
                await stream.raw(b"\xff\xff\xff")
                stream = await control.stream()
                assert seen(client, "b") == {"10.0.0.4:80"}

    asyncio.run(main())


def test_a_control_plane_drops_calls_until_it_says_otherwise() -> None:
    async def main() -> None:
        async with plane() as control:
            clusters, wait = {"a": eds(control.address, delta=True)}, 0.0
            async with await reachline.connect(clusters=clusters, wait=wait) as client:
                client.start()
                stream = await control.stream()
                await stream.next()
                overload = {"category": "overload", "drop_percentage": {"numerator": 100}}
                await stream.tell(assigned("a", endpoint("10.0.0.1"), policy={"drop_overloads": [overload]}), nonce="1")
                assert await client.wait_async(10)

                with pytest.raises(Shed):
                    client.cluster("a").pick()

                await stream.tell(assigned("a", endpoint("10.0.0.1")), nonce="2", version="2")
                await until(lambda: served(client))
                assert client.stats().clusters["a"].calls.shed

    def served(client: Client) -> bool:
        try:
            return seen(client, "a") == {"10.0.0.1:80"}
        except Shed:
            return False

    asyncio.run(main())


def test_a_forked_child_leaves_grpc_to_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shares with its parent what wakes gRPC's loop: used by both, neither hears all."""
    monkeypatch.setattr(rpc, "_USERS", {0})

    with pytest.raises(ConnectionError, match="in use before the fork; connect after it"):
        asyncio.run(rpc.attach("127.0.0.1:1", timeout=1.0))
