"""httpx2 and httpx by lines: the same transport twice, so the same tests twice, blocking and awaited."""

from __future__ import annotations

import asyncio
import importlib
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from tests.integrations.far import World, world

from reachline.core.returning import Pace
from reachline.errors import Shed
from reachline.model import Gate
from reachline.upstream.tries import BUDGET

URL = "http://payments/pay?id=7"
TLS = ssl.create_default_context()
"""Made once: it costs more than all the calls of a test."""


class Dialect:
    """One library, blocking or awaited, behind one call."""

    def __init__(self, name: str, runner: Callable[[Callable[[], Any]], Any] | None) -> None:
        self.library: Any = importlib.import_module(name)
        self.adapter: Any = importlib.import_module(f"reachline.integrations.{name}")
        self.runner = runner

    def calls(self, lines: World, count: int, method: str = "GET", url: str = URL, **more: Any) -> list[Any]:
        """What so many calls came to, one after the other: answers, or exceptions."""
        settings: dict[str, Any] = {
            name: more.pop(name) for name in ("tries", "deadline", "keep_host", "make") if name in more
        }
        settings["verify"] = TLS
        if self.runner is None:
            return self._blocking(lines, count, method, url, settings, more)
        found = self.runner(lambda: self._awaited(lines, count, method, url, settings, more))
        assert isinstance(found, list)
        return found

    def _blocking(self, lines: World, count: int, method: str, url: str, settings: Any, more: Any) -> list[Any]:
        found: list[Any] = []
        with self.library.Client(transport=self.adapter.Transport(lines, **settings)) as client:
            for _ in range(count):
                try:
                    found.append(client.request(method, url, **more))
                except Exception as error:  # noqa: BLE001 - what it was is the test's to say
                    found.append(error)
        return found

    async def _awaited(self, lines: World, count: int, method: str, url: str, settings: Any, more: Any) -> list[Any]:
        found: list[Any] = []
        async with self.library.AsyncClient(transport=self.adapter.AsyncTransport(lines, **settings)) as client:
            for _ in range(count):
                try:
                    found.append(await client.request(method, url, **more))
                except Exception as error:  # noqa: BLE001 - what it was is the test's to say
                    found.append(error)
        return found


RUNNERS: dict[str, Callable[[Callable[[], Any]], Any] | None] = {
    "blocking": None,
    "asyncio": lambda main: asyncio.run(main()),
    "trio": trio.run,
}


@pytest.fixture(params=[f"{name}-{way}" for name in ("httpx2", "httpx") for way in RUNNERS])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    BUDGET.renew()
    name, _, way = request.param.partition("-")
    return Dialect(name, RUNNERS[way])


@pytest.fixture
def lines() -> Iterator[World]:
    with world("a", "b") as made:
        yield made


def test_a_host_that_is_a_cluster_is_one_of_its_lines(dialect: Dialect, lines: World) -> None:
    answers = dialect.calls(lines, 20)

    assert {each.text for each in answers} == {"a", "b"}
    assert {each.extensions["reachline"].line for each in answers} == {"payments/a", "payments/b"}
    assert set(lines.fars["a"].seen) == {"GET /pay?id=7"}
    assert set(lines.fars["a"].hosts) == {f"127.0.0.1:{lines.fars['a'].port}"}
    assert lines.calls() == {"ok": 20}
    # Kept alive: one connection a line.
    assert [far.connections for far in lines.fars.values()] == [1, 1]


def test_any_other_host_is_called_as_ever(dialect: Dialect, lines: World) -> None:
    (answer,) = dialect.calls(lines, 1, url=f"http://127.0.0.1:{lines.fars['a'].port}/")

    assert (answer.status_code, answer.text) == (200, "a")
    assert "reachline" not in answer.extensions
    assert lines.calls() == {}


@pytest.mark.parametrize(("ill", "column"), [("reset", "failed"), (503, "errors")])
def test_a_call_that_fails_on_one_line_is_made_on_another(
    dialect: Dialect, lines: World, ill: str | int, column: str
) -> None:
    lines.fars["a"].ill = ill

    answers = dialect.calls(lines, 12)

    assert [each.text for each in answers] == ["b"] * 12
    assert lines.calls() == {"ok": 12, column: len(lines.fars["a"].seen), "retries": len(lines.fars["a"].seen)}
    if ill == "reset":
        assert lines.cluster.open_lines() == ("payments/a",)


def test_what_is_not_idempotent_is_sent_once_unless_the_caller_says_it_may(dialect: Dialect, lines: World) -> None:
    lines.fars["a"].ill = lines.fars["b"].ill = "reset"

    (error,) = dialect.calls(lines, 1, "POST", content=b"money")

    assert isinstance(error, dialect.library.TransportError)
    assert sum(lines.seen().values()) == 1
    dialect.calls(lines, 1, "POST", content=b"money", extensions={"reachline": {"idempotent": True}})
    assert sum(lines.seen().values()) == 3
    assert set(lines.fars["a"].bodies + lines.fars["b"].bodies) == {b"money"}


