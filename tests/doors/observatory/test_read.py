"""Documents as users write them, and what they come to."""

from __future__ import annotations

import json
from typing import Final

import pytest

from reachline.core.observing.rules import AllUnhealthy, Cost, Group, Strategy, float32
from reachline.core.observing.values import MS, SECOND
from reachline.doors.observatory import Core, Reach, Settings, Source, account, looks_like_xray, read, relay_document

FULL: Final = """
// what a panel writes, and what people add to it
{
  "log": {"loglevel": "warning"},   # levels
  "api": {"tag": "api", "listen": "127.0.0.1:10085", "services": ["handlerService", "RoutingService", "ObservatoryService"]},
  "metrics": {"tag": "metrics_out", "listen": "127.0.0.1:11111"},
  "inbounds": [{"tag": "in", "protocol": "socks", "listen": "127.0.0.1", "port": 10808, "settings": {"udp": true}}],
  "outbounds": [
    {"tag": "direct", "protocol": "freedom", "settings": {}},
    {"tag": "proxy-a", "protocol": "socks", "settings": {"servers": [
        {"address": "10.0.0.1", "port": 1080, "users": [{"user": "me", "pass": "pw", "level": 0}]}]}},
    {"tag": "proxy-b", "protocol": "HTTP", "settings": {"address": "proxy.example", "port": 3128, "user": "u", "pass": "p"}},
    {"tag": "proxy-c", "protocol": "http", "settings": {"address": "2001:db8::1", "port": 8443},
     "streamSettings": {"security": "tls", "tlsSettings": {"serverName": "edge.example", "allowInsecure": false}}},
    {"tag": "wan2", "protocol": "direct", "sendThrough": "192.0.2.7", "streamSettings": {"sockopt": {"interface": "wg0"}}},
    {"tag": "block", "protocol": "blackhole"}, {"tag": "dns-out", "protocol": "dns"},
  ],
  "observatory": {"subjectSelector": ["proxy-", "wan"], "probeUrl": "http://probe.example/", "ProbeInterval": "1m30s", "enableConcurrency": true},
  "routing": {
    "domainStrategy": "AsIs",
    "balancers": [{"tag": "fast", "selector": ["proxy-"], "fallbackTag": "block", "strategy": {"type": "leastload", "settings": {
        "expected": 2, "maxRTT": "1s", "tolerance": 0.7, "baselines": ["100ms", "-1s", "300ms"],
        "costs": [{"regexp": false, "match": "c", "value": 4}, {"regexp": true, "match": "x(\\\\d+)"}]}}}],
    "rules": [{"ruleTag": "r1", "inboundTag": ["in"], "port": 443, "network": "tcp,udp", "balancerTag": "fast"},
              {"type": "field", "domain": ["geosite:cn", "full:a.example"], "outboundTag": "direct"}],
  },
}
"""


def _minimal(**blocks: object) -> str:
    return json.dumps({"outbounds": [{"tag": "p", "protocol": "freedom"}], **blocks})


def _warned(settings: Settings) -> list[str]:
    return [f"{each.path}: {each.rule}" for each in settings.warnings]


def test_a_whole_document_is_read_without_a_word() -> None:
    found = read(FULL, name="xray.json")

    assert found.warnings == ()
    assert found.tags == ("direct", "proxy-a", "proxy-b", "proxy-c", "wan2", "block", "dns-out")
    assert [each.reach for each in found.outbounds] == [Reach.NATIVE] * 5 + [Reach.NONE] * 2
    assert found.api is not None
    assert found.api.services == ("HandlerService", "RoutingService", "ObservatoryService")
    assert found.metrics is not None
    assert found.metrics.listen == "127.0.0.1:11111"
    assert (found.inbounds[0].protocol, found.inbounds[0].port) == ("socks", "10808")


def test_outbounds_become_ways() -> None:
    _, a, b, c, wan, *_ = read(FULL).outbounds

    assert (str(a.hops[0]), a.hops[0].user, a.hops[0].password) == ("socks5h://10.0.0.1:1080", "me", "pw")
    assert (str(b.hops[0]), b.hops[0].user) == ("http://proxy.example:3128", "u")
    assert str(c.hops[0]) == "https://[2001:db8::1]:8443"
    assert c.hops[0].secure is not None
    assert (c.hops[0].secure.server_name, c.hops[0].secure.verify) == ("edge.example", True)
    assert (wan.hops, wan.source, wan.interface) == ((), "192.0.2.7", "wg0")


