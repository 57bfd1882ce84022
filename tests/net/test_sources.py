"""Which own addresses stand beside the one that the route takes: by the kernel's own list, in a namespace of many addresses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from reachline.net.sources import Address, groups
from reachline.testing import parts


def test_addresses_of_one_network_on_one_interface_are_beside_each_other_and_no_others():
    known = [
        Address("10.1.0.1", 24, 2),
        Address("10.1.0.2", 24, 2),
        Address("10.1.0.3", 24, 3),
        Address("10.2.0.1", 24, 2),
        Address("10.1.0.9", 32, 2),
        Address("10.1.0.10", 32, 2),
        Address("fd00::1", 64, 2),
        Address("fd00::2", 64, 2),
    ]

    assert groups(known) == {
        "10.1.0.1": ("10.1.0.1", "10.1.0.2"),
        "10.1.0.2": ("10.1.0.2", "10.1.0.1"),
        "fd00::1": ("fd00::1", "fd00::2"),
        "fd00::2": ("fd00::2", "fd00::1"),
    }


@pytest.fixture(scope="module")
def found():
    """What a machine with two interfaces and several addresses on each finds for these targets."""
    parts.require_namespaces()
    steps = [
        "link add a0 type veth peer name a1",
        "link add b0 type veth peer name b1",
        "addr add 10.1.0.1/24 dev a0",
        "addr add 10.1.0.2/24 dev a0",
        "addr add 10.1.0.7/32 dev a0",
        "addr add 172.16.0.1/24 dev a0",
        "addr add 10.9.0.1/24 dev b0",
        "addr add fd00:a::1/64 dev a0 nodad",
        "addr add fd00:a::2/64 dev a0 nodad",
        "addr add fd00:a::3/64 dev a0 nodad preferred_lft 0",
        "addr add 169.254.7.7/16 dev a0 scope link",
        *(f"link set {name} up" for name in ("lo", "a0", "a1", "b0", "b1")),
        "route add default via 10.1.0.254",
    ]
    targets = ["10.1.0.9", "192.0.2.1", "172.16.0.9", "10.9.0.9", "fd00:a::9", "2001:db8::1", "127.0.0.1"]
    script = (
        "import json, subprocess\n"
        "from reachline.net.sources import addresses, beside, groups\n"
        f"for step in {steps!r}: subprocess.run(['ip', *step.split()], check=True)\n"
        "known = addresses()\n"
        f"found = {{target: beside(target, groups(known)) for target in {targets!r}}}\n"
        "print(json.dumps([sorted(each.address for each in known), found]))"
    )
    said = subprocess.run(
        [parts.require("unshare"), "-n", sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return json.loads(said.stdout)


@pytest.mark.real
@pytest.mark.parametrize(
    ("target", "sources"),
    [
        ("10.1.0.9", ["10.1.0.1", "10.1.0.2"]),
        ("192.0.2.1", ["10.1.0.1", "10.1.0.2"]),
        ("172.16.0.9", []),
        ("10.9.0.9", []),
        ("fd00:a::9", ["fd00:a::1", "fd00:a::2"]),
        ("2001:db8::1", []),
        ("127.0.0.1", []),
    ],
    ids=["near", "by the default route", "alone in its network", "another interface", "v6", "no route", "loopback"],
)
def test_a_target_is_reached_from_the_addresses_beside_the_routes_own(found, target, sources):
    _, chosen = found

    assert sorted(chosen[target]) == sources


@pytest.mark.real
def test_addresses_that_will_not_stay_or_are_of_the_link_are_left_out(found):
    known, _ = found

    assert known == ["10.1.0.1", "10.1.0.2", "10.1.0.7", "10.9.0.1", "172.16.0.1", "fd00:a::1", "fd00:a::2"]
