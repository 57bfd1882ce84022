"""requests, urllib3 and aiohttp by lines: the same rules, each library in its own way."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import aiohttp
import pytest
import requests
import urllib3
from tests.integrations.far import World, world

from reachline.core.returning import Pace
from reachline.errors import LocalProtocolError, Shed
from reachline.integrations import aiohttp as by_aiohttp
from reachline.integrations import requests as by_requests
from reachline.integrations import urllib3 as by_urllib3
from reachline.model import Gate
from reachline.upstream.listing import Admitted
from reachline.upstream.tries import BUDGET

URL = "http://payments/pay?id=7"


class Got(NamedTuple):
    status: int
    text: str


Found = list[Got | BaseException]


def found(count: int, ask: Callable[[], Got], each: Callable[[], None]) -> Found:
    """What so many calls came to: answers, or what they raised."""
    made: Found = []
    for _ in range(count):
        try:
            made.append(ask())
        except Exception as error:  # noqa: BLE001 - what it was is the test's to say
            made.append(error)
        each()
    return made


def through_requests(
    lines: World,
    count: int,
    method: str = "GET",
    url: str = URL,
    *,
    each: Callable[[], None] = lambda: None,
    **how: Any,
) -> Found:
    timeout, data = how.pop("timeout", 5.0), how.pop("data", None)
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://payments", by_requests.Adapter(lines, **how))

        def ask() -> Got:
            answer = session.request(method, url, timeout=timeout, data=data)
            return Got(answer.status_code, answer.text)

        return found(count, ask, each)


def through_urllib3(
    lines: World,
    count: int,
    method: str = "GET",
    url: str = URL,
    *,
    each: Callable[[], None] = lambda: None,
    **how: Any,
) -> Found:
    timeout, data = how.pop("timeout", 5.0), how.pop("data", None)
    said = {"reachline": {"idempotent": how.pop("idempotent")}} if "idempotent" in how else {}
    with by_urllib3.LinesManager(lines, **how) as manager:

        def ask() -> Got:
            answer = manager.request(method, url, timeout=timeout, body=data, retries=False, **said)
            return Got(answer.status, answer.data.decode())

        return found(count, ask, each)


def through_aiohttp(
    lines: World,
    count: int,
    method: str = "GET",
    url: str = URL,
    *,
    each: Callable[[], None] = lambda: None,
    **how: Any,
) -> Found:
    timeout, data = how.pop("timeout", 5.0), how.pop("data", None)
    more: dict[str, Any] = {}
    if "idempotent" in how:
        more["middlewares"] = [by_aiohttp.Middleware(lines, idempotent=how.pop("idempotent"))]

    async def opened() -> aiohttp.ClientSession:
        return by_aiohttp.session(lines, timeout=aiohttp.ClientTimeout(total=timeout), **how)

    async def asking(session: aiohttp.ClientSession) -> Got:
        async with session.request(method, url, data=data, **more) as answer:
            return Got(answer.status, await answer.text())

    with asyncio.Runner() as runner:
        session = runner.run(opened())
        try:
            return found(count, lambda: runner.run(asking(session)), each)
        finally:
            runner.run(session.close())


@pytest.fixture(params=[through_requests, through_urllib3, through_aiohttp], ids=lambda each: each.__name__[8:])
def calls(request: pytest.FixtureRequest) -> Callable[..., Found]:
    BUDGET.renew()
    through: Callable[..., Found] = request.param
    return through


@pytest.fixture
def lines() -> Iterator[World]:
    with world("a", "b") as made:
        yield made


def test_a_host_that_is_a_cluster_is_one_of_its_lines(calls: Callable[..., Found], lines: World) -> None:
    assert set(calls(lines, 20)) == {Got(200, "a"), Got(200, "b")}
    assert set(lines.fars["a"].seen) == {"GET /pay?id=7"}
    assert set(lines.fars["a"].hosts) == {f"127.0.0.1:{lines.fars['a'].port}"}
    assert lines.calls() == {"ok": 20}
    assert [far.connections for far in lines.fars.values()] == [1, 1]


def test_any_other_host_is_called_as_ever(calls: Callable[..., Found], lines: World) -> None:
    assert calls(lines, 1, url=f"http://127.0.0.1:{lines.fars['a'].port}/") == [Got(200, "a")]
    assert lines.calls() == {}


@pytest.mark.parametrize(("ill", "column"), [("reset", "failed"), (503, "errors")])
def test_a_call_that_fails_on_one_line_is_made_on_another(
    calls: Callable[..., Found], lines: World, ill: str | int, column: str
) -> None:
    lines.fars["a"].ill = ill

    assert calls(lines, 12) == [Got(200, "b")] * 12

    tries = len(lines.fars["a"].seen)
    assert lines.calls() == {"ok": 12, column: tries, "retries": tries}


def test_what_is_not_idempotent_is_sent_once_unless_the_caller_says_it_may(
    calls: Callable[..., Found], lines: World
) -> None:
    lines.fars["a"].ill = lines.fars["b"].ill = "reset"

    calls(lines, 1, "POST", data=b"money")

    assert sum(lines.seen().values()) == 1
    calls(lines, 1, "POST", data=b"money", idempotent=True)
    assert sum(lines.seen().values()) == 3
    assert set(lines.fars["a"].bodies + lines.fars["b"].bodies) == {b"money"}


def test_a_deadline_holds_for_all_tries_together(calls: Callable[..., Found], lines: World) -> None:
    lines.fars["a"].ill = lines.fars["b"].ill = "hang"

    (error,) = calls(lines, 1, deadline=0.1, timeout=30.0)

    assert isinstance(error, (TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError))
    assert lines.calls() == {"late": 1}


def test_a_body_that_breaks_off_is_the_lines_failure(calls: Callable[..., Found], lines: World) -> None:
    lines.fars["a"].ill = lines.fars["b"].ill = "short"

    (error,) = calls(lines, 1, "POST", data=b"x")

    assert isinstance(error, Exception)
    assert lines.calls() == {"failed": 1}


def test_a_caller_may_keep_the_name_it_called(calls: Callable[..., Found], lines: World) -> None:
    calls(lines, 4, keep_host=True)

    assert {host for far in lines.fars.values() for host in far.hosts} == {"payments"}


def test_connections_of_a_line_that_was_open_are_not_used_again(calls: Callable[..., Found], lines: World) -> None:
    made: list[int] = []

    def between() -> None:
        if sum(lines.seen().values()) % 12 == 0:
            made.append(lines.fars["a"].connections)
            lines.publish(a=Gate.OPEN)
            lines.publish()

    calls(lines, 36, each=between)

    assert made == [1, 2, 3]
    assert lines.fars["b"].connections == 1


@pytest.mark.parametrize("names", [("a", "b"), ("a",)])
def test_a_returning_line_gets_no_more_new_connections_than_it_may_but_for_want_of_another(
    calls: Callable[..., Found], names: tuple[str, ...]
) -> None:
    with world(*names) as lines:
        lines.publish(a=Gate.RAMP)
        care = next(pick.care for pick, _ in lines.cluster.offers if pick.line == "payments/a")
        assert care is not None
        care._pace = Pace(0, 0)

        answers = calls(lines, 5)

        assert all(isinstance(each, Got) and each.status == 200 for each in answers)
        assert lines.calls()["ok"] == 5
        assert set(lines.seen()) == {names[-1]}
        assert "retries" not in lines.calls()


def test_a_call_that_is_shed_is_made_nowhere(calls: Callable[..., Found], lines: World) -> None:
    plan = Admitted(share=0.0, regions={})
    lines.cluster.replace(replace(lines.cluster.published, plan=plan), source="center")

    (error,) = calls(lines, 1)

    assert isinstance(error, Shed)
    assert lines.seen() == {}


def test_a_body_that_the_caller_lets_go_of_says_nothing_ill_of_the_line(lines: World) -> None:
    async def main() -> None:
        async with by_aiohttp.session(lines) as session:
            for _ in range(4):
                async with session.get(URL):
                    pass

    asyncio.run(main())

    assert lines.calls() == {"ok": 4}


@pytest.mark.parametrize("calls", [through_urllib3, through_aiohttp])
def test_a_way_that_a_library_cannot_go_is_named_and_is_not_the_lines_fault(
    calls: Callable[..., Found], lines: World
) -> None:
    via = "socks5://user:secret@10.0.0.9:1080"
    rows = tuple(each._replace(via=via) for each in lines.cluster.published.lines)
    lines.cluster.replace(replace(lines.cluster.published, lines=rows), source="center")

    (error,) = calls(lines, 1)

    assert isinstance(error, LocalProtocolError)
    assert "not socks5://10.0.0.9:1080" in str(error)
    assert lines.calls() == {"unproven": 1}


def test_a_call_made_again_goes_by_way_of_its_own_line_alone(calls: Callable[..., Found], lines: World) -> None:
    published = lines.cluster.published
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        via = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    rows = tuple(each._replace(via=via) if each.line == "payments/a" else each for each in published.lines)
    lines.cluster.replace(replace(published, lines=rows), source="center")

    assert calls(lines, 12) == [Got(200, "b")] * 12
    assert set(lines.seen()) == {"b"}
    assert lines.calls()["failed"] == lines.calls()["retries"] > 0