def test_the_standard_observatory_is_read() -> None:
    found = read(FULL).observatory

    assert found is not None
    assert found.selectors == ("proxy-", "wan")
    rules = found.rules
    assert (rules.is_burst, rules.target, rules.interval, rules.concurrent) == (
        False,
        "http://probe.example/",
        90 * SECOND,
        True,
    )
    assert (rules.method, rules.timeout) == ("GET", 5 * SECOND)


def test_balancers_and_rules_are_read() -> None:
    found = read(FULL)

    rules = found.balancers["fast"].rules
    assert (rules.strategy, rules.fallback, rules.selectors) == (Strategy.LEAST_LOAD, "block", ("proxy-",))
    assert rules.load.costs == (Cost("c", 4.0, is_pattern=False), Cost("x(\\d+)", 0.0, is_pattern=True))
    assert (rules.load.expected, rules.load.max_rtt, rules.load.baselines) == (2, SECOND, (100 * MS, 300 * MS))
    assert rules.load.tolerance == float32(0.7)
    assert found.rules[0].conditions == {"port": ("443",), "network": ("tcp", "udp"), "inboundTag": ("in",)}
    assert (found.rules[0].balancer, found.rules[1].outbound) == ("fast", "direct")


@pytest.mark.parametrize("strict", [False, True])
def test_defaults_of_the_standard_observatory(strict: bool) -> None:
    found = read(_minimal(observatory={"subjectSelector": ["p"]}), strict=strict).observatory

    assert found is not None
    assert found.rules.target == "https://www.google.com/generate_204"
    assert found.rules.interval == 10 * SECOND
    assert found.rules.concurrent is False


@pytest.mark.parametrize("strict", [False, True])
def test_defaults_of_the_burst_observatory(strict: bool) -> None:
    found = read(_minimal(burstObservatory={"subjectSelector": ["p"], "pingConfig": {}}), strict=strict).observatory

    assert found is not None
    rules = found.rules
    assert rules.target == "https://connectivitycheck.gstatic.com/generate_204"
    assert (rules.interval, rules.sampling, rules.timeout, rules.method) == (60 * SECOND, 10, 5 * SECOND, "HEAD")
    assert (rules.connectivity, rules.window) == ("", 600 * SECOND)


@pytest.mark.parametrize(
    ("config", "strict", "sampling"),
    [
        ({"sampling": 3}, True, 3),
        ({"samplingCount": 3}, True, 10),
        ({"samplingCount": 3}, False, 3),
        ({"sampling": 3, "samplingCount": 3}, False, 3),
        ({"sampling": 0}, True, 10),
        ({"sampling": -2}, True, 10),
    ],
)
def test_sampling_is_what_xray_reads_and_sampling_count_what_documents_say(
    config: dict[str, int], strict: bool, sampling: int
) -> None:
    found = read(_minimal(burstObservatory={"subjectSelector": ["p"], "pingConfig": config}), strict=strict)

    assert found.observatory is not None
    assert found.observatory.rules.sampling == sampling
    assert ("samplingCount" in config) is any("samplingCount" in each for each in _warned(found))


def test_a_burst_interval_below_ten_seconds_becomes_ten_with_a_warning() -> None:
    found = read(
        _minimal(burstObservatory={"subjectSelector": ["p"], "pingConfig": {"interval": "-1s", "timeout": "-1s"}})
    )

    assert found.observatory is not None
    assert (found.observatory.rules.interval, found.observatory.rules.timeout) == (10 * SECOND, 5 * SECOND)
    assert _warned(found) == [
        "burstObservatory.pingConfig.interval: is below 10s, which is what it becomes, as in Xray"
    ]


def test_a_url_made_to_answer_204_passes_by_204_alone_and_strictly_by_anything() -> None:
    text = _minimal(observatory={"subjectSelector": ["p"]})
    other = _minimal(observatory={"subjectSelector": ["p"], "probeURL": "http://a.example/"})

    cares = [found.rules.care for each in (text, other) if (found := read(each).observatory)]
    strict = read(text, strict=True).observatory

    assert [care.expect for care in cares if care] == [((204, 204),), ((200, 399),)]
    assert strict is not None
    assert strict.rules.care is None


