"""`?via=…&source=…&interface=…` behind a target of `watch`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from reachline.cli.watch_targets import Pace, read_targets
from reachline.cli.watch_ways import Parted, WayOut, parted, shown
from reachline.errors import ConfigError
from reachline.testing import parts, proxies

COMMAND = (sys.executable, "-m", "reachline", "watch")


def told(*texts: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_targets(texts, Pace())
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "url", "way"),
    [
        ("tcp://h:1", "tcp://h:1", WayOut()),
        ("https://h/x?a=1&b=2", "https://h/x?a=1&b=2", WayOut()),
        ("tcp://h:1?via=socks5://p:1", "tcp://h:1", WayOut(via="socks5://p:1")),
        ("https://h/x?a=1&via=http://p:1&b=2", "https://h/x?a=1&b=2", WayOut(via="http://p:1")),
        ("tcp://h:1?via=socks5%3A%2F%2Fu%3Ap%2540w%40p%3A1", "tcp://h:1", WayOut(via="socks5://u:p%40w@p:1")),
        ("tcp://h:1?via=socks5://u:p%2Cw@p:1", "tcp://h:1", WayOut(via="socks5://u:p%2Cw@p:1")),
        ("tcp://h:1?via=socks5://p:1,http://q:2", "tcp://h:1", WayOut(via="socks5://p:1,http://q:2")),
        ("tcp://h:1?via=socks5://p:1&via=http://q:2", "tcp://h:1", WayOut(via="socks5://p:1,http://q:2")),
        ("tcp://h:1?via=https://p:1?ca=/etc/ca.pem", "tcp://h:1", WayOut(via="https://p:1?ca=/etc/ca.pem")),
        ("tcp://h:1?via=direct", "tcp://h:1", WayOut()),
        (
            "dns://10.0.0.2/a.test?type=AAAA&source=fe80%3A%3A1%25eth0&interface=eth0",
            "dns://10.0.0.2/a.test?type=AAAA",
            WayOut(source="fe80::1%eth0", interface="eth0"),
        ),
        ("http://h/?%73ource=page", "http://h/?%73ource=page", WayOut()),
    ],
)
def test_the_way_is_taken_off_the_target_and_a_page_keeps_its_query(text: str, url: str, way: WayOut) -> None:
    assert parted(text) == Parted(url, way, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://h:1?via=", "says via without a value"),
        ("tcp://h:1?source", "says source without a value"),
        ("tcp://h:1?via=socks5://p", "needs the proxy's port; did you mean socks5://p:1080?"),
        ("tcp://h:1?via=socks4://p:1", "SOCKS4 is not spoken"),
        ("tcp://h:1?source=eth0", "an interface's name belongs under interface"),
        ("http://h/?source=page", "a page's own parameter is written %73ource"),
        ("tcp://h:1?source=10.0.0.1&source=10.0.0.2", "says source twice"),
        ("tcp://h:1?interface=eth0&interface=eth1", "says interface twice"),
        ("tcp://h:1?interface=a-name-that-is-long", "the name of an interface"),
        ("tcp://h:1?interface=a%2Fb", "the name of an interface"),
        ("icmp://h?via=socks5://p:1", "cannot go by way of a proxy: echo requests do not go through a proxy; drop via"),
        ("tcp://h:1?vai=socks5://p:1", "vai: is not an option of this probe"),
        ("tcp://h:25?expct=220", "expct: is not an option of this probe; did you mean expect?"),
        ("tcp://h:25?expect=1&expect=2", "says expect twice"),
        ("tcp://h:25?", "says an option without a value"),
        ("tcp://h:1?family=5", "must have 4 or 6 as its family"),
        ("tcp://10.0.0.1:1?family=6", "has an IPv4 address, but family=6; drop family"),
        ("tcp://h:1?family=6&via=http://p:1", "cannot choose a family: the proxy resolves the name"),
        ("tls://h?verify=maybe", "verify: must be true or false"),
        ("redis://u:p?w@h:6379", "has ?, # or & within a user or password; percent-encode them: %3F, %23, %26"),
        ("tcp://h:1?via=socks5://u:1&2@p:1", "has ?, # or & within a user or password"),
        ("icmp://h?size=1", "size: must be a whole number from 8"),
    ],
)
def test_a_way_that_cannot_be_gone_is_told_in_words(text: str, expected: str) -> None:
    [only] = told(text)

    assert expected in only


@pytest.mark.parametrize(
    "text",
    [
        "tcp://h:1?via=socks5://bob:geheim@p",
        "tcp://h:1?via=socks5%3A%2F%2Fbob%3Ageheim%40p%3A1",
        "tcp://h:1?via=bob:geheim@p:1",
        "tcp://h?via=socks5://bob:geheim@p:1",
        "tcp://h:1?via=http://p:1,socks5://bob:geheim@q",
        "icmp://h?via=socks5://bob:geheim@p:1",
        "tcp://h:1?via=socks5://bob:ge,heim:geheim@p:1",
        "redis://h?password=geheim&db=x",
        "redis://bob:geheim?geheim@h",
        "redis://bob:geheim#geheim@h/1",
        "redis://bob:geheim?x=geheim@h/1",
        "tcp://h:1?via=socks5://bob:geheim&x=geheim@p:1",
        "tcp://h:1?via=socks5://bob:geheim&geheim@p:1",
        "https://h/?via=socks5://bob:1%61#geheim@p:1",
        "https://h/#headers=Authorization%3A%20geheim&expect=x",
    ],
)
def test_no_password_is_shown_whatever_is_wrong(text: str) -> None:
    assert "geheim" not in shown(text)
    assert not [problem for problem in told(text, "tcp://nonsense") if "geheim" in problem]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("tcp://h:25?expect=220", {"expect": "220"}),
        ("tcp://h:25?send=QUIT%5Cr%5Cn&expect=yes&tls=yes", {"send": r"QUIT\r\n", "expect": "yes", "tls": True}),
        ("tls://h?verify=no&sni=a.test", {"verify": False, "sni": "a.test"}),
        ("icmp://127.0.0.1?size=100", {"size": 100}),
        ("redis://h?exists=007&db=2&password=geheim", {"exists": "007", "db": 2, "password": "geheim"}),
        ("https://h/x?verify=no#version=2&expect=404&verify=no", {"version": "2", "expect": "404", "verify": False}),
        ("dns://a.test@10.0.0.2?type=AAAA&recurse=no", {"name": "a.test", "type": "AAAA", "recurse": False}),
        ("dns://10.0.0.2/a.test?type=AAAA#min_ttl=5", {"min_ttl": 5}),
        ("tcp://h:1?limit=10&expect=x", {"limit": 10, "expect": "x"}),
    ],
)
def test_what_else_is_said_are_options_in_the_types_of_the_document(text: str, options: dict[str, object]) -> None:
    [target] = read_targets((text,), Pace())

    assert target.plan.probes[0].options == options


def test_two_targets_that_differ_in_their_way_only_are_two() -> None:
    targets = read_targets(("tcp://h:1", "tcp://h:1?via=socks5://u:pw@p:1", "tcp://h:1?source=10.0.0.1"), Pace())

    assert [target.text for target in targets] == [
        "tcp://h:1",
        "tcp://h:1?via=socks5://u@p:1",
        "tcp://h:1?source=10.0.0.1",
    ]
    assert [target.plan.via for target in targets] == ["direct", "socks5://u:pw@p:1", "direct"]
    assert {target.plan.target for target in targets} == {"tcp://h:1"}


@given(st.text(max_size=60))
def test_any_query_is_a_way_or_is_refused_in_words(query: str) -> None:
    try:
        found = parted(f"tcp://h:1?{query}")
    except PydanticCustomError:
        return

    assert found.url == "tcp://h:1"
    assert found.way.via


@pytest.mark.e2e
@pytest.mark.real
def test_watch_looks_through_proxies(tmp_path: Path) -> None:
    for name in ("web", "socks", "http"):
        (tmp_path / name).mkdir()
    with (
        parts.nginx(tmp_path / "web") as web,
        proxies.microsocks(tmp_path / "socks", user="bob", password="ge,heim") as socks,
        proxies.tinyproxy(tmp_path / "http") as tiny,
    ):
        signed_in = f"socks5h://bob:ge%2Cheim@127.0.0.1:{socks.port}"
        targets = (
            f"tcp://127.0.0.1:{web.port}?via={signed_in}",
            f"http://localhost:{web.port}/?x=1&via=http://127.0.0.1:{tiny.port}&source=127.0.0.1",
            f"http://127.0.0.1:{web.port}/?via={signed_in}&via=http://127.0.0.1:{tiny.port}",
        )
        command = [*COMMAND, *targets, "--count", "2", "--interval", "0.2", "--timeout", "5", "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    last = {each["target"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert (done.returncode, done.stderr) == (0, "")
    assert last.keys() == {text.replace(":ge%2Cheim", "") for text in targets}
    assert {(each["state"], each["clock"], each["ok"]) for each in last.values()} == {("healthy", "rx_stamp", True)}
    assert all(0 < each["proxy"] <= each["total"] for each in last.values()), "the time beyond the proxy's own connect"
    assert all(0 <= each["connect"] < 5 for each in last.values())
    assert "ge%2Cheim" not in done.stdout
    assert "ge,heim" not in done.stdout


def test_a_login_in_a_target_is_an_option_and_not_shown() -> None:
    [target] = read_targets(("redis://bob:p%40w@h/2",), Pace())

    assert target.text == "redis://***@h/2"
    assert target.plan.target == "redis://h:6379/2"
    assert target.plan.probes[0].options == {"user": "bob", "password": "p@w"}
