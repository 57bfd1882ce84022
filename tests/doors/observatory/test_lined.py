"""Observed outbounds as lines of a center: by the same ways, with the observatory's own request, and no password in the document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reachline.doors import reach
from reachline.doors.observatory import lined, read
from reachline.doors.observatory.lined import name_of
from reachline.doors.settings import Document
from reachline.errors import ConfigError
from reachline.model import Locality
from reachline.wire.frame import LinePlan

_URL = "http://probe.example:80/generate_204"


def _text(outbounds: list[dict[str, Any]], **more: object) -> str:
    observatory = {"subjectSelector": ["p-"], "probeURL": _URL, "probeInterval": "20s"}
    return json.dumps({"outbounds": outbounds, "observatory": observatory, **more})


def _document(outbounds: list[dict[str, Any]], **more: object) -> Document:
    found = lined(read(_text(outbounds, **more)))
    return reach.read(json.dumps(found.document), name="lines", environ=found.secrets)


def _plans(outbounds: list[dict[str, Any]], **more: object) -> dict[str, LinePlan]:
    plan = reach.plan(_document(outbounds, **more), agent="a", locality=Locality(), number=1)
    return {each.line.partition("/")[2]: each for each in plan.lines}


def _socks(tag: str, **settings: object) -> dict[str, Any]:
    return {"tag": tag, "protocol": "socks", "settings": {"address": "10.0.0.1", "port": 1080, **settings}}


def test_who_is_observed_is_a_line_and_nobody_else() -> None:
    outbounds = [
        {"tag": "direct", "protocol": "freedom"},
        {"tag": "p-drops", "protocol": "blackhole"},
        {"tag": "p-far", "protocol": "vless"},
        {"tag": "p-near", "protocol": "freedom"},
        _socks("p-a"),
    ]

    assert list(_plans(outbounds)) == ["p-near", "p-a"]


def test_a_line_leaves_as_its_outbound_does() -> None:
    chained: dict[str, Any] = {"tag": "p-chain", "protocol": "http", "settings": {"address": "h.example", "port": 3128}}
    chained["proxySettings"] = {"tag": "p-a"}
    secure: dict[str, Any] = {"tag": "p-tls", "protocol": "http", "settings": {"address": "::1", "port": 443}}
    secure["streamSettings"] = {"security": "tls", "tlsSettings": {"serverName": "s.example", "allowInsecure": True}}
    bound: dict[str, Any] = {"tag": "p-bound", "protocol": "freedom", "sendThrough": "10.0.0.7"}
    bound["streamSettings"] = {"sockopt": {"interface": "wg0"}}

    found = _plans([_socks("p-a", user="u@", **{"pass": "a,b@c"}), chained, secure, bound])

    assert found["p-a"].via == "socks5h://u%40:a%2Cb%40c@10.0.0.1:1080"
    assert found["p-chain"].via == "socks5h://u%40:a%2Cb%40c@10.0.0.1:1080,http://h.example:3128"
    assert found["p-tls"].via == "https://[::1]:443?sni=s.example&verify=no"
    assert (found["p-bound"].via, found["p-bound"].source, found["p-bound"].interface) == ("direct", "10.0.0.7", "wg0")


def test_no_password_stands_in_the_document() -> None:
    found = lined(read(_text([_socks("p-a", user="u", **{"pass": "hidden"})])))

    assert "hidden" not in json.dumps(found.document)
    assert "hidden" not in _document([_socks("p-a", user="u", **{"pass": "hidden"})]).model_dump_json()


@pytest.mark.parametrize("url", ["http://probe.example:80/generate_204", "https://probe.example:443/generate_204"])
def test_the_observatorys_own_request_is_sent_and_nothing_else(url: str) -> None:
    burst = {"destination": url, "interval": "30s", "timeout": "4s", "httpMethod": "HEAD"}
    more = {"burstObservatory": {"subjectSelector": ["p-"], "pingConfig": burst}, "observatory": None}

    (plan,) = _plans([_socks("p-a")], **more).values()

    (probe,) = plan.probes
    assert (plan.target, probe.kind.value) == (url, "http")
    assert (probe.interval_ms, probe.timeout_ms) == (30_000, 4_000)
    assert probe.options == {"method": "HEAD", "expect": "204"}


def test_a_group_has_its_own_target() -> None:
    groups = [{"selector": ["p-b"], "targets": ["http://other.example:80/"]}]

    found = _plans([_socks("p-a"), _socks("p-b")], reachline={"observatory": {"groups": groups}})

    assert (found["p-a"].target, found["p-b"].target) == (_URL, "http://other.example:80/")


@pytest.mark.parametrize(
    ("tag", "readable"),
    [("p-a", "p-a"), ("🇩🇪 Berlin #1", "Berlin-1-"), ("🇩🇪", ""), ("-x", "x-"), ("a" * 64, "a" * 50 + "-")],
)
def test_a_tag_that_is_no_name_is_told_apart_by_its_digest(tag: str, readable: str) -> None:
    found = name_of(tag)

    assert found.startswith(readable)
    assert len(found) <= 63
    assert (found == tag) is (tag == readable)


def test_names_that_would_be_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="one line's name"):
        lined(read(_text([_socks("p- x"), _socks(name_of("p- x"))])))


@pytest.mark.parametrize(
    ("outbounds", "more", "words"),
    [
        ([_socks("p-a")], {"observatory": None}, "observatory: is needed"),
        ([_socks("q")], {}, "subjectSelector: selects no outbound"),
        ([{"tag": "p-v", "protocol": "vless"}], {}, "subjectSelector: selects no outbound"),
    ],
)
def test_where_nothing_is_observed_there_are_no_lines(
    outbounds: list[dict[str, Any]], more: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        lined(read(_text(outbounds, **more)))


def test_requests_alone_end_a_trial_and_give_all_the_weight() -> None:
    breaker = reach.rules(_document([_socks("p-a")]), "outbounds").breaker

    assert breaker.min_ok // 2 >= breaker.starved_min
    assert breaker.steps_milli[1:] == (1_000,)
