"""Assignments by ADS: one control plane for an Envoy and for us, which say the same of all that it says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest
from tests.differential.peers import serving
from tests.differential.real import Envoy, bootstrap, running
from tests.differential.test_whole import W, agree, said
from tests.discovery.plane import EDS, Plane, Stream, plane

from reachline.client.keeping import Keeping
from reachline.testing.wait import until
from reachline.upstream.kept import KeptCluster
from reachline.upstream.reading import read

pytestmark = pytest.mark.real

H: Final = "HEALTHY"
STEPS: Final[tuple[tuple[tuple[tuple[int, Mapping[int, tuple[int, str]]], ...], dict[int, tuple[int, int, str]] | None], ...]] = (
    (((0, {1: W, 2: W}),), {1: (1, 0, H), 2: (1, 0, H)}),
    (((0, {1: W, 2: W, 3: (7, "UNKNOWN")}),), {1: (1, 0, H), 2: (1, 0, H), 3: (7, 0, H)}),
    (((0, {1: (5, "DEGRADED"), 3: (1, "DRAINING")}),), {1: (5, 0, "DEGRADED"), 3: (1, 0, "DRAINING")}),
    (((0, {1: (0, H)}),), None),
    (((0, {3: W}), (1, {1: W, 4: W})), {3: (1, 0, H), 1: (1, 1, H), 4: (1, 1, H)}),
    ((), {}),
    (((0, {5: W}),), {5: (1, 0, H)}),
)  # fmt: skip
"""Assignments one after the other, and the endpoints of each; None: it is refused, and the ones before stay."""


class Two(NamedTuple):
    """Both clients of the plane, with the stream that each opened."""

    envoy: Envoy
    cluster: KeptCluster
    streams: dict[str, Stream]

    async def tell(self, number: int, document: Mapping[str, Any], *, is_refused: bool = False) -> None:
        """Say an assignment to both, and wait until each has taken or refused it."""
        for stream in self.streams.values():
            await stream.say(_message(document), nonce=f"n{number}", version=f"v{number}")
        for name, stream in self.streams.items():
            answer = await _answer(stream, f"n{number}")
            assert bool(answer.error_detail.message) is is_refused, (name, answer)
            assert (answer.version_info == f"v{number}") is not is_refused, (name, answer)


def _message(document: Mapping[str, Any]) -> Any:
    from envoy.config.endpoint.v3 import endpoint_pb2
    from google.protobuf import json_format

    fields = {key: value for key, value in document.items() if key != "@type"}
    return json_format.ParseDict(fields, endpoint_pb2.ClusterLoadAssignment())


async def _answer(stream: Stream, nonce: str) -> Any:
    """What a client says to a response; other requests that come before are no answer to it."""
    while True:
        request = await stream.next()
        if request.type_url == EDS and request.response_nonce == nonce:
            return request


def _documents(port: int, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The cluster as Envoy has it, and that of the control plane."""
    source = {"ads": {}, "resource_api_version": "V3"}
    where = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
    cluster = {"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": source}, **more}
    assignment = {"cluster_name": "plane", "endpoints": [{"lb_endpoints": [where]}]}
    return cluster, {"name": "plane", "load_assignment": assignment, "http2_protocol_options": {}}


