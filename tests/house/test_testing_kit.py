"""The testing kit itself: waits, builders and real parts."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from unittest import SkipTest

import pytest

from reachline.core.rules import Rules
from reachline.model import Gate
from reachline.testing import bench, builders, parts
from reachline.testing.wait import eventually, until


def test_eventually_returns_the_first_true_answer() -> None:
    answers = iter([0, None, "", "here", "later"])

    assert eventually(lambda: next(answers), every=0.0) == "here"


def test_eventually_retries_failed_assertions_and_raises_the_last_one() -> None:
    tries: list[int] = []

    def check() -> bool:
        tries.append(1)
        assert len(tries) > 10_000_000, f"only {len(tries)}"
        return True

    with pytest.raises(AssertionError, match=r"not within 0\.05 s: a lot of tries \(only \d+"):
        eventually(check, within=0.05, every=0.001, what="a lot of tries")
    assert len(tries) > 1


def test_eventually_lets_other_errors_through_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0, within=60.0)


def test_until_asks_functions_and_coroutines() -> None:
    async def both() -> tuple[int, int]:
        answers, later = iter([0, 0, 7]), iter([0, 9])

        async def ask() -> int:
            return next(later)

        return await until(lambda: next(answers), every=0.0), await until(ask, every=0.0)

    assert asyncio.run(both()) == (7, 9)


def test_until_names_what_it_waited_for() -> None:
    with pytest.raises(AssertionError, match="a miracle"):
        asyncio.run(until(lambda: False, within=0.02, every=0.005, what="a miracle"))


def test_built_readings_have_counts_that_agree_with_each_other() -> None:
    for each in (builders.healthy(), builders.slow(), builders.mute()):
        assert each.fresh_ok + each.fresh_failed == each.counts.attempts
        assert each.answered == each.counts.attempts - each.counts.late
        assert each.sent >= each.counts.attempts
    assert builders.slow().jitter_us == 130_000


def test_built_readings_are_on_the_side_of_the_default_limits_that_their_names_say() -> None:
    patience = Rules().patience  # the default rules stand here so that a change of them comes by this test
    assert patience.degraded == 2
    healthy, slow = builders.healthy(), builders.slow()

    assert healthy.p95_us is not None
    assert healthy.p95_us < 200_000
    assert slow.p95_us is not None
    assert 200_000 <= slow.p95_us < 500_000
    assert builders.mute().rounds_ok == 0


def test_built_snapshot_is_sorted_as_published() -> None:
    low, high = builders.standing("a", weight=5), builders.standing("b")
    shut = builders.standing("c", weight=0, gate=Gate.OPEN)

    assert [each.line for each in builders.snapshot(shut, low, high).standings] == [
        "payments/b",
        "payments/a",
        "payments/c",
    ]


def test_a_missing_part_skips_by_name_and_says_what_to_install() -> None:
    with pytest.raises(SkipTest, match=r"no-such-part is not installed \(Debian: apt-get install no-such-part\)"):
        parts.require("no-such-part")


def test_every_part_is_in_the_list_that_make_test_installs(root: Path) -> None:
    listed = (root / "requirements/debian.txt").read_text().split("\n")

    assert set(parts.PACKAGES.values()) <= set(listed)


@pytest.mark.real
def test_nginx_serves_what_the_test_says(tmp_path: Path) -> None:
    sick = parts.nginx(tmp_path, server="location /healthz { return 503 'sick'; }")
    with sick as running, pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://127.0.0.1:{running.port}/healthz", timeout=30)
    assert running.process.poll() is not None
    assert not parts.is_open(running.port)


def _query(name: str) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 1, 1)


@pytest.mark.real
def test_dnsmasq_answers_the_records_of_the_test(tmp_path: Path) -> None:
    with (
        parts.dnsmasq(tmp_path, records={"a.test": "127.0.0.9"}) as running,
        socket.socket(type=socket.SOCK_DGRAM) as ask,
    ):
        ask.settimeout(5.0)
        ask.sendto(_query("a.test"), ("127.0.0.1", running.port))
        answer = ask.recv(512)

    assert answer.endswith(bytes([127, 0, 0, 9]))


@pytest.mark.real
def test_redis_answers_a_ping(tmp_path: Path) -> None:
    with parts.redis(tmp_path) as running, socket.create_connection(("127.0.0.1", running.port), timeout=30) as ask:
        ask.sendall(b"PING\r\n")

        assert ask.recv(16) == b"+PONG\r\n"


@pytest.mark.real
def test_veth_carries_packets_that_tcpdump_sees(tmp_path: Path) -> None:
    capture = tmp_path / "x.pcap"
    with parts.veth() as wire:
        watching = parts.captured(wire.near_name, "udp port 9", file=capture)
        with watching, socket.socket(type=socket.SOCK_DGRAM) as out:
            out.sendto(b"reachline", (wire.far, 9))
            eventually(lambda: b"reachline" in capture.read_bytes(), what="the packet in the capture")
        inside = subprocess.run(wire.inside("ip", "-br", "addr"), capture_output=True, text=True, check=True)
        assert wire.far in inside.stdout

    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert wire.namespace not in names


def test_a_benchmark_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = iter([99.0, 3.0, 1.0, 2.0])

    figure = bench.measured("a pick", "µs", lambda: next(values), runs=3, bound="≤ 5")
    path = bench.finish("sdk", [figure], directory=tmp_path / "results")

    assert figure[:5] == ("a pick", "µs", 2.0, 1.0, 3.0), "the first run warms up and is not counted"
    assert "a pick       2  1 – 3  µs    ≤ 5" in capsys.readouterr().out
    written = json.loads(path.read_text())
    assert written["figures"][0] | {"runs": 3} == figure._asdict()
    assert written["machine"].keys() == {"at", "cores", "load", "openssl", "processor", "python", "release", "system"}
