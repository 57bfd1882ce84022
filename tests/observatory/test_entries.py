"""Bytes of statuses are made once, in turns, and joined they are what the whole would have been."""

from __future__ import annotations

import asyncio
import json

from reachline.core.observing import Ping, Status
from reachline.doors.observatory import debug_vars
from reachline.observatory.answers import variables
from reachline.observatory.entries import Entries
from reachline.wire.observatory import outbound_statuses, statuses_of

_PING = Ping(10, 1, 5, 40_000_000, 60_000_000, 30_000_000)


def _status(number: int, delay: int = 7) -> Status:
    return Status(f"s-{number}", number % 2 == 0, delay, 'said "no" — да', 1_790_000_000, 1_790_000_001, _PING)


def test_joined_they_are_what_the_whole_would_be_and_what_is_gone_is_not_told() -> None:
    async def main() -> None:
        told: tuple[Status, ...] = ()
        entries = Entries(lambda: told)
        for told in ((_status(1), _status(2)), (_status(2), _status(3, delay=9)), (), (_status(3),)):
            found = await entries.current()

            assert found is not None
            assert statuses_of(each.message for each in found) == outbound_statuses(told)
            assert json.loads(variables(found, {}))["observatory"] == debug_vars(told)

    asyncio.run(main())


def test_what_did_not_change_is_not_made_again() -> None:
    async def main() -> None:
        told = tuple(_status(number) for number in range(3))
        entries = Entries(lambda: told)
        before = await entries.current()

        told = (told[0], _status(1, delay=8), told[2])

        after = await entries.current()
        assert before is not None
        assert after is not None
        assert [a is b for a, b in zip(before, after, strict=True)] == [True, False, True]

    asyncio.run(main())


def test_a_reader_of_many_new_ones_lets_others_have_their_turns() -> None:
    async def main() -> None:
        told = tuple(_status(number) for number in range(2_000))
        reading = asyncio.create_task(Entries(lambda: told).current())
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1

        assert len(reading.result() or ()) == 2_000
        assert turns > 10

    asyncio.run(main())


def test_followed_they_are_there_before_somebody_reads() -> None:
    async def main() -> None:
        told = tuple(_status(number) for number in range(1_000))
        entries = Entries(lambda: told)
        entries.follow()
        for _ in range(20):
            await asyncio.sleep(0)
        entries.stop()
        reading = asyncio.create_task(entries.current())

        await asyncio.sleep(0)

        assert reading.done(), "in its first turn"

    asyncio.run(main())


def test_where_nothing_observes_the_key_is_null() -> None:
    async def main() -> None:
        found = await Entries(lambda: None).current()

        assert found is None
        assert json.loads(variables(found, {"inbound": {}}))["observatory"] is None

    asyncio.run(main())
