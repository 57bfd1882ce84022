from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest import SkipTest

import pytest

from reachline.testing import impair
from reachline.testing.far import serving
from reachline.testing.impair import Bottle, Box, By, Profile, Ways, bucket, impaired

SYN, ACK = 0x02, 0x10


def packet(
    *, source: int = 1, target: int = 1, size: int = 100, ports=(40_000, 80), flags: int = 0, protocol: int = 6
) -> bytes:
    raw = bytearray(size)
    raw[0], raw[9] = 0x45, protocol
    raw[15], raw[19] = source, target
    struct.pack_into("!HH", raw, 20, *ports)
    raw[33] = flags
    return bytes(raw)


def packet6(*, source: str, target: str, size: int = 100, ports=(40_000, 80), flags: int = 0) -> bytes:
    raw = bytearray(size)
    raw[0], raw[6] = 0x60, 6
    raw[8:24], raw[24:40] = ipaddress.ip_address(source).packed, ipaddress.ip_address(target).packed
    struct.pack_into("!HH", raw, 40, *ports)
    raw[53] = flags
    return bytes(raw)


def bottle(profile: Profile | Ways, *, seed: int = 1) -> Bottle:
    return Bottle({7: profile}, Profile(), seed)


def carried(made: Bottle, count: int, *, every: float = 0.001) -> list[float]:
    """Delays of `count` packets to line 7."""
    for number in range(count):
        made.take(packet(target=7), near=False, now=number * every)
    return [held.due - (held.order - 1) * every for held in made.release(1e9)]


def dropped(made: Bottle) -> int:
    return made.counted(7).forward.dropped


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

    assert low <= dropped(made) / 5_000 <= high


def test_a_rate_queues():
    delays = carried(bottle(Profile(rate=10_000)), 3, every=0.0)

    assert delays == pytest.approx([0.01, 0.02, 0.03])


def test_a_change_is_for_packets_to_come():
    made = bottle(Profile(delay=0.5))
    made.take(packet(target=7), near=False, now=0.0)
    made.change(7, Profile(hole=True))
    made.take(packet(target=7), near=False, now=0.0)

    assert [held.due for held in made.release(1.0)] == [0.5]
    assert dropped(made) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x45",
        b"\x60" + bytes(30),
        b"\x00" * 60,
        packet6(source="fe80::1", target="fd52::7"),
        packet6(source="fd52::1", target="ff02::2"),
        packet(target=7)[:16] + socket.inet_aton("224.0.0.22") + bytes(20),
    ],
    ids=["empty", "cut4", "cut6", "neither", "linklocal", "group6", "group4"],
)
def test_what_is_no_packet_of_a_line_is_left_alone(raw):
    made = bottle(Profile())

    made.take(raw, near=False, now=0.0)

    assert made.next_due() is None
    assert all(made.counted(number) == impair.Counted() for number in range(256))


def test_each_direction_has_its_own_profile_and_its_own_count():
    made = bottle(Ways(forward=Profile(hole=True), reverse=Profile(delay=0.09)))
    made.take(packet(target=7), near=False, now=0.0)
    made.take(packet(source=7), near=True, now=0.0)

    assert [(held.due, held.near) for held in made.release(1.0)] == [(0.09, True)]
    forward, reverse, _ = made.counted(7)
    assert (forward.packets, forward.dropped, reverse.packets, reverse.dropped) == (1, 1, 1, 0)
    assert forward.size == 100


def test_ipv6_shares_the_profile_and_the_count_of_its_number():
    made = bottle(Profile(delay=0.02))
    made.take(packet6(source="fd52:4c:64::1", target="fd52:4c:64:1::7"), near=False, now=0.0)
    made.take(packet6(source="fd52:4c:64:1::7", target="fd52:4c:64::1"), near=True, now=0.0)

    assert [held.due for held in made.release(1.0)] == [0.02, 0.02]
    assert (made.counted(7).forward.packets, made.counted(7).reverse.packets) == (1, 1)


def test_lost_handshakes_are_counted_apart_and_name_our_port():
    made = bottle(Ways(forward=Profile(), reverse=Profile(hole=True)))
    made.take(packet(target=7, ports=(40_001, 80), flags=SYN), near=False, now=0.0)
    made.take(packet(source=7, ports=(80, 40_001), flags=SYN | ACK), near=True, now=0.0)
    made.take(packet(source=7, ports=(80, 40_002), flags=ACK), near=True, now=0.0)

    forward, reverse, hurt = made.counted(7)
    assert (forward.syns, forward.syns_dropped, reverse.syns, reverse.syns_dropped) == (1, 0, 1, 1)
    assert (reverse.dropped, hurt) == (2, frozenset({40_001}))


def test_a_repetition_lost_after_the_answer_hurts_no_connect_and_a_new_connect_of_that_port_may_be_hurt():
    made = bottle(Profile())
    syn, answer = packet(target=7, flags=SYN), packet(source=7, ports=(80, 40_000), flags=SYN | ACK)
    made.take(syn, near=False, now=0.0)
    made.take(answer, near=True, now=0.0)
    made.change(7, Ways(reverse=Profile(hole=True)))

    made.take(answer, near=True, now=1.0)
    assert made.counted(7).hurt == frozenset()

    made.take(syn, near=False, now=2.0)
    made.take(answer, near=True, now=2.0)
    assert made.counted(7).hurt == {40_000}


def test_what_its_device_does_not_take_is_dropped_and_counted():
    made = bottle(Profile())
    made.take(packet(target=7, flags=SYN), near=False, now=0.0)

    made.spilled(next(made.release(1.0)))

    assert made.counted(7).forward[:2] == (1, 1)
    assert made.counted(7).forward.syns_dropped == 1
    assert made.counted(7).hurt == {40_000}


