"""Limits are those that the kernel tells, here and in a namespace whose limits are others."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reachline.net import budget, kernel
from reachline.testing import parts


def test_descriptors_are_raised_to_the_hard_limit_and_a_reserve_is_left_alone():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))

        found = budget.files(None)

        assert (found.before, found.now) == (1024, kernel.file_limit())
        assert found.attempts == found.now - kernel.RESERVE
        assert budget.files(100).attempts == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_port_closed_by_fin_is_gone_for_a_minute_so_the_range_bounds_the_rate():
    found = budget.Ports(range(32_768, 61_000), 28_232, 60.0)

    assert found.rate == pytest.approx(470.5, abs=0.1)
    assert found.share(235.0) == pytest.approx(0.4995, abs=1e-3)


def test_ports_are_those_of_this_machine():
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())

    found = budget.ports()

    assert found.usable == range(low, high + 1)
    assert 0 < found.number <= len(found.usable)


@pytest.mark.real
@pytest.mark.parametrize(
    ("reuse", "holds"),
    [("0", [60.0, 60.0]), ("1", [1.0, 1.0]), ("2", [60.0, 1.0])],
    ids=["never", "always", "loopback"],
)
def test_a_namespace_has_a_range_reserved_ports_and_reuse_of_its_own(reuse, holds):
    parts.require_namespaces()
    settings = {
        "ip_local_port_range": "40000 40099",
        "ip_local_reserved_ports": "40010,40020-40029",
        "tcp_tw_reuse": reuse,
    }
    script = (
        "import json, pathlib\n"
        "from reachline.net import budget\n"
        f"for name, value in {settings!r}.items(): pathlib.Path('/proc/sys/net/ipv4', name).write_text(value)\n"
        "found = [budget.ports(is_loopback=near) for near in (False, True)]\n"
        "print(json.dumps([[each.usable.start, each.usable.stop, each.number, each.hold] for each in found]))"
    )
    said = subprocess.run(
        [parts.require("unshare"), "-n", sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert json.loads(said.stdout) == [[40_000, 40_100, 89, hold] for hold in holds]
