"""Inbounds that are served, and those that are refused: open relays and what is not spoken here."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from reachline.doors.observatory.carrying import Carrying, Exit, Patience, read_carrying
from reachline.doors.observatory.inbounds import Entry
from reachline.errors import ConfigError

_SOCKS: Final = {"protocol": "socks", "listen": "127.0.0.1", "port": 1080}
_ACCOUNTS: Final = [{"user": "u", "pass": "p"}]


def _read(inbound: dict[str, Any], **more: object) -> Carrying:
    document = {"inbounds": [inbound], "outbounds": [{"protocol": "freedom"}], **more}
    return read_carrying(json.dumps(document), load=lambda _: None)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"listen": "0.0.0.0"}, "would be an open relay"),
        ({"listen": None}, "would be an open relay"),
        ({"listen": "::"}, "would be an open relay"),
        ({"listen": "0.0.0.0", "settings": {"accounts": _ACCOUNTS}}, "would be an open relay"),
        ({"listen": "0.0.0.0", "protocol": "http"}, "would be an open relay"),
        (
            {"protocol": "dokodemo-door", "listen": None, "settings": {"address": "a", "port": 1}},
            "is needed: without it everybody",
        ),
        (
            {"protocol": "dokodemo-door", "settings": {"followRedirect": True}},
            "takes the address from the firewall's redirect",
        ),
        ({"protocol": "vless"}, "is not served here"),
        ({"listen": "/run/x.sock"}, "is a Unix socket"),
        ({"port": "1-1000"}, "must be at most 256 ports"),
        ({"settings": {"auth": "password"}}, "is needed where auth is password"),
        ({"streamSettings": {"network": "ws"}}, "asks for ws, and inbounds are plain TCP here"),
    ],
)
def test_an_inbound_that_is_no_good_is_refused_by_place_and_rule(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _read({**_SOCKS, **change})

    assert any(each.rule.startswith(problem) and each.path.startswith("inbounds[0]") for each in caught.value.problems)


def test_with_accounts_everybody_may_reach_it() -> None:
    password = {"auth": "password", "accounts": _ACCOUNTS}

    assert _read({**_SOCKS, "listen": "0.0.0.0", "settings": password}).inbounds[0].accounts == {"u": "p"}
    assert (
        _read({**_SOCKS, "listen": None, "protocol": "http", "settings": {"accounts": _ACCOUNTS}}).inbounds[0].host
        == "0.0.0.0"
    )


def test_accounts_count_for_socks_where_auth_says_so_alone() -> None:
    carrying = _read({**_SOCKS, "settings": {"accounts": _ACCOUNTS}})

    assert carrying.inbounds[0].entry is Entry.MIXED
    assert carrying.inbounds[0].accounts == {}
    assert any("lets everybody in" in each.rule for each in carrying.warnings)


def test_patience_is_xrays_where_the_policy_says_nothing() -> None:
    policy = {"levels": {"0": {"connIdle": 60, "uplinkOnly": 2}, "7": {}}, "system": {"statsInboundUplink": True}}

    carrying = _read(_SOCKS, policy=policy)

    assert carrying.patience == {0: Patience(idle=60, uplink_only=2), 7: Patience()}
    assert Patience() == (60, 300, 1, 1)
    assert carrying.counted == (True, False, False, False)


def test_ways_say_what_becomes_of_a_connection() -> None:
    outbounds = [
        {"tag": "d", "protocol": "freedom", "settings": {"domainStrategy": "UseIPv4v6"}},
        {"tag": "b", "protocol": "blackhole", "settings": {"response": {"type": "http"}}},
        {"tag": "l", "protocol": "loopback", "settings": {"inboundTag": "again"}},
        {"tag": "v", "protocol": "vless", "settings": {}},
    ]

    ways = read_carrying(json.dumps({"inbounds": [_SOCKS], "outbounds": outbounds}), load=lambda _: None).ways

    assert {tag: each.exit for tag, each in ways.items()} == {
        "d": Exit.GOES,
        "b": Exit.DROPS,
        "l": Exit.LOOPS,
        "v": Exit.CANNOT,
    }
    assert ways["d"].families == (4, 6)
    assert ways["b"].answer.startswith(b"HTTP/1.1 403")
    assert ways["l"].inbound == "again"
