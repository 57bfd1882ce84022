"""From a document to observers and balancers that answer, and to what Xray's interfaces would say of them."""

from __future__ import annotations

import json
from random import Random
from typing import Final

import pytest

from reachline.core.observing import DEAD_MS, Ping, Purpose, Result, Status
from reachline.core.observing.values import MS, SECOND
from reachline.doors.observatory import Core, OutboundStatus, debug_vars, machines, observed, read, show

_NOW: Final = 1_800_000_000 * SECOND
_TEXT: Final = json.dumps(
    {
        "outbounds": [
            {"protocol": "freedom"},
            {"tag": "p-slow", "protocol": "socks", "settings": {"address": "10.0.0.1", "port": 1080}},
            {"tag": "p-fast", "protocol": "socks", "settings": {"address": "10.0.0.2", "port": 1080}},
            {"tag": "p-far", "protocol": "vless"},
            {"tag": "p-none", "protocol": "blackhole"},
        ],
        "observatory": {"subjectSelector": ["p-"], "enableConcurrency": True},
        "routing": {"balancers": [{"tag": "b", "selector": ["p-"], "strategy": {"type": "leastPing"}}]},
    }
)


def _answer(text: str, alive: dict[str, int], *, strict: bool = False) -> tuple[str | None, tuple[Status, ...]]:
    """Whom the balancer picks, and what is known, once each request by an outbound of `alive` took so many ms."""
    made = machines(read(text, strict=strict), now=_NOW, rng=Random(1))
    assert made.observer is not None
    now = _NOW
    for _ in range(20):
        asks = made.observer.due(now)
        now += SECOND
        for ask in asks:
            ms = alive.get(ask.tag)
            result = Result(ok=ms is not None, rtt=(ms or 0) * MS, status=204, reason="refused")
            made.observer.ended(ask.serial, result, now)
    return made.balancers["b"].pick(now, Random(1)).tag, made.observer.statuses(now)


@pytest.mark.parametrize("strict", [False, True])
def test_a_document_observes_and_chooses(strict: bool) -> None:
    picked, known = _answer(_TEXT, {"p-slow": 90, "p-fast": 20}, strict=strict)

    assert picked == "p-fast"
    assert {each.tag for each in known if each.alive} == {"p-slow", "p-fast"}


def test_with_all_dead_strictly_the_first_outbound_is_taken_and_else_none_that_nobody_named() -> None:
    assert _answer(_TEXT, {}, strict=True)[0] == ""
    assert _answer(_TEXT, {})[0] in {None, "p-far"}


def test_strictly_every_outbound_is_asked_and_else_those_that_can_be() -> None:
    assert observed(read(_TEXT, strict=True)) == ("p-slow", "p-fast", "p-far", "p-none")
    assert observed(read(_TEXT)) == ("p-slow", "p-fast")
    assert observed(read(_TEXT, core=Core("127.0.0.1", 1, "x"))) == ("p-slow", "p-fast", "p-far")


def test_a_burst_asks_as_its_document_says() -> None:
    text = json.dumps(
        {
            "outbounds": [{"tag": "p", "protocol": "freedom"}],
            "burstObservatory": {
                "subjectSelector": ["p"],
                "pingConfig": {"destination": " http://d.example/ ", "httpMethod": "GET", "timeout": "3s"},
            },
        }
    )

    made = machines(read(text, strict=True), now=_NOW, rng=Random(1))
    assert made.observer is not None
    (ask,) = made.observer.due(_NOW)

    assert (ask.purpose, ask.tag, ask.url, ask.method) == (Purpose.PROBE, "p", "http://d.example/", "GET")
    assert (ask.timeout, ask.reads_body, ask.fresh) == (3 * SECOND, True, True)


def test_statuses_are_shown_as_the_messages_fields() -> None:
    ping = Ping(10, 1, 2, 3, 4, 5)

    assert show([Status("a", True, 7, "", 8, 9, ping), Status("b", False, DEAD_MS, "why", 0, 9)]) == (
        OutboundStatus(True, 7, "", "a", 8, 9, ping),
        OutboundStatus(False, DEAD_MS, "why", "b", 0, 9, None),
    )


def test_the_map_of_debug_vars_leaves_out_what_is_false_zero_or_empty() -> None:
    statuses = [
        Status("a", True, 7, "", 8, 9),
        Status("b", False, 0, "", 0, 0, Ping(2, 2)),
        Status("c", False, DEAD_MS, "why", 0, 9),
    ]

    assert debug_vars(statuses) == {
        "a": {"alive": True, "delay": 7, "outbound_tag": "a", "last_seen_time": 8, "last_try_time": 9},
        "b": {"outbound_tag": "b", "health_ping": {"all": 2, "fail": 2}},
        "c": {"delay": DEAD_MS, "last_error_reason": "why", "outbound_tag": "c", "last_try_time": 9},
    }
    assert debug_vars([]) == {}
