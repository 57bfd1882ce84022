"""Routing by rules: which one a connection meets, against a restatement that is as plain as it is slow, and what needs a lookup."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.doors.observatory.carrying import Carrying, read_carrying
from reachline.doors.observatory.matching import Decision, Question
from reachline.errors import ConfigError

_IN: Final = [{"tag": "in", "protocol": "socks", "listen": "127.0.0.1", "port": 1080}]
_OUT: Final = [{"tag": "direct", "protocol": "freedom"}, {"tag": "p1", "protocol": "freedom"}]


def _read(
    rules: Sequence[Mapping[str, object]], files: Mapping[str, bytes] | None = None, **routing: object
) -> Carrying:
    whole = [{"outboundTag": "p1", **each} for each in rules]
    document = {"inbounds": _IN, "outbounds": _OUT, "routing": {"rules": whole, **routing}}
    return read_carrying(json.dumps(document), load=(files or {}).get)


def _asked(host: str = "a.example", port: int = 443, **changes: Any) -> Question:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return Question(port, domain=host, **changes)
    return Question(port, addresses=(address,), **changes)


def _meets(rule: Mapping[str, object], question: Question) -> bool:
    return _read([rule]).router.route(question).rule == 0


@pytest.mark.parametrize(
    ("text", "name", "is_met"),
    [
        ("example", "www.example.org", True),
        ("keyword:example", "www.example.org", True),
        ("domain:example.org", "www.Example.ORG", True),
        ("domain:example.org", "example.org", True),
        ("domain:example.org", "badexample.org", False),
        ("full:example.org", "example.org", True),
        ("full:example.org", "www.example.org", False),
        (r"regexp:\.go.*\.com$", "www.google.com", True),
        (r"regexp:^go", "www.google.com", False),
        ("dotless:", "router", True),
        ("dotless:out", "router", True),
        ("dotless:", "router.lan", False),
        ("dotless:pc", "router", False),
    ],
)
def test_a_name_is_meant_as_xray_means_it(text: str, name: str, is_met: bool) -> None:
    assert _meets({"domain": [text]}, _asked(name)) is is_met


@pytest.mark.parametrize(
    ("texts", "address", "is_met"),
    [
        (["10.0.0.0/8"], "10.1.2.3", True),
        (["10.0.0.0/8"], "11.1.2.3", False),
        (["10.1.2.3"], "10.1.2.3", True),
        (["10.1.2.77/24"], "10.1.2.3", True),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", True),
        (["2001:db8::/32"], "2001:db8::1", True),
        (["!10.0.0.0/8"], "10.1.2.3", False),
        (["!10.0.0.0/8"], "11.1.2.3", True),
        (["!!10.0.0.0/8"], "10.1.2.3", True),
        (["!10.0.0.0/8", "10.1.0.0/16"], "10.1.2.3", True),
    ],
)
def test_an_address_is_meant_as_xray_means_it(texts: list[str], address: str, is_met: bool) -> None:
    assert _meets({"ip": texts}, _asked(address)) is is_met


def test_a_rule_about_addresses_does_not_meet_a_name_that_is_not_resolved() -> None:
    assert not _meets({"ip": ["0.0.0.0/0", "::/0"]}, _asked("a.example"))


def test_all_conditions_of_a_rule_must_match() -> None:
    rule = {
        "domain": ["full:a.example"],
        "port": "80,440-450",
        "network": "tcp",
        "inboundTag": ["in"],
        "user": ["u"],
        "sourceIP": "10.0.0.0/8",
    }
    whole = _asked(inbound="in", user="u", source=ipaddress.ip_address("10.0.0.1"))

    assert _meets(rule, whole)
    for change in (
        {"port": 439},
        {"network": "udp"},
        {"inbound": "other"},
        {"user": ""},
        {"source": ipaddress.ip_address("9.0.0.1")},
        {"domain": "b.example"},
    ):
        assert not _meets(rule, whole._replace(**change)), change


def test_the_first_rule_that_matches_decides() -> None:
    router = _read([{"port": 80}, {"domain": ["a.example"]}, {"network": "tcp"}]).router

    assert [
        router.route(each).rule for each in (_asked(port=80), _asked(), _asked("b.example"), _asked(network="udp"))
    ] == [0, 1, 2, 1]
    assert router.route(_asked("b.example", network="udp")) == Decision()


def test_a_name_is_resolved_when_no_rule_was_met() -> None:
    router = _read([{"ip": ["10.0.0.0/8"]}, {"domain": ["b.example"]}], domainStrategy="IPIfNonMatch").router
    unmet = _asked("a.example")

    assert router.route(_asked("b.example")) == Decision(1)
    assert router.route(unmet) == Decision(resolve=True)
    assert router.route(unmet._replace(addresses=(ipaddress.ip_address("10.0.0.1"),))) == Decision(0)
    assert router.route(unmet._replace(addresses=())) == Decision()


def test_a_name_is_resolved_for_the_first_rule_that_needs_it() -> None:
    rules: list[dict[str, object]] = [{"port": 80, "ip": ["10.0.0.0/8"]}, {"domain": ["a.example"]}]
    router = _read(rules, domainStrategy="IPOnDemand").router

    assert router.route(_asked(port=443)) == Decision(1)
    assert router.route(_asked(port=80)) == Decision(resolve=True)
    assert router.route(_asked(port=80, addresses=(ipaddress.ip_address("11.0.0.1"),))) == Decision(1)


_LABELS: Final = st.sampled_from(["a", "b", "ab", "example", "org"])
_NAMES: Final = st.lists(_LABELS, min_size=1, max_size=4).map(".".join)
_DOMAINS: Final = st.builds(
    lambda kind, name: kind + name, st.sampled_from(["", "keyword:", "domain:", "full:", "regexp:"]), _NAMES
)
_NETWORKS: Final = st.builds(
    lambda bang, number, prefix: f"{bang}{ipaddress.ip_address(number << 24)}/{prefix}",
    st.sampled_from(["", "!"]),
    st.integers(0, 7),
    st.integers(4, 9),
)
_RULES: Final = st.fixed_dictionaries(
    {},
    optional={
        "domain": st.lists(_DOMAINS, min_size=1, max_size=3),
        "ip": st.lists(_NETWORKS, min_size=1, max_size=3),
        "port": st.sampled_from([80, "80", "1-80", "70-90,443"]),
        "network": st.sampled_from(["tcp", "udp", "tcp,udp"]),
        "inboundTag": st.lists(st.sampled_from(["in", "other"]), min_size=1),
    },
).filter(bool)
_QUESTIONS: Final = st.builds(
    lambda host, port, network, inbound: _asked(host, port, network=network, inbound=inbound),
    _NAMES | st.integers(0, 7).map(lambda number: str(ipaddress.ip_address((number << 24) + 1))),
    st.sampled_from([69, 80, 81, 443]),
    st.sampled_from(["tcp", "udp"]),
    st.sampled_from(["", "in"]),
)


def _restated(rule: Mapping[str, Any], asked: Question) -> bool:
    def named(text: str) -> bool:
        kind, _, rest = text.rpartition(":")
        match kind:
            case "domain":
                return asked.domain == rest or asked.domain.endswith(f".{rest}")
            case "full":
                return asked.domain == rest
            case "regexp":
                return re.search(rest, asked.domain) is not None
            case _:
                return rest in asked.domain

    def within(text: str) -> bool:
        inside = asked.addresses[0] in ipaddress.ip_network(text.lstrip("!"), strict=False)  # type: ignore[index]
        return inside != text.startswith("!")

    ports = [each.partition("-") for each in str(rule.get("port", "0-65535")).split(",")]
    return (
        ("domain" not in rule or (asked.domain != "" and any(map(named, rule["domain"]))))
        and ("ip" not in rule or (asked.addresses is not None and any(map(within, rule["ip"]))))
        and any(int(first) <= asked.port <= int(last or first) for first, _, last in ports)
        and asked.network in rule.get("network", "tcp,udp")
        and ("inboundTag" not in rule or asked.inbound in rule["inboundTag"])
    )


@given(st.lists(_RULES, max_size=4), st.lists(_QUESTIONS, min_size=1, max_size=4))
def test_routing_is_its_plain_restatement(rules: list[dict[str, Any]], questions: list[Question]) -> None:
    router = _read(rules).router

    for asked in questions:
        wanted = next((number for number, rule in enumerate(rules) if _restated(rule, asked)), None)
        assert router.route(asked) == Decision(wanted), (rules, asked)


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes((number << 3, value))
    assert len(value) < 128
    return bytes((number << 3 | 2, len(value))) + value


_GEOSITE: Final = b"".join(
    _field(1, _field(1, code) + b"".join(_field(2, each) for each in entries))
    for code, entries in (
        (b"OTHER", [_field(1, 3) + _field(2, b"other.example")]),
        (
            b"ADS",
            [
                _field(1, 2) + _field(2, b"ads.example") + _field(3, _field(1, b"cn")),
                _field(1, 0) + _field(2, b"track"),
                _field(1, 3) + _field(2, b"one.example"),
            ],
        ),
    )
)
_GEOIP: Final = _field(
    1,
    _field(1, b"CN")
    + _field(2, _field(1, bytes((10, 0, 0, 0))) + _field(2, 8))
    + _field(2, _field(1, bytes.fromhex("20010db8") + bytes(12)) + _field(2, 32)),
)
_FILES: Final = {"geosite.dat": _GEOSITE, "geoip.dat": _GEOIP}


@pytest.mark.parametrize(
    ("rule", "host", "is_met"),
    [
        ({"domain": ["geosite:ads"]}, "www.ads.example", True),
        ({"domain": ["geosite:ads"]}, "mytracker.org", True),
        ({"domain": ["geosite:ads"]}, "www.one.example", False),
        ({"domain": ["geosite:ads"]}, "other.example", False),
        ({"domain": ["geosite:ads@cn"]}, "mytracker.org", False),
        ({"domain": ["ext:geosite.dat:ads@cn"]}, "ads.example", True),
        ({"ip": ["geoip:cn"]}, "10.9.9.9", True),
        ({"ip": ["geoip:cn"]}, "2001:db8::9", True),
        ({"ip": ["geoip:!cn"]}, "10.9.9.9", False),
        ({"ip": ["!geoip:cn"]}, "11.9.9.9", True),
    ],
)
def test_lists_are_read_of_their_files(rule: dict[str, object], host: str, is_met: bool) -> None:
    assert (_read([rule], _FILES).router.route(_asked(host)).rule == 0) is is_met


@pytest.mark.parametrize(
    ("rule", "files", "problem"),
    [
        ({"domain": ["geosite:ads"]}, {}, "holds 'geosite:ads', and geosite.dat is not there"),
        ({"domain": ["geosite:no"]}, _FILES, "names a list that geosite.dat does not hold: 'no'"),
        (
            {"ip": ["geoip:cn"]},
            {"geoip.dat": b"\x0a\xff"},
            "names geoip.dat, which is no file of lists: ends within a number",
        ),
        ({"ip": ["a.example"]}, {}, "holds 'a.example', which is no address and no network"),
        ({"domain": ["regexp:("]}, {}, "holds a pattern that cannot be used here"),
        ({"domain": ["dotless:a.b"]}, {}, "holds 'dotless:a.b', and what has no dots cannot hold one"),
        ({"port": "1-70000"}, {}, "must be ports from 0 to 65535 and ranges of them"),
        ({"network": "icmp"}, {}, "must be tcp, udp or both, and not 'icmp'"),
        ({"attrs": {":method": "GET"}, "port": 80}, {}, "asks for headers of the request, which are not looked into"),
        ({"process": ["curl"]}, {}, "asks for the program behind a connection, which is not looked for"),
        ({}, {}, "has no condition"),
    ],
)
def test_what_a_rule_cannot_have_is_refused_by_name(
    rule: dict[str, object], files: Mapping[str, bytes], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        _read([rule], files)

    assert any(
        each.rule.startswith(problem) and each.path.startswith("routing.rules[0]") for each in caught.value.problems
    )


def test_a_rule_about_protocols_never_matches_while_nobody_looks_into_connections() -> None:
    carrying = _read([{"protocol": ["bittorrent"]}, {"network": "tcp"}])

    assert carrying.router.rules[carrying.router.route(_asked()).rule or 0].conditions.networks == frozenset(("tcp",))
    assert any("never matches" in each.rule for each in carrying.warnings)
