"""What data planes are told follows the document while the center runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from envoy.config.cluster.v3 import cluster_pb2

from reachline.center.xds.door import SOTW
from reachline.net import rpc
from reachline.testing.center import running_center
from reachline.wire.ads import CDS, LDS, Request, Response
from reachline.wire.xds import Node, decode, encode

LINES = "clusters: {{shop: {{lines: ['http://127.0.0.1:1']{listen}}}}}\njudge: {{tick: 500ms, heartbeat: 500ms}}"
LONGEST = 20.0


def test_an_envoy_learns_of_a_listener_that_the_document_has_from_now_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_center(tmp_path, LINES.format(listen=""), watch=True) as center:
            attached = await rpc.attach(center.grpc[0], timeout=LONGEST, method=SOTW)
            frames, node = attached.frames(), Node(id="e", user_agent="envoy")
            await attached.send(encode(Request(LDS, (), is_first=True), node), LONGEST)
            first = await answer(frames)
            assert first.parcels == ()

            file = tmp_path / "reachline.yaml"
            file.write_text(file.read_text().replace("1']", "1'], listen: '127.0.0.1:9000'"))
            await attached.send(encode(Request(LDS, (), first.version, first.nonce), node), LONGEST)

            assert len((await answer(frames)).parcels) == 1
            await attached.close()

    asyncio.run(run())


def test_an_envoy_that_follows_a_renamed_cluster_is_never_told_of_none(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_center(tmp_path, LINES.format(listen=", listen: '127.0.0.1:9000'"), watch=True) as center:
            attached = await rpc.attach(center.grpc[0], timeout=LONGEST, method=SOTW)
            frames, node = attached.frames(), Node(id="e", user_agent="envoy")
            await attached.send(encode(Request(CDS, (), is_first=True), node), LONGEST)
            last = await answer(frames)
            assert clusters(last) == ["shop"]

            file = tmp_path / "reachline.yaml"
            file.write_text(file.read_text().replace("shop", "store"))
            await attached.send(encode(Request(CDS, (), last.version, last.nonce), node), LONGEST)

            assert clusters(await answer(frames)) == ["store"]
            await attached.close()

    asyncio.run(run())


async def answer(frames: AsyncIterator[bytes]) -> Response:
    async with asyncio.timeout(LONGEST):
        return decode(await anext(frames))


def clusters(response: Response) -> list[str]:
    return [cluster_pb2.Cluster.FromString(each.body).name for each in response.parcels]
