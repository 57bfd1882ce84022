"""HandlerService over a real channel: who is added is observed, who is removed is forgotten, and what cannot be had changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest
from tests.handler_requests import add_outbound, client, remove
from tests.xray_messages import xray_messages

from reachline.doors.observatory import Changes, Settings, Source, read
from reachline.errors import ConfigError
from reachline.observatory.handlers import Handlers
from reachline.observatory.handling import outbound_methods
from reachline.observatory.run import Options, Started, run
from reachline.observatory.running import Running
from reachline.testing.parts import free_port
from reachline.testing.wait import until
from reachline.wire import xray_handler as wire


class _Role(NamedTuple):
    handlers: Handlers[Settings]
    started: Started
    running: Running

    async def ask(self, method: str, request: bytes = b"") -> bytes:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.started.api}") as channel:
            call: Any = channel.unary_unary(method)
            answer: bytes = await call(request, timeout=60)
            return answer

    async def refused(self, method: str, request: bytes) -> str:
        """Xray's errors come as UNKNOWN."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(method, request)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        return caught.value.details() or ""

    async def listed(self) -> dict[str, str]:
        """Types of settings by tag."""
        answer = xray_messages()["ListOutboundsResponse"].FromString(await self.ask(wire.LIST_OUTBOUNDS[0]))
        return {each.tag: each.proxy_settings.type for each in answer.outbounds}


_DOCUMENT: dict[str, Any] = {
    "outbounds": [
        {"tag": "first", "protocol": "freedom"},
        {"tag": "s-a", "protocol": "freedom"},
        {"tag": "v", "protocol": "vless"},
        {"protocol": "blackhole"},
    ],
    "observatory": {"subjectSelector": ["s-"], "probeInterval": "1s", "enableConcurrency": True},
    "routing": {"balancers": [{"tag": "b", "selector": ["s-"], "strategy": {"type": "random"}}]},
}


def _document(*tags: str) -> list[Source]:
    """Outbounds `tags`, or those of `_DOCUMENT`; requests go where nobody listens."""
    found = json.loads(json.dumps(_DOCUMENT))
    found["observatory"]["probeURL"] = f"http://127.0.0.1:{free_port()}/"
    if tags:
        found["outbounds"] = [{"tag": tag, "protocol": "freedom"} for tag in tags]
    return [Source("xray", json.dumps(found))]


def _read(sources: Sequence[Source], changes: Changes) -> Settings:
    return read(sources, changes=changes)


@contextlib.asynccontextmanager
async def _role() -> AsyncIterator[_Role]:
    handlers = Handlers(_document(), _read, lambda found: found)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()

    def begun(started: Started, running: Running) -> None:
        handlers.apply = running.swap
        ready.set_result(_Role(handlers, started, running))

    options = Options(api="127.0.0.1:0", rng=Random(1))
    methods = outbound_methods(handlers)
    task = asyncio.create_task(run(handlers.settings, options, stop=stop, handlers=methods, ready=begun))
    await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield await ready
    finally:
        stop.set()
        await task


def _known(role: _Role) -> set[str]:
    return {each.tag for each in role.running.statuses() or ()}


@pytest.mark.parametrize("alias", [0, 1])
def test_who_is_added_is_observed_and_balanced_until_it_is_removed(alias: int) -> None:
    async def main() -> None:
        async with _role() as role:
            await role.ask(wire.ADD_OUTBOUND[alias], add_outbound("s-new", client("socks", "127.0.0.1", free_port())))

            await until(lambda: _known(role) == {"s-a", "s-new"}, what="both asked", within=60)
            role.running.override("b", "s-new")
            await role.ask(wire.REMOVE_OUTBOUND[alias], remove("s-new"))
            assert "s-new" not in role.handlers.settings.tags
            assert _known(role) <= {"s-a"}
            assert role.running.overridden("b") == ""

    asyncio.run(main())


def test_outbounds_are_listed_by_their_tags_with_what_they_speak() -> None:
    async def main() -> None:
        async with _role() as role:
            await role.ask(wire.ADD_OUTBOUND[0], add_outbound("h", client("http", "proxy.example", 3128)))

            assert await role.listed() == {
                "first": "xray.proxy.freedom.Config",
                "s-a": "xray.proxy.freedom.Config",
                "v": "xray.proxy.vless.outbound.Config",
                "h": "xray.proxy.http.ClientConfig",
            }

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (add_outbound("s-a"), "existing tag found: s-a"),
        (add_outbound("x", xray_messages()["TypedMessage"](type="xray.proxy.vmess.outbound.Config")), "speaks vmess"),
        (add_outbound("x", xray_messages()["TypedMessage"](type="nobody.knows")), "is no outbound protocol"),
        (add_outbound("x", client("socks", "10.0.0.1", 0)), "port"),
        (add_outbound("x", client("http", "10.0.0.1", 1, header=[{"key": "X"}])), "headers of its own"),
        (add_outbound("x", proxy_settings={"tag": "nobody"}), "'nobody', which is no outbound"),
    ],
)
def test_who_cannot_be_had_is_refused_and_changes_nothing(request_: bytes, words: str) -> None:
    async def main() -> None:
        async with _role() as role:
            before = role.handlers.settings

            assert words in await role.refused(wire.ADD_OUTBOUND[0], request_)

            assert role.handlers.settings is before

    asyncio.run(main())


def test_removing_is_done_where_nobody_is_and_refused_without_a_tag_in_xrays_words() -> None:
    async def main() -> None:
        async with _role() as role:
            assert await role.ask(wire.REMOVE_OUTBOUND[0], remove("nobody")) == b""
            assert "not enough information" in await role.refused(wire.REMOVE_OUTBOUND[0], b"")

    asyncio.run(main())


def test_who_others_go_through_stays() -> None:
    async def main() -> None:
        async with _role() as role:
            await role.ask(wire.ADD_OUTBOUND[0], add_outbound("x", proxy_settings={"tag": "s-a"}))

            assert "goes through 's-a'" in await role.refused(wire.REMOVE_OUTBOUND[0], remove("s-a"))

            assert "s-a" in await role.listed()

    asyncio.run(main())


def test_a_document_that_is_written_anew_keeps_who_came_over_the_api() -> None:
    async def main() -> None:
        async with _role() as role:
            await role.ask(wire.ADD_OUTBOUND[0], add_outbound("s-new"))
            await role.ask(wire.REMOVE_OUTBOUND[0], remove("first"))

            found = await role.handlers.reread(_document("first", "other"))

            assert [each.tag for each in found.outbounds] == ["", "other", "s-new"]

    asyncio.run(main())


def test_a_document_that_is_wrong_changes_nothing() -> None:
    async def main() -> None:
        async with _role() as role:
            await role.ask(wire.ADD_OUTBOUND[0], add_outbound("s-new"))
            before = role.handlers.settings

            with pytest.raises(ConfigError):
                await role.handlers.reread([Source("xray", '{"outbounds": [{"protocol": "sock"}]}')])

            assert role.handlers.settings is before

    asyncio.run(main())


def test_calls_at_once_are_one_after_the_other() -> None:
    async def main() -> None:
        async with _role() as role:
            requests = [add_outbound(f"s-{number}") for number in range(20)]

            await asyncio.gather(*(role.ask(wire.ADD_OUTBOUND[0], each) for each in requests))

            assert {f"s-{number}" for number in range(20)} <= (await role.listed()).keys()

    asyncio.run(main())