def test_the_luck_of_a_line_is_the_same_whatever_other_lines_carry():
    def fates(busy: bool) -> list[bool]:
        made = Bottle({}, Profile(loss=0.3), 5)
        lost = []
        for _ in range(200):
            if busy:
                made.take(packet(target=8), near=False, now=0.0)
                made.take(packet(source=7), near=True, now=0.0)
            before = dropped(made)
            made.take(packet(target=7), near=False, now=0.0)
            lost.append(dropped(made) > before)
        return lost

    assert fates(busy=True) == fates(busy=False)


@pytest.mark.parametrize("by", list(By))
def test_flows_of_a_bad_bucket_vanish_both_ways_and_no_others(by):
    made = bottle(Profile(buckets=8, bad=(3,), by=by))
    for port in range(40_000, 40_800):
        made.take(packet(target=7, ports=(port, 80), flags=SYN), near=False, now=0.0)
        made.take(packet(source=7, ports=(80, port), flags=SYN | ACK), near=True, now=0.0)

    forward, reverse, hurt = made.counted(7)
    assert hurt == {port for port in range(40_000, 40_800) if bucket(6, port, 80, 8, by) == 3}
    assert forward.dropped == reverse.dropped == len(hurt)
    assert 60 <= len(hurt) <= 140, "an eighth of 800"


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"loss": 1.5}, "a loss must be a share"),
        ({"burst": (0.1, 0.2, 7.0)}, "a loss must be a share"),
        ({"delay": -0.1}, "delay must be 0 or more"),
        ({"buckets": 8, "bad": (8,)}, "must be below 8"),
        ({"bad": (0,)}, "must be below 0"),
    ],
    ids=["loss", "burst", "delay", "bucket", "nobuckets"],
)
def test_a_profile_that_cannot_be_is_refused(fields, rule):
    with pytest.raises(ValueError, match=rule):
        Profile(**fields)


@pytest.fixture(scope="module")
def box(tmp_path_factory) -> Iterator[Box]:
    profiles = {7: Profile(delay=0.01), 8: Profile(hole=True), 9: Profile(buckets=4, bad=(1,), by=By.PORT)}
    with (
        impaired(profiles) as made,
        serving(made.inside, "accept:7", "echo:9", directory=tmp_path_factory.mktemp("far")),
    ):
        yield made


def asked(address: str, *, patience: float = 10.0) -> tuple[str, float]:
    """What a datagram to the echo server comes to, and when."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as sock:
        sock.settimeout(patience)
        sock.connect((address, 9))
        begin = time.monotonic()
        sock.send(b"x")
        try:
            return sock.recv(9).decode(), time.monotonic() - begin
        except TimeoutError:
            return "nothing", time.monotonic() - begin


@pytest.mark.real
@pytest.mark.parametrize("family", [4, 6])
def test_a_real_path_is_delayed_lost_and_changed_live(box, family):
    said, took = asked(box.address(7, family=family))
    assert said == "x"
    assert took >= 0.02
    assert asked(box.address(8, family=family), patience=0.1)[0] == "nothing"

    box.change(8, Ways(reverse=Profile(delay=0.03)))
    said, took = asked(box.address(8, family=family))
    box.change(8, Profile(hole=True))

    assert said == "x"
    assert took >= 0.03


@pytest.mark.real
@pytest.mark.parametrize("family", [4, 6])
def test_a_real_box_counts_both_ways(box, family):
    before = box.counted(7)
    for _ in range(3):
        asked(box.address(7, family=family))
    after = box.counted(7)

    assert after.forward.packets - before.forward.packets == 3
    assert after.reverse.packets - before.reverse.packets == 3


@pytest.mark.real
@pytest.mark.parametrize("family", [4, 6])
def test_a_bad_bucket_of_a_real_path_stops_its_flows_alone(box, family):
    address = box.address(9, family=family)

    def connects(remainder: int) -> bool:
        """Whether a connect from a port with that remainder gets through."""
        for port in range(20_000 + remainder, 32_000, 4):
            with closing(socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET)) as sock:
                sock.settimeout(0.3 if remainder == 1 else 10.0)
                try:
                    sock.bind((box.near_of(family), port))
                    sock.connect((address, 7))
                except TimeoutError:
                    return False
                except OSError:
                    continue  # somebody has that port
                return True
        raise AssertionError("no port to be had")

    assert [connects(remainder) for remainder in range(4)] == [True, False, True, True]
    assert {port % 4 for port in box.counted(9).hurt} == {1}


@pytest.mark.real
def test_two_boxes_live_beside_each_other(box):
    with impaired({}) as other:
        assert other.network != box.network


def test_a_network_that_was_given_back_is_not_the_next_boxes():
    """A connection of the last box that nobody acknowledges any more would be counted there, and use up its luck."""
    given = set()
    for _ in range(3):
        with impair._claimed() as network:
            given.add(network)

    assert len(given) > 1


@pytest.mark.real
def test_a_box_that_ended_says_so(tmp_path: Path):
    with impaired({}) as made:
        made.process.kill()
        made.process.wait()

        with pytest.raises(RuntimeError, match="has ended"):
            made.change(7, Profile())


def test_without_tun_devices_a_test_is_skipped_by_name(monkeypatch):
    monkeypatch.setattr(impair, "_DEVICE", "/dev/net/no-such-tun")

    with pytest.raises(SkipTest, match=r"no-such-tun cannot be opened here|namespaces"):
        impair.require_box()
