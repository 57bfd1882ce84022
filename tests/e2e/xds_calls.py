"""Calls through `xds:///` from a process of its own: gRPC reads its bootstrap once a process. And gRPC servers that say their name.

As a program: each line of standard input is `sync COUNT` or `aio COUNT`; each line of output the counts by answer, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from reachline.cli.bootstraps import Way
from reachline.cli.bootstraps import grpc as grpc_bootstrap

CALL = "/test.Names/Name"
LONGEST = 20.0


def main(target: str) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def opened() -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(target)

    sync, aio = grpc.insecure_channel(target).unary_unary(CALL), loop.run_until_complete(opened()).unary_unary(CALL)

    async def called(count: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for _ in range(count):
            try:
                found[(await aio(b"", timeout=LONGEST, wait_for_ready=True)).decode()] += 1
            except grpc.aio.AioRpcError as error:
                found[f"{error.code().name}: {error.details()}"] += 1
        return found

    def all_called(count: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for _ in range(count):
            try:
                found[sync(b"", timeout=LONGEST, wait_for_ready=True).decode()] += 1
            except grpc.RpcError as error:
                found[str(error)] += 1
        return found

    for line in sys.stdin:
        kind, count = line.split()
        found = all_called(int(count)) if kind == "sync" else loop.run_until_complete(called(int(count)))
        print(json.dumps(found), flush=True)


class Backend:
    """A gRPC server that says its name, and can go and come back at its port."""

    def __init__(self, name: str) -> None:
        self.name, self.port = name, 0
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        async def call(_: bytes, __: Any) -> bytes:
            return self.name.encode()

        _, service, method = CALL.split("/")
        server = self._server = grpc.aio.server()
        handlers = {method: grpc.unary_unary_rpc_method_handler(call)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)


@asynccontextmanager
async def backend(name: str) -> AsyncIterator[Backend]:
    """A running one."""
    found = Backend(name)
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


class Grpc:
    """A process that calls `xds:///shop`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def calls(self, kind: str, count: int) -> Counter[str]:
        return await asyncio.to_thread(self._calls, kind, count)

    def _calls(self, kind: str, count: int) -> Counter[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {count}\n")
        self._process.stdin.flush()
        return Counter(json.loads(self._process.stdout.readline()))


@contextmanager
def grpc_process(directory: Path, center: str | Way) -> Iterator[Grpc]:
    """A process that calls `xds:///shop` by this center, or as its way says."""
    way = Way(node="grpc-1", center=center) if isinstance(center, str) else center
    bootstrap = directory / "grpc.json"
    bootstrap.write_text(json.dumps(grpc_bootstrap(way)))
    command = [sys.executable, "-m", "tests.e2e.xds_calls", "xds:///shop"]
    environ = {**os.environ, "GRPC_XDS_BOOTSTRAP": str(bootstrap)}
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd=root
    ) as process:
        try:
            yield Grpc(process)
        finally:
            process.kill()


if __name__ == "__main__":
    main(sys.argv[1])
