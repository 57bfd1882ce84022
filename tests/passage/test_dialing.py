"""What a name means to whoever waits for a connection."""

from __future__ import annotations

import asyncio

from reachline.net.resolve import Resolver
from reachline.passage.dialing import resolve


def test_that_a_name_was_not_found_once_is_not_told_for_ever() -> None:
    answers: list[tuple[str, ...]] = [(), ("127.0.0.1",)]

    async def main() -> list[tuple[str, ...]]:
        resolver = Resolver(keep_failure=0.0, lookup=lambda _, __: answers.pop(0))
        try:
            return [(await resolve(resolver, "a.example", 0)).addresses for _ in range(2)]
        finally:
            resolver.close()

    assert asyncio.run(main()) == [(), ("127.0.0.1",)]
