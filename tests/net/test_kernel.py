from __future__ import annotations

import errno
import resource
import select
import socket
import struct
import time

import pytest

from reachline.model import Failure
from reachline.net import kernel
from reachline.net.wheel import NEVER


def is_readable(timer: kernel.Timer, within: float) -> bool:
    return bool(select.select([timer.fileno()], [], [], within)[0])


def test_a_timer_fires_at_its_time_and_not_before():
    timer = kernel.Timer()
    try:
        at = time.monotonic_ns() + 20_000_000
        timer.arm(at)

        assert not is_readable(timer, 0)
        assert is_readable(timer, 5.0)
        assert time.monotonic_ns() >= at
    finally:
        timer.close()


def test_setting_a_timer_again_takes_its_expiry_back():
    timer = kernel.Timer()
    try:
        timer.arm(1)
        assert is_readable(timer, 1.0)
        timer.arm(NEVER)

        assert not is_readable(timer, 0)
    finally:
        timer.close()


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (errno.ECONNREFUSED, Failure.REFUSED),
        (errno.ECONNRESET, Failure.RESET),
        (errno.EPIPE, Failure.RESET),
        (errno.EHOSTUNREACH, Failure.UNREACHABLE),
        (errno.ENETUNREACH, Failure.UNREACHABLE),
        (errno.ETIMEDOUT, Failure.TIMEOUT),
        (errno.EADDRNOTAVAIL, Failure.AGENT),
        (errno.EMFILE, Failure.AGENT),
        (errno.ENOBUFS, Failure.AGENT),
        (errno.EACCES, Failure.AGENT),
        (errno.ENODEV, Failure.AGENT),
    ],
)
def test_an_errno_is_evidence_against_the_line_only_where_the_path_said_it(code, failure):
    assert kernel.failure_of(code) is failure
    assert kernel.words_of(code)


def test_the_kernel_knows_the_handshake():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        known = kernel.handshake(client.getsockopt)

    assert known is not None
    rtt, again = known
    assert 0 < rtt < 1_000_000
    assert again == 0


@pytest.mark.parametrize(
    ("state", "rtt", "again", "known"),
    [
        (1, 999_999, 0, (999_999, 0)),
        (1, 1_000_000, 0, (1_000_000, 1)),
        (8, 1_030_000, 0, (1_030_000, 1)),
        (1, 40_000, 2, (40_000, 2)),
        (2, 0, 1, None),
    ],
)
def test_a_handshake_that_took_a_second_met_a_loss_whoever_repeated(state, rtt, again, known):
    assert kernel.handshake(lambda *_: kernel.INFO.pack(state, rtt, again)) == known


def test_a_socket_that_is_not_connected_has_no_handshake():
    with socket.socket() as sock:
        assert kernel.handshake(sock.getsockopt) is None


def test_a_stamp_is_the_wall_clock_of_the_datagrams_arrival():
    with socket.socket(type=socket.SOCK_DGRAM) as receiver, socket.socket(type=socket.SOCK_DGRAM) as sender:
        receiver.bind(("127.0.0.1", 0))
        receiver.setsockopt(socket.SOL_SOCKET, kernel.SO_TIMESTAMPNS, 1)
        before = time.time_ns()
        sender.sendto(b"x", receiver.getsockname())
        _, ancillary, _, _ = receiver.recvmsg(16, 64)

    stamp = kernel.stamp(ancillary)
    assert stamp is not None
    assert before <= stamp <= time.time_ns()


@pytest.mark.parametrize("ancillary", [[], [(socket.SOL_SOCKET, 1, b"x" * 16)], [(socket.SOL_SOCKET, 35, b"short")]])
def test_anything_else_is_no_stamp(ancillary):
    assert kernel.stamp(ancillary) is None


def test_a_stamp_is_read_whole():
    raw = struct.pack("=qq", 7, 9)

    assert kernel.stamp([(socket.SOL_SOCKET, kernel.SO_TIMESTAMPNS, raw)]) == 7_000_000_009


def test_the_budget_leaves_descriptors_to_others():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        assert kernel.budget(None) == 1024 - kernel.RESERVE
        assert kernel.budget(50) == 50
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        assert kernel.budget(None) == 150
        assert kernel.raise_file_limit() == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
