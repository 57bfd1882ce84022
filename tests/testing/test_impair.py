from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from reachline.testing.impair import Bottle, Box, Profile, impaired


def packet(*, source: int = 1, target: int = 1, size: int = 100) -> bytes:
    raw = bytearray(size)
    raw[0] = 0x45
    raw[15], raw[19] = source, target
    return bytes(raw)


def bottle(profile: Profile) -> Bottle:
    return Bottle({7: profile}, Profile(), random.Random(1))


def carried(made: Bottle, count: int, *, every: float = 0.001) -> list[float]:
    """Delays of `count` packets to line 7."""
    for number in range(count):
        made.take(packet(target=7), near=False, now=number * every)
    return [held.due - (held.order - 1) * every for held in made.release(1e9)]


def test_each_address_has_its_own_profile_both_ways():
    made = bottle(Profile(delay=0.02))
    made.take(packet(target=7), near=False, now=0.0)
    made.take(packet(source=7), near=True, now=0.0)
    made.take(packet(target=8), near=False, now=0.0)

    out = [(held.due, held.near) for held in made.release(1.0)]

    assert out == [(0.0, False), (0.02, False), (0.02, True)]


def test_jitter_moves_the_delay_and_keeps_the_order():
    delays = carried(bottle(Profile(delay=0.05, jitter=0.02)), 500, every=0.0001)

    assert min(delays) >= 0.03
    assert len(delays) == 500
    assert max(delays) <= 0.07 + 0.05


@pytest.mark.parametrize(
    ("profile", "low", "high"),
    [
        (Profile(loss=0.1), 0.08, 0.12),
        (Profile(burst=(0.02, 0.2, 1.0)), 0.06, 0.12),
        (Profile(hole=True), 1.0, 1.0),
        (Profile(), 0.0, 0.0),
    ],
)
def test_losses_are_as_often_as_the_profile_says(profile, low, high):
    made = bottle(profile)

    carried(made, 5_000)

    assert low <= made.dropped / 5_000 <= high


def test_a_rate_queues():
    delays = carried(bottle(Profile(rate=10_000)), 3, every=0.0)

    assert delays == pytest.approx([0.01, 0.02, 0.03])


def test_a_change_is_for_packets_to_come():
    made = bottle(Profile(delay=0.5))
    made.take(packet(target=7), near=False, now=0.0)
    made.change(7, Profile(hole=True))
    made.take(packet(target=7), near=False, now=0.0)

    assert [held.due for held in made.release(1.0)] == [0.5]
    assert made.dropped == 1


def test_what_is_no_ipv4_is_left_alone():
    made = bottle(Profile())
    made.take(b"", near=False, now=0.0)
    made.take(b"\x60" + bytes(60), near=False, now=0.0)

    assert made.next_due() is None


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with impaired({7: Profile(delay=0.01), 8: Profile(hole=True)}) as made:
        yield made


def ping(box: Box, number: int) -> tuple[str, float]:
    script = (
        "import socket,struct,sys,time; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(1); t=time.monotonic()\n"
        "s.connect((sys.argv[1], 9)); s.send(b'x')\n"
        "try: s.recv(9)\n"
        "except OSError as e: print(type(e).__name__, time.monotonic()-t)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, box.address(number)], capture_output=True, text=True, check=True
    )
    name, took = said.stdout.split()
    return name, float(took)


@pytest.mark.real
def test_a_real_path_is_delayed_lost_and_changed_live(box):
    delayed, took = ping(box, 7)
    assert (delayed, 0.02 <= took < 0.5) == ("ConnectionRefusedError", True)

    assert ping(box, 8)[0] == "TimeoutError"

    box.change(8, Profile(delay=0.03))
    changed, took = ping(box, 8)
    assert (changed, 0.06 <= took < 0.5) == ("ConnectionRefusedError", True)