def test_both_observatories_are_built_strictly_and_the_standard_one_is_seen() -> None:
    text = _minimal(
        observatory={"subjectSelector": ["p"]}, burstObservatory={"subjectSelector": ["p"], "pingConfig": {}}
    )

    found = read(text, strict=True)

    assert found.observatory is not None
    assert found.wasted is not None
    assert (found.observatory.is_burst, found.wasted.is_burst) == (False, True)
    assert _warned(found) == ["burstObservatory: is built and asked for nothing: all see observatory, as in Xray"]


def test_foreign_protocols_are_named_and_skipped_or_go_through_a_core() -> None:
    text = json.dumps(
        {
            "outbounds": [
                {"tag": "v", "protocol": "vless", "settings": {"vnext": []}},
                {"tag": "w", "protocol": "wireguard"},
            ],
            "observatory": {"subjectSelector": ["v"]},
        }
    )

    alone, helped = read(text), read(text, core=Core("127.0.0.1", 10808, "pw"))

    assert [each.reach for each in alone.outbounds] == [Reach.CORE] * 2
    assert _warned(alone) == ["outbounds[0].protocol: is selected and not observed: it speaks vless"]
    assert helped.warnings == ()
    assert [(str(each.hops[0]), each.hops[0].user) for each in helped.outbounds] == [
        ("socks5h://127.0.0.1:10808", account("v")),
        ("socks5h://127.0.0.1:10808", account("w")),
    ]


@pytest.mark.parametrize(
    ("outbound", "why"),
    [
        ({"protocol": "socks", "mux": {"enabled": True}}, "multiplexes"),
        ({"protocol": "socks", "streamSettings": {"network": "ws"}}, "is carried by ws"),
        ({"protocol": "socks", "streamSettings": {"security": "tls"}}, "is secured by tls"),
        ({"protocol": "http", "streamSettings": {"security": "reality"}}, "is secured by reality"),
        ({"protocol": "http", "settings": {"headers": {"A": "b"}}}, "sends headers"),
        ({"protocol": "freedom", "settings": {"redirect": "127.0.0.1:80"}}, "redirects"),
        ({"protocol": "freedom", "sendThrough": "10.0.0.0/24"}, "sendThrough is a range"),
        ({"protocol": "freedom", "sendThrough": "origin"}, "sendThrough origin"),
    ],
)
def test_what_our_own_sockets_do_not_do_takes_a_core(outbound: dict[str, object], why: str) -> None:
    (found,) = read(json.dumps({"outbounds": [{"tag": "x", **outbound}]})).outbounds

    assert found.reach is Reach.CORE
    assert found.why.startswith(why)


def test_a_chain_of_proxies_is_gone_through_from_its_far_end() -> None:
    server = {"address": "10.0.0.1", "port": 1080}
    text = json.dumps(
        {
            "outbounds": [
                {"tag": "a", "protocol": "socks", "settings": server, "proxySettings": {"tag": "b"}},
                {
                    "tag": "b",
                    "protocol": "http",
                    "settings": {**server, "port": 3128},
                    "streamSettings": {"sockopt": {"dialerProxy": "c"}},
                },
                {"tag": "c", "protocol": "freedom", "sendThrough": "192.0.2.7"},
                {"tag": "d", "protocol": "freedom", "proxySettings": {"tag": "e"}},
                {"tag": "e", "protocol": "trojan"},
            ]
        }
    )

    a, _, _, d, _ = read(text).outbounds

    assert ([str(hop) for hop in a.hops], a.source) == (
        ["http://10.0.0.1:3128", "socks5h://10.0.0.1:1080"],
        "192.0.2.7",
    )
    assert (d.reach, d.why) == (Reach.CORE, "goes through 'e', which speaks trojan")


