"""Agents that measure each other over real sockets, with clocks two minutes apart, by way of a relay that loses and delays."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tests.descriptors import open_files

from reachline.agent.mesh import MeshProber
from reachline.agent.peers import Seen
from reachline.core.direction import Way
from reachline.errors import ConfigError, RemoteProtocolError
from reachline.testing.wait import until
from reachline.wire import mesh
from reachline.wire.frame import Mesh, MeshReport, Peer
from reachline.wire.mesh_sides import Asking

SECRET = b"s" * 32
EVERY = 10
"""ms: as often as a responder lets one agent ask; an interval of 250 ms then holds its 25 probes."""


def go(work: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def ahead() -> int:
    """A clock two minutes ahead."""
    return time.monotonic_ns() + 120 * 10**9


def peer(asker: str, name: str, address: str, *, secret: bytes = SECRET) -> Peer:
    key = mesh.pair_key(mesh.key_of(secret, name), mesh.identity(asker))
    return Peer(agent=name, address=address, key=key)


def part(name: str, *peers: Peer, secret: bytes = SECRET, every: int = EVERY, listen: str = "") -> Mesh:
    return Mesh(key=mesh.key_of(secret, name), interval_ms=every, peers=peers, listen=listen)


def told(there: MeshProber, name: str = "b") -> MeshReport:
    return next((report for report in there.reports() if report.peer == name), MeshReport(peer=name))


@dataclass
class Relay(asyncio.DatagramProtocol):
    """A network between one agent and another: each datagram is lost, doubled, held back or changed as the test says."""

    towards: tuple[str, int]
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    loss: tuple[float, float] = (0.0, 0.0)
    """Forward and reverse."""
    delay: tuple[float, float] = (0.0, 0.0)
    double: bool = False
    lost: list[int] = field(default_factory=lambda: [0, 0])
    said: list[bytes] = field(default_factory=list)
    asker: tuple[str, int] | None = None

    def connection_made(self, transport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr) -> None:
        way = int(addr == self.towards)
        if not way:
            self.asker = addr
        self.said.append(data)
        if self.rng.random() < self.loss[way]:
            self.lost[way] += 1
            return
        for _ in range(1 + self.double):
            to = self.asker if way else self.towards
            asyncio.get_running_loop().call_later(self.delay[way], self.transport.sendto, data, to)


@asynccontextmanager
async def relay(towards: str) -> AsyncIterator[tuple[Relay, str]]:
    host, _, port = towards.rpartition(":")
    loop = asyncio.get_running_loop()
    transport, there = await loop.create_datagram_endpoint(
        lambda: Relay((host, int(port))), local_addr=("127.0.0.1", 0)
    )
    try:
        yield there, "127.0.0.1:{}".format(transport.get_extra_info("sockname")[1])
    finally:
        transport.close()


@asynccontextmanager
async def two(*, clock: Callable[[], int] = ahead) -> AsyncIterator[tuple[MeshProber, MeshProber, Relay]]:
    """`a` asks `b` by way of a relay."""
    async with (
        MeshProber("a", listen="127.0.0.1:0", least_ms=250) as a,
        MeshProber("b", listen="127.0.0.1:0", clock=clock, least_ms=250) as b,
        relay(b.address) as (between, address),
    ):
        a.adopt(part("a", peer("a", "b", address)))
        b.adopt(part("b", peer("b", "a", a.address)))
        await until(lambda: told(a).sent >= 20 and told(b, "a").sent >= 20, what="both to hear each other")
        yield a, b, between


def test_two_agents_hear_each_other_whatever_their_clocks_say() -> None:
    async def work() -> None:
        async with two() as (a, b, _):
            for report in (told(a), told(b, "a")):
                assert report.silent_ms is not None
                assert report.asked_ms is not None
                assert (report.forward_lost, report.reverse_lost, report.error) == (0, 0, "")
                assert report.rtt_us is not None
                assert 0 <= report.rtt_us < 1_000_000
            assert not a.dropped
            assert not b.dropped

    before = open_files()
    go(work())
    assert not open_files() - before


FAULTS = {
    "loss forward": ({"loss": (0.2, 0.0)}, (Way.FORWARD, Way.NEITHER)),
    "loss reverse": ({"loss": (0.0, 0.2)}, (Way.REVERSE, Way.NEITHER)),
    "delay forward": ({"delay": (0.09, 0.0)}, (Way.NEITHER, Way.FORWARD)),
    "delay reverse": ({"delay": (0.0, 0.09)}, (Way.NEITHER, Way.REVERSE)),
}


def test_the_way_is_named_on_real_sockets() -> None:
    async def faulty(fault: dict[str, tuple[float, float]], wanted: tuple[Way, Way]) -> None:
        async with two() as (a, _, between):
            await until(lambda: told(a).forward_rise_us is not None, within=30, what="a baseline")
            for name, value in fault.items():
                setattr(between, name, value)
            await until(lambda: (told(a).loss, told(a).delay) == wanted, within=30, what=f"{wanted}")

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            for fault, wanted in FAULTS.values():
                tasks.create_task(faulty(fault, wanted))

    go(work())


def test_losses_are_counted_exactly_while_everything_is_doubled() -> None:
    async def work() -> bool:
        """False: the machine stood still for a second, and what was counted meanwhile is rightly void."""
        async with two() as (a, b, between):
            between.double = True
            between.loss = (0.3, 0.2)
            await until(lambda: told(a).sent >= 150 or a._void_us)
            between.loss = (0.0, 0.0)
            await until(
                lambda: [told(a).forward_lost, told(a).reverse_lost] == between.lost or a._void_us, what="exact counts"
            )
            if a._void_us:
                return False

        assert a.dropped["replayed"] > 50
        assert b._responder is None  # closed with the agent
        return True

    async def again() -> None:
        for _ in range(3):
            if await work():
                return
        pytest.fail("the machine stood still three times")

    go(again())


def test_an_agent_that_restarts_is_heard_again_and_nothing_is_called_lost() -> None:
    async def work() -> None:
        async with MeshProber("a", least_ms=250) as a:
            async with MeshProber("b", listen="127.0.0.1:0", least_ms=250) as b:
                address = b.address
                a.adopt(part("a", peer("a", "b", address)))
                b.adopt(part("b"))
                await until(lambda: told(a).sent >= 20)
            await until(lambda: (told(a).silent_ms or 0) > 200, what="silence")
            before = told(a).sent
            async with MeshProber("b", listen=address, clock=ahead, least_ms=250) as b:
                b.adopt(part("b"))
                await until(lambda: told(a).sent >= before + 20)

                assert (told(a).forward_lost, told(a).reverse_lost) == (0, 0)

    go(work())


def test_other_keys_are_no_loss_and_what_was_known_is_kept() -> None:
    async def work() -> None:
        async with MeshProber("a", least_ms=250) as a, MeshProber("b", listen="127.0.0.1:0", least_ms=250) as b:
            a.adopt(part("a", peer("a", "b", b.address)))
            b.adopt(part("b"))
            await until(lambda: told(a).sent >= 20)
            a.adopt(part("a", peer("a", "b", b.address, secret=b"t" * 32)))  # b has not heard of it yet
            await until(lambda: b._responder and b._responder.dropped["forged"] > 20)
            before = told(a).sent
            b.adopt(part("b", secret=b"t" * 32))
            await until(lambda: told(a).sent > before + 20)

            assert (told(a).forward_lost, told(a).reverse_lost) == (0, 0)

    go(work())


def test_forged_and_replayed_replies_change_nothing() -> None:
    async def work() -> None:
        async with two() as (a, _, between):
            assert between.asker
            replies = [data for data in between.said if data[4] == 2][-10:]
            for data in [*replies, b"x" * 200, replies[0][:-1] + b"\0", *(data[:50] for data in replies)]:
                between.transport.sendto(data, between.asker)
            await until(lambda: sum(a.dropped.values()) >= 22)

            assert a.dropped == {"replayed": 10, "malformed": 11, "forged": 1}
            assert (told(a).forward_lost, told(a).reverse_lost) == (0, 0)

    go(work())


def test_an_interval_in_which_we_were_away_ourselves_does_not_count() -> None:
    async def work() -> None:
        async with two() as (a, _, _):
            seen = a._peers["b"]
            end = time.monotonic() + 1.05
            while time.monotonic() < end:  # the loop is held, as by a long sum
                pass
            await until(lambda: any(one.void for one in seen.intervals), what="a void interval")

            assert told(a).sent == sum(one.sent for one in seen.intervals if not one.void)

    go(work())


def test_a_peer_by_name_is_found_and_one_that_has_no_address_says_why() -> None:
    async def work() -> None:
        async with MeshProber("a", least_ms=250) as a, MeshProber("b", listen="127.0.0.1:0", least_ms=250) as b:
            port = b.address.rpartition(":")[2]
            b.adopt(part("b"))
            a.adopt(part("a", peer("a", "b", f"localhost:{port}"), peer("a", "c", "nobody.invalid:7601")))

            await until(lambda: told(a).sent > 10 and told(a, "c").error, within=30)

    go(work())


def test_a_peer_that_is_not_there_is_told_as_never_heard() -> None:
    async def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
            held.bind(("127.0.0.1", 0))
            async with MeshProber("a", least_ms=250) as a:
                a.adopt(part("a", peer("a", "b", f"127.0.0.1:{held.getsockname()[1]}")))
                await until(lambda: len(a._peers["b"].intervals) > 2)

                assert a.reports() == (MeshReport(peer="b"),)

    go(work())


def test_the_document_says_where_to_listen_unless_the_agents_own_options_do() -> None:
    async def work() -> None:
        async with MeshProber("a", least_ms=250) as a, MeshProber("b", listen="127.0.0.1:0", least_ms=250) as b:
            own = b.address
            a.adopt(part("a", listen="127.0.0.3:27601"))
            b.adopt(part("b", listen="127.0.0.3:27602"))

            assert (a.address, b.address) == ("127.0.0.3:27601", own)
            a.adopt(part("a", listen="203.0.113.9:27601"))  # not an address of ours: behind NAT
            assert a.address == "0.0.0.0:27601"
            a.adopt(part("a"))
            assert a.address == ""

    go(work())


def test_an_address_of_the_document_that_is_taken_is_tried_again_with_the_next_plan() -> None:
    async def work() -> None:
        async with MeshProber("a", least_ms=250) as a:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
                held.bind(("127.0.0.1", 0))
                where = f"127.0.0.1:{held.getsockname()[1]}"
                a.adopt(part("a", listen=where))
                assert a.address == ""
            a.adopt(part("a", listen=where))

            assert a.address == where

    go(work())


def test_an_address_that_was_taken_is_had_once_it_is_free_and_answered_at_by_the_newest_key() -> None:
    async def work() -> None:
        async with MeshProber("a", least_ms=250) as a, MeshProber("b", least_ms=250) as b:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
                held.bind(("127.0.0.1", 0))
                where = f"127.0.0.1:{held.getsockname()[1]}"
                b.adopt(part("b", listen=where))
                a.adopt(part("a", peer("a", "b", where)))
                assert b.address == ""

            await until(lambda: told(a).sent > 10, what="an answer")
            assert b.address == where

    before = open_files()
    go(work())
    assert not open_files() - before


def test_an_address_of_our_own_options_that_is_taken_is_refused_in_one_line() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{held.getsockname()[1]}"

        with pytest.raises(ConfigError, match=f"--mesh: the address is in use.*{where}"):
            MeshProber("a", listen=where)


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        (Mesh(key=b"short"), "32 bytes"),
        (Mesh(key=b"k" * 32, interval_ms=0), "interval_ms"),
        (Mesh(peers=(Peer(agent="b", address="b", key=b"k" * 32),)), "'b' has no address"),
        (Mesh(peers=(Peer(agent="b", address="b:99999", key=b"k" * 32),)), "'b' has no address"),
        (Mesh(peers=(Peer(agent="b", address="b:1", key=b""),)), "or no key"),
    ],
    ids=["key", "interval", "no-port", "port", "no-key"],
)
def test_a_part_that_cannot_be_is_refused_by_name(plan: Mesh, rule: str) -> None:
    async def work() -> None:
        async with MeshProber("a") as a:
            with pytest.raises(RemoteProtocolError, match=rule):
                a.adopt(plan)

    go(work())


def test_who_was_silent_for_a_minute_is_asked_a_fifth_as_often_until_it_is_heard() -> None:
    seen = Seen(peer("a", "b", "127.0.0.1:1"), Asking(mesh.identity("a"), 1), 0)

    assert not any(seen.rests(60_000_000) for _ in range(10))
    assert sum(not seen.rests(60_000_001) for _ in range(10)) == 2
    seen.heard_us = 60_000_002
    assert not any(seen.rests(60_000_003) for _ in range(10))
    seen.length_ms = 50_000  # asked every two seconds: a minute is too few probes to call it silence
    assert not any(seen.rests(600_000_000) for _ in range(10))


def test_who_had_no_time_to_answer_yet_is_not_told_as_silent() -> None:
    seen = Seen(peer("a", "b", "127.0.0.1:1"), Asking(mesh.identity("a"), 1), 0)

    assert [seen.is_new(at) for at in (0, 4_999_999, 5_000_000)] == [True, True, False]
    seen.heard_us = 60_000_000
    assert not seen.is_new(60_000_001)
    seen.renew(seen.peer, Asking(mesh.identity("a"), 2), 90_000_000)  # the other end may not know the new key yet
    assert [seen.is_new(at) for at in (90_000_000, 94_999_999, 95_000_000)] == [True, True, False]
    assert not seen.rests(140_000_000)


def test_a_peer_by_name_that_falls_silent_is_looked_up_again() -> None:
    async def work() -> None:
        async with MeshProber("a", least_ms=250) as a, MeshProber("b", listen="127.0.0.1:0", least_ms=250) as b:
            b.adopt(part("b"))
            a.adopt(part("a", peer("a", "b", "localhost:{}".format(b.address.rpartition(":")[2]))))
            await until(lambda: told(a).sent > 10)
            seen = a._peers["b"]
            seen.address = ("127.0.0.9", 9)  # what the name meant before
            seen.heard_us = seen.asked_us = 1

            await until(lambda: (seen.heard_us or 0) > 1, what="the other address")

    go(work())
