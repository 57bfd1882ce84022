"""What httpx and httpx2 share: the end of a body is the end of its call."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from tests.integrations.far import World, world

from reachline.integrations.exchange import Exchange, Route
from reachline.integrations.transport import awaited_body_of, body_of


class Stream:
    """A body whose connection is gone when it is closed."""

    def close(self) -> None:
        raise OSError("gone")

    async def aclose(self) -> None:
        raise OSError("gone")


@pytest.fixture
def lines() -> Iterator[World]:
    with world("a") as made:
        yield made


def answered(lines: World) -> Exchange:
    exchange = Route(lines).exchange("payments", "GET", None, is_replayable=True)
    assert exchange is not None
    exchange.begin()
    assert exchange.answered(200) is None
    return exchange


def test_a_body_that_cannot_be_closed_ends_its_call_and_gives_its_pool_back(lines: World) -> None:
    given: list[str] = []
    body = body_of(httpx2)(Stream(), answered(lines), given.append, "lease")

    with pytest.raises(OSError, match="gone"):
        body.close()
    body.close()

    assert given == ["lease"]
    assert lines.calls() == {"ok": 1}


def test_one_that_is_awaited_does_too(lines: World) -> None:
    given: list[str] = []

    body = awaited_body_of(httpx2)(Stream(), answered(lines), given.append, "lease")

    with pytest.raises(OSError, match="gone"):
        body.aclose().send(None)
    with pytest.raises(StopIteration):
        body.aclose().send(None)

    assert given == ["lease"]
    assert lines.calls() == {"ok": 1}