def test_our_own_block_says_what_xray_cannot() -> None:
    found = read(
        _minimal(
            observatory={"subjectSelector": ["p"]},
            routing={
                "balancers": [{"tag": "b", "selector": ["p"], "fallbackTag": "c"}, {"tag": "c", "selector": ["p"]}]
            },
            reachline={
                "observatory": {
                    "fall": 2,
                    "rise": 1,
                    "rechecks": 4,
                    "spacing": "500ms",
                    "patience": "1s",
                    "retry": "3s",
                    "budgetPerMinute": 60,
                    "maxConcurrency": 8,
                    "expectStatus": [204, "300-302"],
                    "groups": [
                        {"selector": ["p"], "targets": ["http://a.example/", "http://b.example/", "http://c.example/"]}
                    ],
                },
                "balancers": {
                    "b": {"groups": [["p"]], "allUnhealthy": "block", "advantage": 0.2, "leastAdvantage": "5ms"}
                },
            },
        )
    )

    assert found.observatory is not None
    care = found.observatory.rules.care
    assert care is not None
    assert (care.fall, care.rise, care.rechecks, care.budget, care.concurrency) == (2, 1, 4, 60, 8)
    assert care.expect == ((204, 204), (300, 302))
    assert care.groups == (Group(("p",), ("http://a.example/", "http://b.example/", "http://c.example/"), 2, ()),)
    rules = found.balancers["b"].rules
    assert (rules.groups, rules.all_unhealthy, rules.advantage) == ((("p",),), AllUnhealthy.BLOCK, 200)
    assert (rules.fallback, rules.least_advantage) == ("c", 5 * MS)


def test_several_files_become_one_as_by_confdir() -> None:
    one = Source("01.json", _tagged("a", "b", routing={"rules": [{"outboundTag": "a"}]}))
    two = Source(
        "02.json", json.dumps({"OutBounds": [{"tag": "c", "protocol": "freedom"}, {"tag": "b", "protocol": "dns"}]})
    )
    tail = Source("03_Tail.json", _tagged("d", routing={"rules": []}))

    found = read([one, two, tail])

    assert [(each.tag, each.protocol) for each in found.outbounds] == [
        ("c", "freedom"), ("a", "freedom"), ("b", "dns"), ("d", "freedom"),
    ]  # fmt: skip
    assert found.rules == ()


def _tagged(*tags: str, **blocks: object) -> str:
    return json.dumps({"outbounds": [{"tag": tag, "protocol": "freedom"} for tag in tags], **blocks})


def test_findings_in_several_files_name_their_own_file() -> None:
    one = Source("01.json", _tagged("a"))
    two = Source(
        "02.json",
        '{\n "outbounds": [{"tag": "b", "protocol": "freedom"}],\n "routing": {"rules": [{"outboundTag": "c"}]}}',
    )

    (found,) = read([one, two]).warnings

    assert found.place == "02.json:3:40"


def test_one_of_an_array_of_documents_is_chosen_by_its_remarks() -> None:
    text = json.dumps(
        [{"remarks": "home", **json.loads(_tagged("a"))}, {"Remarks": "work", **json.loads(_tagged("b"))}]
    )

    assert read(text, remarks="work").tags == ("b",)
    assert read(text, remarks="work").remarks == "work"
    assert read(f"[{_tagged('only')}]").tags == ("only",)


@pytest.mark.parametrize(
    ("text", "is_xray"),
    [
        (FULL, True),
        ('[{"remarks": "x", "outbounds": []}]', True),
        ('{"Routing": {}}', True),
        ('{"clusters": {}}', False),
        ("clusters: {}", False),
        ("# a comment\nclusters: {}", False),
        ("", False),
        ('{"outbounds": [', True),
    ],
)
def test_a_document_is_told_by_its_blocks(text: str, is_xray: bool) -> None:
    assert looks_like_xray(text) is is_xray


def test_the_generated_document_is_read_back_and_keeps_the_users_rules() -> None:
    core = Core("127.0.0.1", 10808, "pw")
    users = {"Rules": [{"outboundTag": "v"}], "balancers": []}

    document = relay_document(["v", "w", "v"], core, routing=users)
    found = read([Source("01.json", _tagged("v", "w")), Source("02.json", json.dumps(document))])

    assert found.warnings == ()
    assert [(each.conditions.get("user"), each.outbound) for each in found.rules] == [
        ((account("v"),), "v"),
        ((account("w"),), "w"),
        (None, "v"),
    ]
    assert (found.inbounds[0].listen, found.inbounds[0].port) == ("127.0.0.1", "10808")
