"""What callers of urllib3, and of requests above it, may do to a request beside choosing its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import urllib3
from tests.integrations.far import World, world
from urllib3.util import Timeout

from reachline.integrations.exchange import place
from reachline.integrations.requests import Adapter
from reachline.integrations.urllib3 import LinesManager
from reachline.upstream.tries import BUDGET

URL = "http://payments/pay"


@pytest.fixture
def lines() -> Iterator[World]:
    BUDGET.renew()
    with world("a", "b") as made:
        yield made


@pytest.mark.parametrize(
    "timeout", [Timeout(total=5.0), Timeout(connect=5.0, read=5.0), Timeout(5.0, 5.0, 5.0), 5, None]
)
@pytest.mark.parametrize("deadline", [None, 5.0])
def test_a_timeout_may_be_whatever_urllib3_takes(lines: World, timeout: Any, deadline: float | None) -> None:
    with LinesManager(lines, deadline=deadline) as manager, requests.Session() as session:
        session.mount("http://payments", Adapter(lines, deadline=deadline))

        assert manager.request("GET", URL, timeout=timeout).status == 200
        assert session.get(URL, timeout=timeout).status_code == 200


def test_connecting_and_reading_share_the_deadline(lines: World) -> None:
    for far in lines.fars.values():
        far.ill = "hang"
    with LinesManager(lines, deadline=0.1) as manager, pytest.raises(urllib3.exceptions.TimeoutError):
        manager.request("GET", URL, timeout=Timeout(total=30.0))

    assert lines.calls() == {"late": 1}


@pytest.mark.parametrize(
    ("status", "method", "then"), [(302, "GET", "GET"), (303, "POST", "GET"), (307, "POST", "POST")]
)
def test_a_redirect_within_a_cluster_is_followed_there(lines: World, status: int, method: str, then: str) -> None:
    for far in lines.fars.values():
        far.ill = status

    with LinesManager(lines) as manager:
        answer = manager.request(method, URL, body=b"x" if method == "POST" else None)

    assert answer.status == 200
    seen = [each for far in lines.fars.values() for each in far.seen]
    assert sorted(seen) == sorted([f"{method} /pay", f"{then} /moved"])
    assert lines.calls() == {"ok": 2}


def test_a_redirect_is_left_to_the_caller_who_wants_it(lines: World) -> None:
    for far in lines.fars.values():
        far.ill = 302

    with LinesManager(lines) as manager:
        assert manager.request("GET", URL, redirect=False).status == 302
        assert manager.request("GET", URL, retries=False).status == 302
    with LinesManager(lines, retries=False) as manager:
        assert manager.request("GET", URL).status == 302


@pytest.mark.parametrize(
    ("host", "port", "written"),
    [
        ("10.0.0.1", 80, "10.0.0.1:80"),
        ("a.example", None, "a.example"),
        ("::1", 80, "[::1]:80"),
        ("::1", None, "[::1]"),
    ],
)
def test_a_place_is_written_as_urls_write_it(host: str, port: int | None, written: str) -> None:
    assert place(host, port) == written
