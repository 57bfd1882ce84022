"""Calls through `xds:///` from a process of its own: gRPC reads its bootstrap once a process. Says on standard output who answered.

Each line of standard input is `sync COUNT` or `aio COUNT`; each line of output the counts by answer, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

import grpc
import grpc.aio

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


if __name__ == "__main__":
    main(sys.argv[1])
