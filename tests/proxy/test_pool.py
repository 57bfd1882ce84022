"""Kept connections: one of which the end was heard is nobody's, and what nobody uses is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter

from reachline.doors.envoy.chain import Upstream
from reachline.doors.envoy.values import Thresholds
from reachline.model import LineId
from reachline.proxy.carried import EndpointStream
from reachline.proxy.channel import EndpointChannel
from reachline.proxy.flags import Lost
from reachline.proxy.pool import Pool
from reachline.testing.serving import Service
from reachline.upstream.listing import Pick


class Waiting:
    """Who waits for a connection."""

    def __init__(self) -> None:
        self.came: asyncio.Future[EndpointChannel | EndpointStream] = asyncio.get_running_loop().create_future()

    def connected(self, channel: EndpointChannel | EndpointStream) -> None:
        self.came.set_result(channel)

    def unconnected(self, lost: Lost) -> None:
        self.came.set_exception(ConnectionError(lost.words))


async def leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_a_connection_of_which_the_end_was_heard_is_not_taken_in_the_same_turn() -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            service = await Service(leave).listen()
            port = service.port
            pick = Pick(LineId("a"), ("127.0.0.1", port), "", "direct", f"127.0.0.1:{port}")
            pool = Pool(Upstream(), Thresholds(), Counter(), connect_timeout=5.0, secure=None)
            for way in (EndpointChannel.eof_received, EndpointChannel.abort, EndpointChannel.close):
                waiting = Waiting()
                assert pool.wait(pick, waiting)
                channel = await waiting.came
                assert isinstance(channel, EndpointChannel)
                channel.release()
                way(channel)

                assert pool.take(pick) is None
                channel.abort()
            while pool.connections:
                await asyncio.sleep(0)
            assert pool._places
            pool.tend({pick.target})
            assert not pool._places
            await service.close()

    asyncio.run(main())
