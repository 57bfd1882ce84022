"""The live stream: snapshot, deltas by revision, ticks; a slow reader is resynchronised and holds nobody up."""

from __future__ import annotations

import asyncio
import json

import pytest
import websockets

from reachline.center.live import QUEUE, Live, messages
from reachline.testing.center import dead, good
from reachline.testing.wait import until

ALL_GOOD = {"payments/a": good(), "payments/b": good(), "payments/c": good()}


async def said(socket, kind, within=30):
    """The next message of a kind."""
    async with asyncio.timeout(within):
        while True:
            message = json.loads(await socket.recv())
            if message["type"] == kind:
                return message


def socket_of(running, **more):
    return websockets.connect(running.http.replace("http", "ws") + "/api/v1/ws", **more)


def test_a_socket_gets_a_snapshot_then_deltas_in_order_and_a_tick_each_second(center, sync):
    async def work():
        async with center() as running, running.agent() as agent, socket_of(running) as socket:
            snapshot = json.loads(await socket.recv())
            assert snapshot["type"] == "snapshot"
            assert [row["line"] for row in snapshot["lines"]] == ["payments/a", "payments/b", "payments/c"]
            assert all("spark" in row for row in snapshot["lines"])
            revision, found = snapshot["revision"], {}
            while found.get("payments/a", {}).get("breaker") != "open":
                await agent.reported(ALL_GOOD | {"payments/a": dead()})
                delta = await said(socket, "delta")
                assert delta["after"] == revision
                revision = delta["revision"]
                found |= {row["line"]: row for row in delta["lines"]}
                assert all(change["line"] for change in delta["changes"])
            tick = await said(socket, "tick")
            assert tick["version"] >= snapshot["version"]
            assert tick["now"] == pytest.approx(snapshot["now"], abs=20)

    sync(work())


def test_a_delta_holds_only_lines_that_something_was_said_of(center, sync):
    async def work():
        async with center() as running, running.agent() as agent, socket_of(running) as socket:
            await said(socket, "tick")
            await agent.reported({"payments/b": good()})
            delta = await said(socket, "delta")
            assert [row["line"] for row in delta["lines"]] == ["payments/b"]
            assert [row["agent"] for row in delta["agents"]] == ["one"]

    sync(work())


def test_curl_reads_the_same_messages_as_events(center, sync):
    async def work():
        async with center() as running, running.client.stream("GET", "/api/v1/stream") as answer:
            kinds = []
            async for text in answer.aiter_lines():
                if text.startswith("data: "):
                    kinds.append(json.loads(text[6:])["type"])
                if len(kinds) == 3:
                    break
            assert kinds[0] == "snapshot"
            assert set(kinds[1:]) <= {"delta", "tick"}

    sync(work())


def test_a_socket_from_another_sites_page_is_refused(center, sync):
    async def work():
        async with center() as running:
            with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
                async with socket_of(running, origin="http://evil.example"):
                    pass
            assert refused.value.response.status_code == 403
            async with socket_of(running, origin=running.http) as own:
                assert json.loads(await own.recv())["type"] == "snapshot"

    sync(work())


def test_eight_pages_are_live_at_once_and_are_told_when_the_center_stops(center, sync):
    async def work():
        async with center() as running:
            pages = [await socket_of(running) for _ in range(8)]
            for page in pages:
                await said(page, "tick")
            running.stop.set()
            for page in pages:
                with pytest.raises(websockets.exceptions.ConnectionClosed):
                    await said(page, "never")
                assert page.close_code == 1001

    sync(work())


def test_lines_that_left_the_document_are_gone_from_the_stream(center, sync, tmp_path):
    async def work():
        async with center(watch=True) as running, socket_of(running) as socket:
            await said(socket, "snapshot")
            file = tmp_path / "reachline.yaml"
            file.write_text(file.read_text().replace('b: "tcp://10.0.0.2:443", ', ""))
            delta = await until(lambda: _gone(socket), what="a line to go")
            assert delta["gone"] == ["payments/b"]

    sync(work())


async def _gone(socket):
    delta = await said(socket, "delta")
    return delta if delta["gone"] else None


def test_a_reader_that_lags_is_dropped_to_a_new_snapshot_and_others_lose_nothing():
    async def work():
        live, taken = Live(), 0

        def snapshot():
            return b"snapshot at %d" % taken

        quick, slow = messages(live, snapshot), messages(live, snapshot)
        assert await anext(quick) == await anext(slow) == b"snapshot at 0"
        for taken in range(1, QUEUE + 5):
            live.publish(b"%d" % taken)
            assert await anext(quick) == b"%d" % taken

        assert await anext(slow) == b"snapshot at %d" % (QUEUE + 4)
        live.publish(b"next")
        assert await anext(slow) == b"next"
        assert live.dropped == 1
        live.close()
        assert [each async for each in slow] == []
        assert [each async for each in quick] == [b"next"]
        assert len(live) == 0

    asyncio.run(asyncio.wait_for(work(), 30))