@asynccontextmanager
async def two(binary: Path, directory: Path, first: Mapping[str, Any], **more: Any) -> AsyncIterator[Two]:
    """An Envoy and ours on one control plane, once both have the first assignment."""
    async with plane() as made:
        cluster, control = _documents(made.port, **more)
        services = [{"envoy_grpc": {"cluster_name": "plane"}}]
        ads = {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": services}
        document = bootstrap(
            [cluster, control], directory, node={"id": "envoy", "cluster": "n"}, dynamic_resources={"ads_config": ads}
        )
        with ExitStack() as stack:
            starting = asyncio.create_task(asyncio.to_thread(stack.enter_context, running(binary, document, directory)))
            async with _ours(cluster, made.address) as kept:
                streams = await _streams(made)
                for stream in streams.values():
                    await stream.say(_message(first), nonce="n0", version="v0")
                    await _answer(stream, "n0")
                yield Two(await starting, kept, streams)


async def _streams(made: Plane) -> dict[str, Stream]:
    """Both streams by who opened them, each with its wish for the cluster heard."""
    found: dict[str, Stream] = {}
    while len(found) < 2:
        stream = await made.stream()
        request = await stream.next()
        while "c" not in request.resource_names:
            request = await stream.next()
        found[request.node.id or "envoy"] = stream
    return found


@asynccontextmanager
async def _ours(document: Mapping[str, Any], address: str) -> AsyncIterator[KeptCluster]:
    loop = asyncio.get_running_loop()
    fields = {key: value for key, value in document.items() if key != "name"}
    settings = read({"c": {**fields, "control_plane": {"address": address, "node_id": "ours"}}}, place="test")["c"]

    def stir() -> None:
        loop.call_soon(keeping.stir)

    made = KeptCluster(settings, clock=loop.time, wall=lambda: 0.0, rng=Random(1), stir=stir)
    keeping = Keeping({"c": made}, rng=Random(1), settled=lambda _: None)
    made.wake()
    tasks = [asyncio.create_task(job) for job in keeping.jobs()]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def expected(found: Mapping[int, tuple[int, int, str]]) -> dict[str, tuple[int, int, str]]:
    return {f"127.0.0.1:{port}": member for port, member in found.items()}


def test_one_stream_after_another_gives_the_same_endpoints_and_the_same_refusals(
    envoy_binary: Path, tmp_path: Path
) -> None:
    async def main() -> dict[str, int]:
        async with two(envoy_binary, tmp_path, said(*STEPS[0][0])) as both:
            members = expected(STEPS[0][1] or {})
            await agree(both.envoy, both.cluster, members)
            for number, (groups, found) in enumerate(STEPS[1:], 1):
                await both.tell(number, said(*groups), is_refused=found is None)
                members = members if found is None else expected(found)
                await agree(both.envoy, both.cluster, members)
            return both.envoy.counters("c")

    counters = asyncio.run(main())

    assert counters["update_success"] >= len(STEPS) - 1
    assert counters["update_rejected"] == 1


WINDOW: Final = 2.0
CALLS: Final = 120


def test_an_endpoint_that_joins_starts_slowly(envoy_binary: Path, tmp_path: Path) -> None:
    slow = {"slow_start_window": f"{WINDOW}s", "min_weight_percent": {"value": 10}}
    more = {"round_robin_lb_config": {"slow_start_config": slow}, "common_lb_config": {"update_merge_window": "0s"}}

    async def main(ports: list[int]) -> list[tuple[float, float, float]]:
        """(when, by the window; the third endpoint's share of Envoy's calls, and of ours)."""
        async with two(envoy_binary, tmp_path, said((0, dict.fromkeys(ports[:2], W))), **more) as both:
            loop = asyncio.get_running_loop()
            grown = loop.time() + WINDOW
            await until(lambda: loop.time() > grown, what="the first two are past their window")
            await both.tell(1, said((0, dict.fromkeys(ports, W))))
            await until(lambda: both.cluster.stats().lines == 3 and len(both.envoy.hosts()["c"]) == 3)
            joined, seen = loop.time(), []
            for moment in (0.0, 0.5, 1.1):
                await until(lambda moment=moment: loop.time() >= joined + moment * WINDOW)  # type: ignore[misc]
                theirs = await asyncio.to_thread(_calls, both.envoy, ports[2])
                own = _picks(both.cluster, ports[2])
                seen.append(((loop.time() - joined) / WINDOW, theirs, own))
            return seen

    with serving() as peers:
        seen = asyncio.run(main([peers.add().port for _ in range(3)]))

    for when, theirs, own in seen:
        weight = min(1.0, max(0.1, when))
        share = weight / (2 + weight)
        # Calls take a part of the window themselves, in which the weight grows, and a turn more or less is a hundredth.
        assert share / 3 - 0.02 <= theirs <= share * 1.3 + 0.03, seen
        assert share / 3 - 0.02 <= own <= share * 1.3 + 0.03, seen
    (_, first, own_first), *_, (_, last, own_last) = seen
    assert first < last / 2
    assert own_first < own_last / 2
    assert max(abs(last - 1 / 3), abs(own_last - 1 / 3)) < 0.03


def _calls(envoy: Envoy, port: int) -> float:
    return Counter(envoy.call("c")[1] for _ in range(CALLS))[port] / CALLS


def _picks(cluster: KeptCluster, port: int) -> float:
    return Counter(pick.address and pick.address[1] for _ in range(CALLS) if (pick := cluster.pick()))[port] / CALLS
