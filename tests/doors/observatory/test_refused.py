"""What is refused and what is warned of: by place, value, rule and hint, all of it at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Final

import pytest

from reachline.core.observing import Result
from reachline.core.observing.values import SECOND
from reachline.doors.observatory import Source, machines, read
from reachline.errors import ConfigError

_OUT: Final = [{"tag": "p", "protocol": "freedom"}, {"tag": "p2", "protocol": "freedom"}]
_SEEN: Final = {"subjectSelector": ["p"]}
_LEAST: Final = {"tag": "b", "selector": ["p"], "strategy": {"type": "leastPing"}}


def _refused(document: Mapping[str, object], *, strict: bool = False) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(json.dumps(document), strict=strict)
    return [f"{each.path}: {each.rule}" for each in caught.value.problems]


def _warned(document: Mapping[str, object], *, strict: bool = False) -> list[str]:
    return [f"{each.path}: {each.rule}" for each in read(json.dumps(document), strict=strict).warnings]


@pytest.mark.parametrize(
    ("outbound", "problem"),
    [
        ({"protocol": "sock"}, "outbounds[0].protocol: is no outbound protocol"),
        ({}, "outbounds[0].protocol: is needed and must not be empty"),
        ({"protocol": "socks", "settings": {}}, "outbounds[0].settings.servers: must have one item, it has 0"),
        ({"protocol": "socks", "settings": {"servers": [{}, {}]}}, "outbounds[0].settings.servers: must have one item, it has 2"),
        ({"protocol": "socks", "settings": {"address": "a b", "port": 1}}, "outbounds[0].settings.address: must be a DNS name or an IP address"),
        ({"protocol": "socks", "settings": {"address": "a"}}, "outbounds[0].settings.port: is needed, a whole number from 1 to 65535"),
        ({"protocol": "socks", "settings": {"address": "a", "port": "1080"}}, "outbounds[0].settings.port: must be a whole number"),
        ({"protocol": "socks", "settings": {"address": "a", "port": 70000}}, "outbounds[0].settings.port: must be a whole number from 1 to 65535"),
        ({"protocol": "socks", "settings": {"address": "${HOST}", "port": 1}}, "outbounds[0].settings.address: is a template: '${HOST}' was not filled in"),
        ({"protocol": "freedom", "sendThrough": "eth0"}, "outbounds[0].sendThrough: must be an address of this machine, origin or srcip"),
        ({"protocol": "freedom", "proxySettings": {"tag": "z"}}, "outbounds[0]: goes through 'z', which is no outbound"),
        ({"protocol": "freedom", "tag": "z", "proxySettings": {"tag": "z"}}, "outbounds[0]: goes through itself: 'z' → 'z'"),
        ({"protocol": "freedom", "tag": "a\nb"}, "outbounds[0].tag: must be printable and of at most 255 characters"),
        ([], "outbounds[0]: must be a block of fields, {…}"),
    ],
)  # fmt: skip
def test_an_outbound_that_cannot_be_is_refused(outbound: object, problem: str) -> None:
    assert problem in _refused({"outbounds": [outbound]})


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [
        ({"observatory": {**_SEEN, "probeInterval": 10}}, "observatory.probeInterval: must be a duration in quotes, with its unit"),
        ({"observatory": {**_SEEN, "probeURL": "ftp://a.example"}}, "observatory.probeURL: must be an http:// or https:// URL"),
        ({"observatory": {**_SEEN, "probeURL": "http://u:p@a.example"}}, "observatory.probeURL: must not hold a user or password"),
        ({"observatory": {**_SEEN, "enableConcurrency": "true"}}, "observatory.enableConcurrency: must be true or false"),
        ({"observatory": {"subjectSelector": [1]}}, "observatory.subjectSelector: must be a list of texts"),
        ({"observatory": {"subjectSelector": "p"}}, "observatory.subjectSelector: must be a list of texts"),
        ({"burstObservatory": _SEEN}, "burstObservatory.pingConfig: is needed: Xray refuses a burstObservatory without it"),
        ({"burstObservatory": {**_SEEN, "pingConfig": {"httpMethod": "FETCH"}}}, "burstObservatory.pingConfig.httpMethod: must be HEAD or GET or POST or PUT or OPTIONS or DELETE or PATCH"),
        ({"burstObservatory": {**_SEEN, "pingConfig": {"sampling": 3, "samplingCount": 4}}}, "burstObservatory.pingConfig.samplingCount: contradicts sampling, which is 3"),
        ({"burstObservatory": {**_SEEN, "pingConfig": {"sampling": 1.5}}}, "burstObservatory.pingConfig.sampling: must be a whole number"),
        ({"routing": {"balancers": [{"selector": ["p"]}]}}, "routing.balancers[0].tag: is needed and must not be empty"),
        ({"routing": {"balancers": [{"tag": "b"}]}}, "routing.balancers[0].selector: is needed and must not be empty"),
        ({"routing": {"balancers": [{"tag": "b", "selector": ["p"], "strategy": {"type": "leastPong"}}]}}, "routing.balancers[0].strategy.type: must be random or roundRobin or leastPing or leastLoad"),
        ({"routing": {"balancers": [{"tag": "b", "selector": ["p"]}] * 2}}, "routing.balancers[1].tag: stands here a second time"),
        ({"routing": {"rules": [{"port": 443}]}}, "routing.rules[0].outboundTag: is needed, or balancerTag"),
        ({"routing": {"balancers": [_LEAST]}}, "routing.balancers[0]: needs an observatory, and the document has none: strategy leastPing"),
        ({"routing": {"balancers": [{"tag": "b", "selector": ["p"], "fallbackTag": "p"}]}}, "routing.balancers[0]: needs an observatory, and the document has none: strategy random with a fallbackTag"),
        ({"api": {"services": []}}, "api.tag: is needed and must not be empty"),
        ({"api": {"tag": "api", "services": ["ObservatoryService"]}}, "api.services: holds ObservatoryService, and the document has no observatory"),
        ({"metrics": {}}, "metrics.listen: is needed, or a tag that an inbound is routed to"),
        ({"transport": {"tcpSettings": {}}}, "transport: was removed from Xray"),
        ({"inbounds": [{"protocol": "sox"}]}, "inbounds[0].protocol: is no inbound protocol"),
        ({"reachline": {"observatry": {}}}, "reachline.observatry: unknown field"),
        ({"reachline": {"observatory": {"fall": 4, "rechecks": 2}}}, "reachline.observatory.fall: can never be reached: a failure and 2 re-checks are 3"),
        ({"reachline": {"observatory": {"expectStatus": ["2xx"]}}}, "reachline.observatory.expectStatus: must be statuses and ranges of them, from 100 to 599"),
        ({"reachline": {"observatory": {"spacing": "1ms"}}}, "reachline.observatory.spacing: must be from 100ms to 1h"),
        ({"reachline": {"observatory": {"groups": [{"selector": ["p"], "targets": ["x"]}]}}}, "reachline.observatory.groups[0].targets: must be an http:// or https:// URL"),
        ({"reachline": {"observatory": {"groups": [{"targets": []}]}}}, "reachline.observatory.groups[0].selector: must not be empty"),
        ({"reachline": {"balancers": {"b": {}}}}, "reachline.balancers.b: names no balancer of the document"),
        ({"reachline": {"core": {"socks": "10808", "password": "x"}}}, "reachline.core.socks: must be the host:port of the core's SOCKS inbound"),
    ],
)  # fmt: skip
def test_a_block_that_cannot_be_is_refused(blocks: Mapping[str, object], problem: str) -> None:
    assert problem in _refused({"outbounds": _OUT, **blocks})


def test_both_observatories_are_refused_with_both_places() -> None:
    found = _refused({"outbounds": _OUT, "observatory": _SEEN, "burstObservatory": {**_SEEN, "pingConfig": {}}})

    assert found == [
        "observatory: excludes burstObservatory, which is set too",
        "burstObservatory: excludes observatory, which is set too",
    ]


def test_a_circle_of_fallbacks_is_refused_at_every_balancer_on_it() -> None:
    balancers = [{"tag": tag, "selector": ["p"], "fallbackTag": to} for tag, to in (("a", "b"), ("b", "c"), ("c", "b"))]

    found = _refused({"outbounds": _OUT, "observatory": _SEEN, "routing": {"balancers": balancers}})

    assert found == [
        "routing.balancers[1].fallbackTag: falls back to itself: b → c → b",
        "routing.balancers[2].fallbackTag: falls back to itself: c → b → c",
    ]


@pytest.mark.parametrize(
    ("blocks", "warning"),
    [
        ({"observatory": {}}, "observatory.subjectSelector: is not set: nothing is observed"),
        ({"observatory": {"subjectSelector": []}}, "observatory.subjectSelector: is empty: nothing is observed"),
        ({"observatory": {"subjectSelector": ["q"]}}, "observatory.subjectSelector: selects no outbound: nothing is observed"),
        ({"observatory": {"subjectSelector": ["p"]}}, "observatory.subjectSelector[0]: is an outbound's whole tag and the beginning of 'p2' too"),
        ({"observatory": {**_SEEN, "probeIntervall": "1s"}}, "observatory.probeIntervall: unknown field, which Xray ignores"),
        ({"routing": {"balancers": [{"tag": "b", "selector": ["p2", "b"]}]}}, "routing.balancers[0].selector[1]: is a balancer's tag: selectors choose among outbounds"),
        ({"routing": {"balancers": [{"tag": "b", "selector": ["q"]}]}}, "routing.balancers[0].selector: selects no outbound: nothing is ever chosen"),
        ({"observatory": {"subjectSelector": ["p2"]}, "routing": {"balancers": [_LEAST]}}, "routing.balancers[0].selector: selects 'p', which the observatory does not observe"),
        ({"routing": {"rules": [{"outboundTag": "q"}]}}, "routing.rules[0].outboundTag: names no outbound: Xray drops such connections"),
        ({"routing": {"rules": [{"balancerTag": "q"}]}}, "routing.rules[0].balancerTag: names no balancer: Xray drops such connections"),
        ({"observatory": _SEEN, "routing": {"balancers": [{**_LEAST, "fallbackTag": "q"}]}}, "routing.balancers[0].fallbackTag: names no outbound: Xray drops such connections"),
        ({"observatry": {}}, "observatry: unknown block, which Xray ignores"),
        ({"metrics": {"listen": "0.0.0.0:11111"}}, "metrics.listen: can be reached from other machines, and asks for no password"),
        ({"api": {"tag": "api", "services": ["StatService"]}}, "api.services[0]: is no service"),
    ],
)  # fmt: skip
def test_what_xray_takes_and_people_do_not_mean_is_warned_of(blocks: Mapping[str, object], warning: str) -> None:
    assert warning in _warned({"outbounds": _OUT, **blocks})


def test_an_empty_selection_is_told_once() -> None:
    assert _warned({"outbounds": _OUT, "observatory": {"subjectSelector": ["q"]}}) == [
        "observatory.subjectSelector: selects no outbound: nothing is observed"
    ]


def test_tags_of_the_api_of_metrics_and_of_reverse_portals_are_outbounds_to_rules() -> None:
    rules = [{"outboundTag": tag} for tag in ("api", "metrics", "portal", "link")]
    clients = [{"id": "x", "reverse": {"tag": "link"}}]

    assert not _warned(
        {
            "outbounds": _OUT,
            "api": {"tag": "api"},
            "metrics": {"tag": "metrics"},
            "reverse": {"portals": [{"tag": "portal", "domain": "x"}]},
            "inbounds": [{"tag": "in", "protocol": "vless", "port": 443, "settings": {"clients": clients}}],
            "routing": {"rules": rules},
        }
    )


def test_strictly_a_balancer_as_fallback_is_a_dropped_connection() -> None:
    balancers = [{**_LEAST, "selector": ["p2"], "fallbackTag": "c"}, {"tag": "c", "selector": ["p2"]}]

    found = _warned(
        {"outbounds": _OUT, "observatory": {"subjectSelector": ["p2"]}, "routing": {"balancers": balancers}},
        strict=True,
    )

    assert found == [
        "routing.balancers[0].fallbackTag: is a balancer's tag: Xray takes it for an outbound's and drops the connection"
    ]


def test_problems_are_told_in_the_order_of_the_file_with_place_value_and_hint() -> None:
    text = '{"outbounds": [\n {"protocol": "vles"}\n],\n "observatory": {"subjectSelector": ["a"],\n  "probeInterval": 10}}'

    with pytest.raises(ConfigError) as caught:
        read(text, name="x.json")

    assert str(caught.value).splitlines() == [
        "x.json:2:15: outbounds[0].protocol: is no outbound protocol; did you mean vless? (got 'vles')",
        'x.json:5:20: observatory.probeInterval: must be a duration in quotes, with its unit; write "10s" or "10ms" (got 10)',
    ]


def test_no_secret_is_told() -> None:
    account = {"user": "u" * 300, "pass": "hidden" * 60}

    with pytest.raises(ConfigError) as caught:
        read(
            json.dumps(
                {"outbounds": [{"protocol": "socks", "settings": {"address": "a", "port": 1, **account, "users": 3}}]}
            )
        )

    assert "hidden" not in str(caught.value)
    assert "uuuu" not in str(caught.value)


def test_a_password_of_the_wrong_kind_is_not_told() -> None:
    with pytest.raises(ConfigError) as caught:
        read(json.dumps({"outbounds": [{"protocol": "socks", "settings": {"address": "a", "port": 1, "pass": 4711}}]}))

    assert "4711" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "remarks", "rule"),
    [
        ('[{"remarks": "a"}, {}]', None, "holds 2 documents; say which by its remarks"),
        ('[{"remarks": "a"}, {"remarks": "a"}]', "a", "is the second document named 'a'"),
        ('[{"remarks": "a"}]', "b", "names no document"),
        ("[]", None, "must be a block, {…}, or a list of such documents"),
        ("3", None, "must be a block, {…}, or a list of such documents"),
    ],
)
def test_an_array_of_documents_needs_one_name(text: str, remarks: str | None, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text, remarks=remarks)

    assert caught.value.problems[0].rule == rule


def test_no_file_is_no_document() -> None:
    with pytest.raises(ConfigError, match="holds no document"):
        read([])


def test_broken_texts_of_all_files_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read([Source("1.json", "{"), Source("2.json", "}")])

    assert [each.place for each in caught.value.problems] == ["1.json:1:2", "2.json:1:1"]


def _weighing(value: float) -> str:
    strategy = {"type": "leastLoad", "settings": {"costs": [{"match": "a", "value": value}]}}
    return json.dumps(
        {
            "outbounds": [{"tag": "a", "protocol": "freedom"}],
            "observatory": {"subjectSelector": ["a"]},
            "routing": {"balancers": [{"tag": "b", "selector": ["a"], "strategy": strategy}]},
        }
    )


@pytest.mark.parametrize("value", [3.5e38, -1e300])
def test_a_weight_beyond_what_xray_can_hold_is_refused(value: float) -> None:
    with pytest.raises(ConfigError) as caught:
        read(_weighing(value))

    assert caught.value.problems[0].rule == "must be a number of at most 3.4e+38"


def test_the_largest_weight_of_all_is_chosen_by() -> None:
    made = machines(read(_weighing(3.4e38), strict=True), now=0, rng=Random(1))
    assert made.observer is not None
    (ask,) = made.observer.due(0)
    made.observer.ended(ask.serial, Result(ok=True, rtt=SECOND, status=204), SECOND)

    assert made.balancers["b"].pick(SECOND, Random(1)).tag == "a"
