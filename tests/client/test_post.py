"""What becomes of outcomes on their way: each call ends in exactly one count, wherever a post is cut short."""

from __future__ import annotations

import asyncio
import random
import socket
import time

from reachline.client.answer import line_list
from reachline.client.options import CenterAddress
from reachline.client.post import Poster
from reachline.testing.door import document, line
from reachline.testing.wait import until
from reachline.upstream import Cluster
from reachline.upstream.outcome import Column

LINES = 2_500
"""Three posts of at most 1 000 rows."""


def test_a_post_cancelled_on_its_way_loses_no_call_from_the_counts() -> None:
    cluster = Cluster("payments", clock=time.monotonic, rng=random.Random(1))
    rows = [line(f"l{number}", 1) for number in range(LINES)]
    cluster.replace(line_list(document(*rows), cluster="payments"), source="center")
    while (pick := cluster.pick()) is None:
        continue
    for row in rows:
        cluster.record(pick._replace(line=row["line"]), Column.OK)

    async def cut_short(silent: socket.socket) -> Poster:
        port = silent.getsockname()[1]
        center = CenterAddress(f"http://127.0.0.1:{port}", "127.0.0.1", port, is_tls=False, prefix="")
        poster = Poster(
            {"payments": cluster}, (center,), tls=None, token="", service="", client="c", rng=random.Random(1)
        )
        posting = asyncio.create_task(poster.post())
        await until(lambda: poster.counts.posts == 1, what="the first post to be on its way")
        posting.cancel()
        await asyncio.wait([posting])
        poster.close()
        return poster

    with socket.create_server(("127.0.0.1", 0)) as silent:
        counts = asyncio.run(cut_short(silent)).counts

    assert (counts.unconfirmed, counts.dropped) == (1_000, 1_500)