def test_a_body_that_cannot_be_sent_twice_is_sent_once(dialect: Dialect, lines: World) -> None:
    lines.fars["a"].ill = lines.fars["b"].ill = 503

    async def later() -> Any:
        yield b"a"

    content = iter([b"a"]) if dialect.runner is None else later()
    dialect.calls(lines, 1, "PUT", content=content, headers={"content-length": "1"})

    assert sum(lines.seen().values()) == 1


def test_a_deadline_holds_for_all_tries_together(dialect: Dialect, lines: World) -> None:
    lines.fars["a"].ill = lines.fars["b"].ill = "hang"

    (error,) = dialect.calls(lines, 1, deadline=0.1, timeout=30.0)

    assert isinstance(error, dialect.library.TimeoutException)
    assert lines.calls() == {"late": 1}


def test_a_body_that_breaks_off_is_the_lines_failure(dialect: Dialect, lines: World) -> None:
    lines.fars["a"].ill = lines.fars["b"].ill = "short"

    (error,) = dialect.calls(lines, 1)

    assert isinstance(error, dialect.library.RemoteProtocolError)
    assert lines.calls() == {"failed": 1}


def test_a_caller_may_keep_the_name_it_called(dialect: Dialect, lines: World) -> None:
    dialect.calls(lines, 4, keep_host=True)

    assert {host for far in lines.fars.values() for host in far.hosts} == {"payments"}


def test_a_target_and_headers_of_the_callers_own_go_to_the_line(dialect: Dialect, lines: World) -> None:
    more: dict[str, Any] = {
        "extensions": {"target": b"/moved?by=target"},
        "headers": [("X-Twice", "1"), ("hOST", "me"), ("X-Twice", "2")],
    }
    (answer,) = dialect.calls(lines, 1, **more)

    assert answer.status_code == 200
    assert [each for far in lines.fars.values() for each in far.seen] == ["GET /moved?by=target"]
    assert str(answer.request.url) == URL
    assert answer.request.headers["host"] == "me"


def test_connections_of_a_line_that_was_open_are_not_used_again(dialect: Dialect, lines: World) -> None:
    far = lines.fars["a"]
    far.ill = 404  # so that a request is told from those of the other line
    made: list[Any] = []

    def between() -> None:
        made.append(far.connections)
        lines.publish(a=Gate.OPEN)
        lines.publish()

    if dialect.runner is None:
        with dialect.library.Client(transport=dialect.adapter.Transport(lines, verify=TLS)) as client:
            for _ in range(3):
                for _ in range(12):
                    client.get(URL)
                between()
    else:

        async def main() -> None:
            async with dialect.library.AsyncClient(
                transport=dialect.adapter.AsyncTransport(lines, verify=TLS)
            ) as client:
                for _ in range(3):
                    for _ in range(12):
                        await client.get(URL)
                    between()

        dialect.runner(main)

    assert made == [1, 2, 3]
    assert lines.fars["b"].connections == 1


def test_a_returning_line_gets_no_more_new_connections_than_it_may(dialect: Dialect, lines: World) -> None:
    lines.publish(a=Gate.RAMP)
    care = next(pick.care for pick, _ in lines.cluster.offers if pick.line == "payments/a")
    assert care is not None
    care._pace = Pace(0, 0)

    answers = dialect.calls(lines, 10)

    assert {each.text for each in answers} == {"b"}
    assert lines.calls()["ok"] == 10
    assert "retries" not in lines.calls()


def test_without_another_line_a_new_connection_is_made_all_the_same(dialect: Dialect) -> None:
    with world("a") as alone:
        alone.publish(a=Gate.RAMP)
        care = next(pick.care for pick, _ in alone.cluster.offers)
        assert care is not None
        care._pace = Pace(0, 0)

        assert dialect.calls(alone, 1)[0].text == "a"


def test_a_cluster_without_lines_is_called_by_its_name(dialect: Dialect) -> None:
    with world() as empty:
        (error,) = dialect.calls(empty, 1, url="http://payments:1/")

        assert isinstance(error, dialect.library.ConnectError)
        assert empty.calls() == {}


def test_a_call_that_is_shed_is_made_nowhere(dialect: Dialect, lines: World) -> None:
    from dataclasses import replace

    from reachline.upstream.listing import Admitted

    plan = Admitted(share=0.0, regions={})
    lines.cluster.replace(replace(lines.cluster.published, plan=plan), source="center")

    (error,) = dialect.calls(lines, 1)

    assert isinstance(error, Shed)
    assert lines.seen() == {}


@pytest.mark.parametrize("ill", ["reset", "hang", "short", "refused"])
def test_what_fails_is_raised_as_the_library_raises_it_without_lines(dialect: Dialect, ill: str) -> None:
    with world("a") as lines:
        far = lines.fars["a"]
        far.ill = ill
        alone = f"http://127.0.0.1:{far.port}/pay"
        if ill == "refused":
            far.close()

        timeout = dialect.library.Timeout(10, read=0.3 if ill == "hang" else 10)
        (bare,), (ours,) = (dialect.calls(lines, 1, url=url, tries=1, timeout=timeout) for url in (alone, URL))

        assert isinstance(bare, dialect.library.TransportError)
        assert type(ours) is type(bare)
        assert ours.request.url.host == "payments"
