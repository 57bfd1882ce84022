"""A connection that its outbound could not make, by a balancer that has one favourite: the next best one makes it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.passage.test_carried import carrying, tunnelled

from reachline.testing.serving import serving

_YES = b"\x05\x00" + b"\x05\x00\x00\x01" + bytes(6)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readexactly(1))
    await writer.drain()


async def _silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize("strategy", ["leastPing", "leastLoad"])
def test_the_second_best_is_tried_where_the_strategy_chooses_one(strategy: str) -> None:
    async def main() -> tuple[bytes, dict[str, int]]:
        async with serving(_echo) as echo, serving(_silent) as probed:

            async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readexactly(3)
                writer.write(b"\x05\x00")
                request = await reader.readexactly(10)
                if int.from_bytes(request[-2:]) == echo.port:
                    writer.write(b"\x05\x01\x00\x01" + bytes(6))
                else:
                    await reader.read()

            async with serving(proxy) as bad:
                outbounds: list[dict[str, Any]] = [
                    {"tag": "d", "protocol": "blackhole"},
                    {"tag": "p1", "protocol": "socks", "settings": {"address": "127.0.0.1", "port": bad.port}},
                    {"tag": "p2", "protocol": "freedom"},
                ]
                more: dict[str, Any] = {
                    "observatory": {"subjectSelector": ["p"], "probeURL": f"http://127.0.0.1:{probed.port}/"},
                    "routing": {
                        "balancers": [{"tag": "b", "selector": ["p"], "strategy": {"type": strategy}}],
                        "rules": [{"network": "tcp", "balancerTag": "b"}],
                    },
                    "reachline": {"balancers": {"b": {"groups": [["p1"], ["p2"]]}}},
                }
                asked = b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + echo.port.to_bytes(2) + b"x"
                async with carrying(outbounds, **more) as door, tunnelled(door.ports["in"], asked) as (reader, _):
                    return await reader.read(), door.passage.events()

    said, events = asyncio.run(main())

    assert said == _YES + b"x"
    assert events["retries"] == 1
