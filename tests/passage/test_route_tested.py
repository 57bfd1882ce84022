"""TestRoute: by which outbound a connection would go, asked as panels ask it and answered by those who would carry it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.passage.test_carried import carrying
from tests.xray_messages import xray_messages

from reachline.errors import RemoteProtocolError
from reachline.observatory.answers import methods
from reachline.observatory.entries import Entries
from reachline.wire.xray_route import MAX_REQUEST, TEST_ROUTE, read_route

_OUTBOUNDS: list[dict[str, Any]] = [{"tag": tag, "protocol": "freedom"} for tag in ("first", "p-a", "p-b")]
_ROUTING: dict[str, Any] = {
    "balancers": [
        {"tag": "b", "selector": ["p-a"], "strategy": {"type": "random"}},
        {"tag": "nobody", "selector": ["z-"], "strategy": {"type": "random"}},
    ],
    "rules": [
        {"domain": ["domain:example.com"], "balancerTag": "b"},
        {"ip": ["10.0.0.0/8"], "port": "443", "outboundTag": "p-b"},
        {"inboundTag": ["lost"], "balancerTag": "nobody"},
        {"user": ["ann"], "source": ["192.0.2.7"], "network": "udp", "outboundTag": "first"},
    ],
}


async def _tested(context: dict[str, Any], *selectors: str, alias: int = 0) -> Any:
    messages = xray_messages()
    request = messages["TestRouteRequest"](RoutingContext=context, FieldSelectors=selectors).SerializeToString()
    async with carrying(_OUTBOUNDS, routing=_ROUTING) as door:
        entries = Entries(door.running.statuses)
        found = methods(door.running, entries, frozenset(("RoutingService",)), route=door.passage.outbound_of)
        answer: Any = found[TEST_ROUTE[alias]](request)
        return messages["RoutingContext"].FromString(await answer)


@pytest.mark.parametrize("alias", [0, 1])
@pytest.mark.parametrize(
    ("context", "outbound"),
    [
        ({"TargetDomain": "www.example.com", "TargetPort": 80}, "p-a"),
        ({"TargetIPs": [bytes((10, 0, 0, 1))], "TargetPort": 443}, "p-b"),
        ({"User": "ann", "SourceIPs": [bytes((192, 0, 2, 7))], "Network": 3}, "first"),
    ],
)
def test_the_outbound_is_told_beside_what_was_asked(context: dict[str, Any], outbound: str, alias: int) -> None:
    found = asyncio.run(_tested(context, alias=alias))

    wanted = xray_messages()["RoutingContext"](**context, OutboundTag=outbound)
    assert found.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)


def test_only_what_is_selected_is_told() -> None:
    context = {"TargetDomain": "example.com", "TargetPort": 80, "SourcePort": 9, "InboundTag": "in"}

    found = asyncio.run(_tested(context, "port", "outbound"))

    assert (found.TargetPort, found.SourcePort, found.OutboundTag) == (80, 9, "p-a")
    assert (found.TargetDomain, found.InboundTag) == ("", "")


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"TargetDomain": "elsewhere.test"}, "not enough information for making a decision"),
        ({"InboundTag": "lost"}, "balancing strategy returns empty tag"),
    ],
)
def test_where_no_rule_gives_one_it_is_said_in_xrays_words(context: dict[str, Any], words: str) -> None:
    with pytest.raises(LookupError, match=words):
        asyncio.run(_tested(context))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (b"\x0a\x05\x22\x03abc", "4 or 16 bytes"),
        (b"\x0a\x04\x30\xff\xff\x7f", "no port"),
        (b"\x12\x01\xff", "no UTF-8"),
        (bytes(MAX_REQUEST + 1), "at most"),
    ],
)
def test_what_is_no_request_is_refused(request_: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        read_route(request_)
