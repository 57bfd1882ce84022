"""Counters as Linux writes them, read from copies made here; and as this machine has them."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from reachline.net import interfaces
from reachline.net.vitals import Core, Host, Nic, host, light

STAT = """cpu  30 0 20 900 5 0 40 5 0 0
cpu0 10 0 10 450 5 0 30 5 0 0
cpu1 20 0 10 450 0 0 10 0 0 0
intr 1 2 3
"""
SNMP = """Tcp: RtoAlgorithm OutSegs RetransSegs
Tcp: 1 5000 77
Udp: InDatagrams RcvbufErrors
Udp: 9 4
"""
ROUTE = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth1\t00000000\t0102000A\t0003\t0\t0\t200\t00000000\t0\t0\t0
eth0\t00000000\t0101000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
eth2\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth3\t0000010A\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
"""As a little-endian machine writes it: two ways out, the metric decides; 10.0.1.0/24, 10.1.0.0/16, and one that is down."""
ROUTE6 = """fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth4
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth5
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """What this test needs of /proc and /sys."""
    (tmp_path / "net").mkdir()
    for name, text in {"stat": STAT, "net/snmp": SNMP, "net/snmp6": "Udp6RcvbufErrors 3\n"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "net/softnet_stat").write_text("00000010 0000000a 00\n00000010 00000002 00\n")
    counters = tmp_path / "eth0/statistics"
    counters.mkdir(parents=True)
    (tmp_path / "eth0/carrier_changes").write_text("7\n")
    for name, value in {
        "rx_packets": 900,
        "tx_packets": 100,
        "rx_dropped": 5,
        "rx_missed_errors": 6,
        "tx_errors": 2,
    }.items():
        (counters / name).write_text(f"{value}\n")
    return tmp_path


def test_a_host_is_read_as_linux_writes_it(machine: Path) -> None:
    found = host(["eth0", "eth9"], proc=machine, nics=machine)

    assert found == Host(
        cores={"cpu0": Core(30, 5, 510), "cpu1": Core(10, 0, 490)},
        nics={"eth0": Nic(1_000, 11, 2, 7)},
        backlog=12,
        segments=5_000,
        again=77,
        full=7,
    )


def test_a_machine_that_tells_nothing_has_no_vitals(tmp_path: Path) -> None:
    assert host(["eth0"], proc=tmp_path, nics=tmp_path) == Host()
    assert light("no-such-interface") is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells this")
def test_this_machine_counts_the_datagrams_that_found_no_room() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as full,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        full.bind(("127.0.0.1", 0))
        before = host(["lo"])

        for _ in range(50):
            sender.sendto(b"x" * 500, full.getsockname())

        after = host(["lo"])
    assert after.full > before.full
    assert after.nics["lo"].packets - before.nics["lo"].packets >= 50
    assert sum(core.total for core in after.cores.values()) >= sum(core.total for core in before.cores.values()) > 0


@pytest.mark.skipif(sys.byteorder != "little", reason="the sample was written by a little-endian machine")
def test_routes_say_where_the_gateway_is_and_by_which_interface_an_address_is_reached(tmp_path: Path) -> None:
    (tmp_path / "route").write_text(ROUTE)
    (tmp_path / "route6").write_text(ROUTE6)

    def taken(*addresses: str) -> frozenset[str]:
        return interfaces.taken(addresses, routes=tmp_path / "route", routes6=tmp_path / "route6")

    assert interfaces.gateway(tmp_path / "route") == "10.0.1.1"
    assert interfaces.gateway(tmp_path / "none") == ""
    assert [*map(taken, ("10.0.1.9", "10.1.0.9", "8.8.8.8"))] == [{"eth0"}, {"eth2"}, {"eth0"}]
    assert taken("fd00::9", "2001:db8::1", "127.0.0.1", "::1") == {"eth4", "eth5", "lo"}
    assert interfaces.taken(["10.0.1.9"], routes=tmp_path / "none", routes6=tmp_path / "none") == frozenset()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells this")
def test_an_interface_has_its_addresses_and_a_missing_one_none() -> None:
    assert "127.0.0.1" in interfaces.addresses_of("lo")
    assert interfaces.index_of("lo") > 0
    assert interfaces.addresses_of("nope0") == frozenset()
    assert interfaces.index_of("nope0") == 0
