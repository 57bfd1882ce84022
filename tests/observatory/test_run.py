"""The role as a process of its own would run it: what panels and gRPC clients are answered, and what a change does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.request
from collections.abc import AsyncIterator
from random import Random
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest

from reachline.doors.observatory import Settings, read
from reachline.errors import ConfigError
from reachline.observatory.run import Options, Started, run
from reachline.observatory.running import Running
from reachline.testing.parts import free_port
from reachline.testing.serving import serving
from reachline.testing.wait import until
from reachline.wire import observatory as wire


class _Role(NamedTuple):
    started: Started
    running: Running
    changes: asyncio.Queue[Settings]


def _settings(url: str, *, more: tuple[str, ...] = (), observes: bool = True) -> Settings:
    """`s-well` leaves straight, `s-dead` by a proxy that is not there."""
    dead = {
        "tag": "s-dead",
        "protocol": "socks",
        "settings": {"servers": [{"address": "127.0.0.1", "port": free_port()}]},
    }
    document: dict[str, Any] = {
        "outbounds": [
            {"tag": "first", "protocol": "freedom"},
            {"tag": "s-well", "protocol": "freedom"},
            dead,
            *({"tag": tag, "protocol": "freedom"} for tag in more),
        ],
        "routing": {"balancers": [{"tag": "b", "selector": ["s-"], "strategy": {"type": "leastPing"}}]},
    }
    if observes:
        document["observatory"] = {
            "subjectSelector": ["s-"],
            "probeURL": url,
            "probeInterval": "1s",
            "enableConcurrency": True,
        }
    else:
        document["routing"]["balancers"][0]["strategy"]["type"] = "random"
    return read(json.dumps(document))


@contextlib.asynccontextmanager
async def _web() -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()

    async with serving(serve) as service:
        yield f"http://127.0.0.1:{service.port}/"


@contextlib.asynccontextmanager
async def _role(settings: Settings) -> AsyncIterator[_Role]:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    queue: asyncio.Queue[Settings] = asyncio.Queue()

    async def changes() -> AsyncIterator[Settings]:
        while True:
            yield await queue.get()

    options = Options(metrics="127.0.0.1:0", api="127.0.0.1:0", rng=Random(1))
    told = lambda *found: ready.set_result(found)  # noqa: E731
    task = asyncio.create_task(run(settings, options, stop=stop, changes=changes(), ready=told))
    await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    started, running = ready.result()
    yield _Role(started, running, queue)
    stop.set()
    await task


def _get(port: int | None, path: str = "/debug/vars") -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.load(answer)


async def _page(role: _Role) -> Any:
    return await asyncio.to_thread(_get, role.started.metrics)


async def _ask(role: _Role, method: str, request: bytes = b"") -> bytes:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{role.started.api}") as channel:
        call: Any = channel.unary_unary(method)
        answer: bytes = await call(request, timeout=30)
        return answer


def _all_known(role: _Role, tags: set[str]) -> bool:
    return {each.tag for each in role.running.statuses() or ()} == tags


def test_a_panel_reads_who_is_well_and_who_is_not() -> None:
    async def main() -> None:
        async with _web() as url, _role(_settings(url)) as role:
            await until(lambda: _all_known(role, {"s-well", "s-dead"}), what="both asked", within=30)

            page = await _page(role)

            assert page["observatory"]["s-well"]["alive"] is True
            assert "alive" not in page["observatory"]["s-dead"]
            assert page["observatory"]["s-dead"]["delay"] == 99_999_999
            assert {"HeapAlloc", "Sys", "HeapObjects", "NumGC", "PauseNs"} <= page["memstats"].keys()
            assert page.keys() == {"cmdline", "memstats", "observatory", "stats"}

    asyncio.run(main())


def test_without_an_observatory_its_key_is_there_and_null() -> None:
    async def main() -> None:
        async with _role(_settings("", observes=False)) as role:
            assert (await _page(role))["observatory"] is None

    asyncio.run(main())


def test_get_outbound_status_says_what_is_known() -> None:
    async def main() -> None:
        async with _web() as url, _role(_settings(url)) as role:
            await until(lambda: _all_known(role, {"s-well", "s-dead"}), what="both asked", within=30)

            answer = await _ask(role, wire.GET_OUTBOUND_STATUS)

            assert b"s-well" in answer
            assert b"s-dead" in answer

    asyncio.run(main())


@pytest.mark.parametrize("alias", [0, 1])
def test_an_override_is_told_and_obeyed_until_it_is_cleared(alias: int) -> None:
    async def main() -> None:
        async with _web() as url, _role(_settings(url)) as role:
            await until(
                lambda: role.running.pick("b", frozenset()) == "s-well", what="the well one is picked", within=30
            )

            await _ask(role, wire.OVERRIDE_BALANCER_TARGET[alias], b"\x0a\x01b\x12\x06s-dead")

            assert role.running.pick("b", frozenset()) == "s-dead"
            assert b"s-dead" in await _ask(role, wire.GET_BALANCER_INFO[alias], b"\x0a\x01b")
            await _ask(role, wire.OVERRIDE_BALANCER_TARGET[alias], b"\x0a\x01b")
            assert role.running.pick("b", frozenset()) == "s-well"

    asyncio.run(main())


def test_a_balancer_that_is_not_there_is_refused_in_xrays_words() -> None:
    async def main() -> None:
        async with _role(_settings("", observes=False)) as role:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _ask(role, wire.GET_BALANCER_INFO[0], b"\x0a\x01x")

            assert caught.value.code() is grpc.StatusCode.UNKNOWN
            assert caught.value.details() == "app/router: cannot find tag"

    asyncio.run(main())


def test_an_override_to_an_outbound_that_is_not_there_is_refused_and_changes_nothing() -> None:
    async def main() -> None:
        async with _role(_settings("", observes=False)) as role:
            role.running.override("b", "s-well")

            with pytest.raises(grpc.aio.AioRpcError, match="there is no outbound s-none"):
                await _ask(role, wire.OVERRIDE_BALANCER_TARGET[0], b"\x0a\x01b\x12\x06s-none")

            assert role.running.overridden("b") == "s-well"

    asyncio.run(main())


def test_a_panel_that_polls_through_changes_is_always_answered() -> None:
    async def main() -> None:
        async with _web() as url, _role(_settings(url)) as role:
            for turn in range(1_000):
                if turn % 50 == 0:
                    role.changes.put_nowait(_settings(f"{url}{turn}"))
                assert set((await _page(role))["observatory"]) <= {"s-well", "s-dead"}

    asyncio.run(main())


@pytest.mark.parametrize("target", ["", "s-well"])
def test_a_changed_document_is_followed_and_an_override_stays(target: str) -> None:
    async def main() -> None:
        async with _web() as url, _role(_settings(url)) as role:
            role.running.override("b", target)

            role.changes.put_nowait(_settings(url, more=("s-new",)))

            await until(lambda: _all_known(role, {"s-well", "s-dead", "s-new"}), what="the new one asked", within=30)
            assert role.running.overridden("b") == target
            role.changes.put_nowait(_settings(url + "other", more=("s-new",)))
            await until(lambda: not _all_known(role, {"s-well", "s-dead", "s-new"}), what="begun anew", within=30)
            await until(lambda: _all_known(role, {"s-well", "s-dead", "s-new"}), what="all asked anew", within=30)
            assert role.running.overridden("b") == target

    asyncio.run(main())


def test_an_address_that_is_taken_is_named() -> None:
    async def main() -> None:
        async with serving(lambda *_: None) as taken:  # type: ignore[arg-type,return-value]  # nobody comes
            options = Options(metrics=f"127.0.0.1:{taken.port}")
            with pytest.raises(ConfigError, match=r"metrics\.listen.*in use"):
                await run(_settings("", observes=False), options, stop=asyncio.Event())

    asyncio.run(main())


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"api\.listen.*host:port"):
        asyncio.run(run(_settings("", observes=False), Options(api="unix:/x"), stop=asyncio.Event()))
