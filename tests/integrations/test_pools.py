from __future__ import annotations

import os
import signal

import pytest
import requests
from tests.integrations.far import world

from reachline.integrations.pools import Pools
from reachline.integrations.requests import Adapter
from reachline.integrations.urllib3 import LinesManager
from reachline.model import LineId
from reachline.upstream.care import Care
from reachline.upstream.listing import Pick


class Pool:
    """Somebody's connections."""


def pick(name: str, openings: int | None = None) -> Pick:
    care = None if openings is None else Care(openings)
    return Pick(LineId(name), None, "", "direct", "", care=care)


def test_a_line_has_one_pool_until_it_was_open() -> None:
    pools = Pools(lambda _: Pool())
    first, _ = pools.borrow(pick("a"))

    assert pools.borrow(pick("a"))[0] is first
    assert pools.borrow(pick("a", 0))[0] is first
    assert pools.borrow(pick("b"))[0] is not first
    assert pools.borrow(pick("a", 1))[0] is not first


def test_a_pool_of_before_is_closed_when_the_last_call_on_it_ends() -> None:
    pools = Pools(lambda _: Pool())
    old, _ = pools.borrow(pick("a"))
    pools.borrow(pick("a"))

    _, closing = pools.borrow(pick("a", 1))

    assert closing is None
    assert [pools.give_back(old), pools.give_back(old)] == [None, old.pool]


def test_a_pool_of_before_that_nobody_uses_is_closed_by_the_next_call() -> None:
    pools = Pools(lambda _: Pool())
    old, _ = pools.borrow(pick("a"))
    assert pools.give_back(old) is None

    _, closing = pools.borrow(pick("a", 1))

    assert closing is old.pool


def test_a_forked_child_uses_none_of_its_parents_connections() -> None:
    pools = Pools(lambda _: Pool())
    old, _ = pools.borrow(pick("a"))
    # Held, as by a thread that the child does not have.
    pools._lock.acquire()

    child = os.fork()
    if not child:
        signal.alarm(10)
        is_new = pools.borrow(pick("a"))[0] is not old
        os._exit(0 if is_new else 1)

    pools._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    assert pools.borrow(pick("a"))[0] is old


def test_a_forked_child_closes_none_of_its_parents_connections() -> None:
    pools = Pools(lambda _: Pool())
    old, _ = pools.borrow(pick("a"))
    pools.borrow(pick("a", 1))
    pools._lock.acquire()

    child = os.fork()
    if not child:
        signal.alarm(10)
        closes_none = pools.give_back(old) is None and pools.take_all() == ()
        os._exit(0 if closes_none else 1)

    pools._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    assert pools.give_back(old) is old.pool


def test_endpoints_that_come_and_go_leave_no_pools_behind() -> None:
    now = [0.0]
    closed: list[Pool] = []
    pools = Pools(lambda _: Pool(), clock=lambda: now[0])
    busy, _ = pools.borrow(pick("busy"))

    for at in range(100):
        now[0] = 60.0 * at
        lease, closing = pools.borrow(pick(f"10.0.0.{at}:80"))
        closed += [closing] if closing else []
        pools.give_back(lease)

    # Five minutes of one a minute stay, and the one in use.
    left = pools.take_all()
    assert len(left) == 100 + 1 - len(closed) == 5 + 1
    assert lease.pool in left
    assert busy.pool in left


def test_a_call_of_requests_that_cannot_be_made_borrows_nothing() -> None:
    with world("a") as lines, requests.Session() as session:
        adapter = Adapter(lines)
        session.mount("http://payments", adapter)

        with pytest.raises(ValueError, match="imeout"):
            session.get("http://payments/pay", timeout="soon")  # type: ignore[arg-type]  # the mistake

        assert [each.users for each in adapter._pools._leases.values() if each.users] == []


def test_a_call_of_urllib3_that_cannot_be_made_borrows_nothing() -> None:
    with world("a") as lines, LinesManager(lines) as manager:
        with pytest.raises(ValueError, match="imeout"):
            manager.request("GET", "http://payments/pay", timeout="soon")

        assert [each.users for each in manager._lines._leases.values() if each.users] == []
