"""A real Xray, where XRAY_BIN names one: it is steered, has its own again in the end, and its own commands are answered here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.observatory.test_process import _running

from reachline.net.calling import Call, calling
from reachline.observatory.steering import Steering
from reachline.testing.parts import free_port
from reachline.testing.wait import eventually, until
from reachline.wire.observatory import GET_BALANCER_INFO, ask_info, read_info

_XRAY: Final = os.environ.get("XRAY_BIN", "")
pytestmark = [pytest.mark.real, pytest.mark.skipif(not _XRAY, reason="XRAY_BIN names no Xray")]

_OUTBOUNDS: Final = [{"tag": tag, "protocol": "freedom"} for tag in ("direct", "s-a", "s-b")]
_BALANCERS: Final = [{"tag": "b", "selector": ["s-"], "strategy": {"type": "random"}}]


@contextlib.asynccontextmanager
async def _core(directory: Path) -> AsyncIterator[int]:
    """The port of its `api`."""
    port, path = free_port(), directory / "core.json"
    document: dict[str, Any] = {
        "outbounds": _OUTBOUNDS,
        "routing": {"balancers": _BALANCERS, "rules": [{"network": "tcp", "balancerTag": "b"}]},
        "api": {"tag": "api", "listen": f"127.0.0.1:{port}", "services": ["RoutingService"]},
    }
    path.write_text(json.dumps(document))
    with subprocess.Popen([_XRAY, "run", "-c", str(path)], stdout=subprocess.DEVNULL) as process:
        try:
            yield port
        finally:
            process.kill()


async def _override(call: Call) -> str | None:
    """Whom the core's override names; None: it does not answer."""
    called = await call(GET_BALANCER_INFO[0], ask_info("b"))
    return None if called.answer is None else read_info(called.answer).override


def test_a_real_core_is_steered_and_has_its_own_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with _core(tmp_path) as port, calling(f"127.0.0.1:{port}", timeout=10) as call:

            async def has(target: str) -> bool | None:
                return await _override(call) == target or None

            await until(lambda: has(""), within=60, what="the core to answer")
            targets = {"b": ("s-b",)}
            task = asyncio.create_task(Steering(f"127.0.0.1:{port}", lambda: {"b": True}, targets.__getitem__).run())
            await until(lambda: has("s-b"), within=60, what="the core to be told")
            task.cancel()
            await asyncio.wait((task,))
            assert await has("")

    asyncio.run(main())


def _xray(*command: str) -> str:
    done = subprocess.run([_XRAY, "api", *command], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout + done.stderr


def test_its_own_commands_add_list_and_remove_outbounds_here(tmp_path: Path) -> None:
    more = tmp_path / "more.json"
    settings = {"address": "127.0.0.1", "port": free_port()}
    more.write_text(json.dumps({"outbounds": [{"tag": "s-new", "protocol": "socks", "settings": settings}]}))
    document = {"outbounds": _OUTBOUNDS, "routing": {"balancers": _BALANCERS}}
    with _running(tmp_path / "xray.json", "observatory", document):
        found = json.loads((tmp_path / "xray.json").read_text())
        server = f"--server={found['api']['listen']}"

        _xray("ado", server, str(more))

        eventually(lambda: "s-new" in _xray("lso", server) or None, within=60, what="the new one listed")
        _xray("rmo", server, "s-new")
        assert "s-new" not in _xray("lso", server)
