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
from reachline.cli.watch_ways import WayOut, parted, shown
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
            "dns://a.test@10.0.0.2?type=AAAA&source=fe80%3A%3A1%25eth0&interface=eth0",
            "dns://a.test@10.0.0.2?type=AAAA",
            WayOut(source="fe80::1%eth0", interface="eth0"),
        ),
        ("http://h/?%73ource=page", "http://h/?%73ource=page", WayOut()),
    ],
)
def test_the_way_is_taken_off_the_target(text: str, url: str, way: WayOut) -> None:
    assert parted(text) == (url, way)


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
        ("tcp://h:1?vai=socks5://p:1", "takes no path"),
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
    ],
)
def test_no_password_is_shown_whatever_is_wrong(text: str) -> None:
    assert "geheim" not in shown(text)
    assert not [problem for problem in told(text, "tcp://nonsense") if "geheim" in problem]


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
        url, way = parted(f"tcp://h:1?{query}")
    except PydanticCustomError:
        return

    assert url.startswith("tcp://h:1")
    assert way.via


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
    assert "ge%2Cheim" not in done.stdout
    assert "ge,heim" not in done.stdout
