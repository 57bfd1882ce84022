"""Connections that are over for us: cut off once nothing more is taken, and not before."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest
from tests.upstream import virtual

from reachline.proxy.ends import Leaving


class Taken:
    """A transport of which the other end takes a little before each look, `looks` times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.cut_at: float | None = None
        self._sock = socket.socket()

    def get_extra_info(self, _: str) -> socket.socket:
        return self._sock

    def get_write_buffer_size(self) -> int:
        self.looks -= 1
        return max(0, self.looks) + 1

    def abort(self) -> None:
        self.cut_at = asyncio.get_running_loop().time()
        self.close()

    def close(self) -> None:
        self._sock.close()


@pytest.mark.parametrize(("looks", "cut_at"), [(1, 2.0), (2, 4.0), (10, 20.0)])
def test_an_end_is_cut_off_once_nothing_was_taken_for_so_long(looks: int, cut_at: float) -> None:
    async def main() -> float | None:
        taken = Taken(looks)
        Leaving(asyncio.get_running_loop(), 2.0).watch(cast(Any, taken))
        await asyncio.sleep(60.0)
        return taken.cut_at

    assert virtual.run(main()) == cut_at


@pytest.mark.parametrize("after", [0.0, 2.0])
def test_an_end_that_is_closed_or_not_watched_is_not_cut_off(after: float) -> None:
    async def main() -> float | None:
        taken = Taken(1)
        leaving = Leaving(asyncio.get_running_loop(), after)
        leaving.watch(cast(Any, taken))
        if after:
            leaving.forget(cast(Any, taken))
        await asyncio.sleep(60.0)
        taken.close()
        return taken.cut_at

    assert virtual.run(main()) is None
