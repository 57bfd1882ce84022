"""Answers to other agents on real sockets: who gets one, from where, and what a flood does."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from tests.measured import best_of

from reachline.net.responder import Responder
from reachline.net.stamped import Stamped, numeric, parts, shown
from reachline.testing.wait import eventually
from reachline.wire import mesh
from reachline.wire.mesh import Probe, Reply

KEY = mesh.key_of(b"s" * 32, "b")
ME = mesh.identity("a")
PAIR = mesh.pair_key(KEY, ME)


def sealed(sequence: int = 1, *, session: int = 1, pair: bytes = PAIR) -> bytes:
    return mesh.pack_probe(Probe(ME, session, sequence, 5), pair)


@contextmanager
def responder(address: str = "127.0.0.1", *, key: bytes = KEY) -> Iterator[Responder]:
    found = numeric(address, 0)
    assert found
    with closing(Responder(*found)) as there:
        there.adopt(key)
        yield there


@contextmanager
def asker(there: Responder, host: str = "") -> Iterator[socket.socket]:
    own, port = parts(there.address)
    with socket.socket(socket.AF_INET6 if ":" in own else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host or own, port))
        sock.settimeout(5)
        yield sock


def readable(sock: socket.socket | Responder | Stamped, within: float = 5.0) -> bool:
    return bool(select.select([sock], (), (), within)[0])


def worked_off(there: Responder) -> None:
    """It has taken all that is here."""
    while readable(there, 0):
        there.ready()


def answered(there: Responder, sock: socket.socket) -> Reply:
    assert readable(there)
    there.ready()
    reply = mesh.read_reply(sock.recv(1_000), PAIR)
    assert isinstance(reply, Reply)
    return reply


def test_a_sealed_probe_gets_a_reply_as_long_as_itself_with_both_times() -> None:
    with responder() as there, asker(there) as sock:
        before = time.monotonic_ns() // 1_000
        sock.send(sealed())
        assert readable(there)
        there.ready()
        data = sock.recv(1_000)

    reply = mesh.read_reply(data, PAIR)
    assert isinstance(reply, Reply)
    assert len(data) == len(sealed())
    assert (reply.sequence, reply.sent_us, reply.got, reply.replies) == (1, 5, 1, 1)
    assert before - 1_000 <= reply.received_us <= reply.replied_us <= time.monotonic_ns() // 1_000
    assert there.answered == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "malformed"),
        (b"hello", "malformed"),
        (sealed()[:-1], "malformed"),
        (sealed() + b"\0" * 1_400, "malformed"),
        (sealed(pair=b"x" * 32), "forged"),
        (sealed()[:-1] + b"\0", "forged"),
        (b"RLM\x09" + sealed()[4:], "version"),
    ],
    ids=["empty", "short", "truncated", "oversized", "other-key", "digest", "version"],
)
def test_what_is_not_sealed_gets_no_word_and_disturbs_nobody(data: bytes, reason: str) -> None:
    with responder() as there, asker(there) as sock:
        sock.send(data)
        assert readable(there)
        there.ready()
        sock.send(sealed())

        assert answered(there, sock).sequence == 1
        assert there.dropped == {reason: 1}


def test_a_replay_gets_no_word() -> None:
    with responder() as there, asker(there) as sock:
        for _ in range(3):
            sock.send(sealed())
        sock.send(sealed(2))
        there.ready()

        replies = [mesh.read_reply(sock.recv(1_000), PAIR) for _ in range(2)]

    assert [(reply.sequence, reply.got) for reply in replies if isinstance(reply, Reply)] == [(1, 1), (2, 2)]
    assert there.dropped == {"replayed": 2}


def test_without_a_key_nobody_is_answered() -> None:
    with responder(key=b"") as there, asker(there) as sock:
        sock.send(sealed())
        assert readable(there)
        there.ready()

        assert there.dropped == {"unready": 1}


def test_a_flood_of_strangers_takes_a_slice_a_turn_and_who_is_known_is_answered() -> None:
    with responder() as there, asker(there) as sock:
        for number in range(200):
            sock.send(b"RLM\x01\x01" + number.to_bytes(4) * 20 + b"abc")
        sock.send(sealed())

        there.ready()

        assert there.dropped == {"forged": 64}
        worked_off(there)
        assert there.dropped == {"forged": 200}
        assert isinstance(mesh.read_reply(sock.recv(1_000), PAIR), Reply)


def test_the_answer_leaves_from_the_address_that_was_asked() -> None:
    with responder("0.0.0.0") as there, asker(there, "127.0.0.77") as sock:  # connected: takes that address's alone
        sock.send(sealed())

        assert answered(there, sock).sequence == 1


def test_ipv6_too() -> None:
    try:
        there = Responder(socket.AF_INET6, ("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with closing(there), asker(there) as sock:
        there.adopt(KEY)
        sock.send(sealed())

        assert answered(there, sock).sequence == 1
        assert there.address.startswith("[::1]:")


def test_a_queue_that_overran_is_our_own_loss_so_counts_begin_anew() -> None:
    with responder() as there, asker(there) as sock:
        sock.send(sealed(1))
        before = answered(there, sock)
        for sequence in range(2, 3_000):
            sock.send(sealed(sequence))
        worked_off(there)
        while readable(sock, 0):
            sock.recv(1_000)
        sock.send(sealed(3_000))
        after = answered(there, sock)

    assert after.birth > before.birth
    assert after.span < 2_998


def test_a_taken_address_is_refused() -> None:
    with responder() as there, pytest.raises(OSError, match="in use"):
        Responder(socket.AF_INET, parts(there.address))


# -- stamps ---------------------------------------------------------------------------------------------------------------


@contextmanager
def stamped(**clocks) -> Iterator[tuple[Stamped, socket.socket]]:
    with (
        closing(Stamped(socket.AF_INET, ("127.0.0.1", 0), **clocks)) as there,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        sock.connect(there.address)
        # The kernel begins to stamp some milliseconds after the first socket asked for it.
        eventually(lambda: sock.send(b"x") and readable(there) and _is_stamped(there), every=0.001, what="stamps")
        yield there, sock


def _is_stamped(there: Stamped) -> bool:
    """Whether one that waited is told by when it came."""
    before = time.monotonic_ns()
    while time.monotonic_ns() < before + 2_000_000:
        pass
    return all(each.at_us * 1_000 < before for each in there.take(9, 9))


def test_an_arrival_is_told_by_when_it_came_not_by_when_it_was_read() -> None:
    def measure() -> None:
        with stamped() as (there, sock):
            before = time.monotonic_ns() // 1_000
            sock.send(b"now")
            sent = time.monotonic_ns() // 1_000
            eventually(lambda: time.monotonic_ns() // 1_000 > sent + 30_000, what="30 ms")

            (arrival,) = there.take(9, 9)

        assert before - 1_000 <= arrival.at_us <= sent + 1_000
        assert arrival.data == b"now"

    best_of(3, measure)


def test_a_wall_clock_that_was_set_is_not_believed() -> None:
    ahead = [0]
    with stamped(wall=lambda: time.time_ns() + ahead[0]) as (there, sock):
        sock.send(b"1")
        readable(there)
        ahead[0] = 3_600 * 10**9
        before = time.monotonic_ns() // 1_000

        (arrival,) = there.take(9, 9)

        assert before <= arrival.at_us <= time.monotonic_ns() // 1_000


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("a.example:80", ("a.example", 80)),
        ("a.example", ("a.example", 0)),
        ("a:99999", ("", 0)),
        ("[::1", ("", 0)),
        ("", ("", 0)),
    ],
)
def test_an_address_is_read_or_is_none(address: str, found: tuple[str, int]) -> None:
    assert parts(address) == found


def test_only_numbers_are_numeric_and_shown_as_they_are_read() -> None:
    assert numeric("localhost", 1) is None
    assert numeric("127.0.0.1", 7) == (socket.AF_INET, ("127.0.0.1", 7))
    assert shown(("::1", 7, 0, 0)) == "[::1]:7"
