"""A running core is driven: what it is told when, by a stub that keeps overrides as Xray does, and what it has in the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.xray_messages import xray_messages

from reachline.observatory.steering import Seat, Steering, steered
from reachline.testing.parts import free_port
from reachline.testing.wait import until
from reachline.wire.observatory import Info

_OURS = Seat("", "s-a", is_driven=True)


@pytest.mark.parametrize(
    ("seat", "found", "targets", "spreads", "wanted"),
    [
        (Seat(), Info("", ("s-a",)), ("s-b", "s-a"), False, "s-b"),
        (Seat(), Info("s-b", ("s-a",)), ("s-b", "s-a"), False, None),
        (_OURS, Info("s-a", ()), ("s-b", "s-a"), False, None),
        (_OURS, Info("s-a", ()), ("s-b",), False, "s-b"),
        (_OURS, Info("s-a", ()), (), False, None),
        (_OURS, Info("", ()), ("s-b", "s-a"), False, "s-a"),
        (_OURS, Info("s-z", ()), ("s-b",), False, None),
        (Seat(), Info("", ("s-a", "s-b")), ("s-a", "s-b"), True, None),
        (Seat(), Info("", ("s-a", "s-b")), ("s-b",), True, "s-b"),
        (_OURS, Info("s-a", ("s-a", "s-b")), ("s-a", "s-b"), True, ""),
        (Seat(), Info("s-z", ("s-a",)), ("s-a",), False, "s-a"),
    ],
    ids=[
        "the best is set",
        "what is right already is not set",
        "who is good stays though another is better",
        "who is not good is replaced",
        "where nobody is good it stays as it is",
        "a core that restarted is told again",
        "somebody else's override is left",
        "a core that spreads among the good is let",
        "a core that spreads among others too is told",
        "and let again once all are good",
        "what was there at the start is replaced, for it comes back",
    ],
)
def test_what_is_set(seat: Seat, found: Info, targets: tuple[str, ...], spreads: bool, wanted: str | None) -> None:
    after, told = steered(seat, found, targets, spreads=spreads)

    assert told == wanted
    assert after.before == (found.override if seat.before is None else seat.before)


class _Core:
    """Overrides by balancer, lost at a restart, as Xray's are; what was called last."""

    def __init__(self) -> None:
        self.port = free_port()
        self.overrides = {"b": ""}
        self.spread = ("s-a", "s-b", "s-c")
        self._messages = xray_messages()
        self._server: Any = None

    async def start(self) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                method,
                request_deserializer=self._messages[f"{name}Request"].FromString,
                response_serializer=bytes,
            )
            for name, method in (("GetBalancerInfo", self._info), ("OverrideBalancerTarget", self._override))
        }
        service = "xray.app.router.command.RoutingService"
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def end(self) -> None:
        await self._server.stop(0)
        self.overrides = dict.fromkeys(self.overrides, "")

    async def _info(self, request: Any, context: Any) -> Any:
        if request.tag not in self.overrides:
            await context.abort(grpc.StatusCode.UNKNOWN, "app/router: cannot find tag")
        found = self._messages["GetBalancerInfoResponse"]()
        found.balancer.override.target = self.overrides[request.tag]
        found.balancer.principle_target.tag.extend(self.spread)
        return found.SerializeToString()

    async def _override(self, request: Any, _: Any) -> bytes:
        self.overrides[request.balancerTag] = request.target
        return b""


@contextlib.asynccontextmanager
async def _core() -> AsyncIterator[_Core]:
    core = _Core()
    await core.start()
    try:
        yield core
    finally:
        await core.end()


@contextlib.asynccontextmanager
async def _driven(core: _Core, targets: dict[str, tuple[str, ...]]) -> AsyncIterator[None]:
    balancers = dict.fromkeys(targets, False)
    steering = Steering(f"127.0.0.1:{core.port}", lambda: balancers, targets.__getitem__)
    task = asyncio.create_task(steering.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def _has(core: _Core, target: str, what: str) -> None:
    await until(lambda: core.overrides["b"] == target, within=60, what=what)


@pytest.mark.parametrize("is_set", [True, False])
def test_what_was_set_without_an_answer_is_no_override_of_somebody_elses(is_set: bool) -> None:
    seat = Seat(before="", ours="s-a", is_driven=True, asked="s-b")
    found = Info(override="s-b" if is_set else "s-a", targets=())

    after, wanted = steered(seat, found, ("s-c",), spreads=False)

    assert wanted == "s-c"
    assert (after.ours, after.is_driven, after.asked) == ("s-c", True, "")


def test_a_balancer_that_the_document_lost_has_its_own_override_again() -> None:
    async def main() -> None:
        targets: dict[str, tuple[str, ...]] = {"b": ("s-a",)}
        balancers = {"b": False}
        async with _core() as core:
            core.overrides["b"] = "s-c"
            steering = Steering(f"127.0.0.1:{core.port}", lambda: balancers, targets.__getitem__)
            task = asyncio.create_task(steering.run())
            await _has(core, "s-a", "the best is set")
            balancers.clear()
            await _has(core, "s-c", "its own comes back")
            task.cancel()
            await asyncio.wait((task,))

    asyncio.run(main())


@pytest.mark.parametrize("before", ["", "s-c"])
def test_a_core_follows_what_is_judged_and_has_its_own_again_in_the_end(before: str) -> None:
    async def main() -> None:
        targets: dict[str, tuple[str, ...]] = {"b": ("s-a", "s-b")}
        async with _core() as core:
            core.overrides["b"] = before
            async with _driven(core, targets):
                await _has(core, "s-a", "the best is set")

                targets["b"] = ("s-b",)

                await _has(core, "s-b", "the other one, for the first is gone")

            assert core.overrides["b"] == before

    asyncio.run(main())


def test_a_core_that_restarted_is_driven_again() -> None:
    async def main() -> None:
        async with _core() as core, _driven(core, {"b": ("s-a",)}):
            await _has(core, "s-a", "set")

            await core.end()
            await core.start()

            await _has(core, "s-a", "set again")

    asyncio.run(main())


def test_a_core_that_comes_later_is_driven_then() -> None:
    async def main() -> None:
        core = _Core()
        async with _driven(core, {"b": ("s-a",)}):
            await core.start()
            await _has(core, "s-a", "set")
        assert not core.overrides["b"]
        await core.end()

    asyncio.run(main())


def test_somebody_elses_override_stays_to_the_end() -> None:
    async def main() -> None:
        targets: dict[str, tuple[str, ...]] = {"b": ("s-a", "s-b")}
        async with _core() as core:
            async with _driven(core, targets):
                await _has(core, "s-a", "set")
                core.overrides["b"] = "s-z"

                targets["b"] = ("s-b",)

            assert core.overrides["b"] == "s-z"

    asyncio.run(main())


def test_a_balancer_that_the_core_does_not_have_keeps_none_of_the_others_from_being_driven() -> None:
    async def main() -> None:
        async with _core() as core, _driven(core, {"other": ("s-a",), "b": ("s-a",)}):
            await _has(core, "s-a", "set")

    asyncio.run(main())
