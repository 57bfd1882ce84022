from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import struct
import time
from pathlib import Path
from typing import Self

import pytest
from tests.descriptors import open_files
from tests.measured import best_of

from reachline.model import Clock, Failure
from reachline.net import kernel
from reachline.net.resolve import Resolver
from reachline.testing.wait import until


def listening(backlog: int = 128) -> socket.socket:
    """Accepts in the kernel and never answers anything."""
    return socket.create_server(("127.0.0.1", 0), backlog=backlog)


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


class FullServer:
    """A listener whose queue (of one) is full: further SYNs are dropped, as in a black hole, until it is drained."""

    def __enter__(self) -> Self:
        self.server = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.server.setblocking(False)
        self.held = [socket.create_connection(self.server.getsockname())]
        self.port = port_of(self.server)
        return self

    def __exit__(self, *_) -> None:
        for sock in (*self.held, self.server):
            sock.close()

    def drain(self) -> None:
        self.held.append(self.server.accept()[0])


def test_a_connect_has_the_kernels_rtt(lab, job):
    async def main():
        with listening() as server:
            async with lab() as engine:
                return await engine.one(job(f"tcp://127.0.0.1:{port_of(server)}"))

    result = asyncio.run(main())

    assert result.failure is None
    assert result.clock is Clock.TCP_INFO
    assert 0 < result.rtt_us < 500_000
    assert (result.sent, result.lost, result.late, result.note, result.phases) == (1, 0, False, "", None)


def test_a_peer_that_closes_at_once_was_reached_all_the_same(lab, job):
    async def main():
        with listening() as server:
            async with lab() as engine:
                engine.engine.start(job(f"tcp://127.0.0.1:{port_of(server)}"), at=0.0)
                engine.engine.turn()
                server.accept()[0].close()
                await until(lambda: engine.ended, every=0.001)
                return engine.ended[0]

    result = asyncio.run(main())

    assert (result.failure, result.clock, result.late) == (None, Clock.TCP_INFO, False)


def test_a_peer_that_resets_at_once_is_told_as_such(lab, job):
    async def main():
        with listening() as server:
            async with lab() as engine:
                engine.engine.start(job(f"tcp://127.0.0.1:{port_of(server)}"), at=0.0)
                engine.engine._begin(engine.engine.ns())  # half a turn: nobody has looked yet
                accepted, _ = server.accept()
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                accepted.close()
                await until(lambda: engine.ended, every=0.001)
                return engine.ended[0]

    result = asyncio.run(main())

    assert (result.failure, result.note, result.late) == (Failure.RESET, "connection reset", False)


def test_ipv6_is_another_family_of_the_same_kind(lab, job):
    async def main():
        try:
            server = socket.create_server(("::1", 0), family=socket.AF_INET6)
        except OSError:
            pytest.skip("no IPv6 loopback here")
        with server:
            async with lab() as engine:
                return await engine.one(job(f"tcp://[::1]:{port_of(server)}"))

    result = asyncio.run(main())

    assert (result.failure, result.clock) == (None, Clock.TCP_INFO)


def test_refused_is_an_answer_with_its_rtt(lab, job):
    async def main():
        with listening() as server:
            port = port_of(server)
        async with lab() as engine:
            return await engine.one(job(f"tcp://127.0.0.1:{port}"))

    result = asyncio.run(main())

    assert result.failure is Failure.REFUSED
    assert result.note == "connection refused"
    assert result.clock is Clock.APP
    assert (result.sent, result.lost, result.late) == (1, 0, False)
    assert result.rtt_us is None or 0 <= result.rtt_us < 500_000


def test_no_answer_is_overdue_at_the_timeout_and_lost_after_patience(lab, job):
    async def main():
        with FullServer() as full:
            async with lab() as engine:
                began = time.monotonic()
                engine.engine.start(
                    job(f"tcp://127.0.0.1:{full.port}", timeout=0.1, patience=0.3), at=engine.engine.now()
                )
                await until(lambda: engine.overdue, every=0.002)
                at_timeout = time.monotonic() - began
                ended = len(engine.ended)
                await until(lambda: engine.ended, every=0.002)
                return at_timeout, ended, time.monotonic() - began, engine.ended[0], engine.engine.counters()

    def measure():
        at_timeout, ended, *rest = asyncio.run(main())
        assert 0.1 <= at_timeout < 0.39
        assert ended == 0
        return rest

    at_end, result, counters = best_of(3, measure)

    assert at_end >= 0.4
    assert (result.failure, result.late, result.rtt_us) == (Failure.TIMEOUT, True, None)
    assert result.sent == result.lost >= 1
    assert counters.overdue == 1


def test_a_late_answer_is_late_not_lost(lab, job):
    async def main():
        with FullServer() as full:
            async with lab() as engine:
                engine.engine.start(
                    job(f"tcp://127.0.0.1:{full.port}", timeout=0.1, patience=5.0), at=engine.engine.now()
                )
                await until(lambda: engine.overdue, every=0.002)
                full.drain()
                await until(lambda: engine.ended, within=30)
                return engine.ended[0]

    result = asyncio.run(main())

    assert (result.failure, result.late) == (None, True)
    assert result.rtt_us is None, "a SYN was sent again: the handshake's RTT is ambiguous"
    assert result.lost >= 1
    assert result.sent == result.lost + 1


def test_a_source_that_is_not_ours_is_our_fault_and_sends_nothing(lab, job):
    async def main():
        with listening() as server:
            async with lab() as engine:
                made = job(f"tcp://127.0.0.1:{port_of(server)}", source="198.51.100.7")
                return await engine.one(made)

    result = asyncio.run(main())

    assert result.failure is Failure.AGENT
    assert (result.sent, result.lost, result.rtt_us, result.late) == (0, 0, None, False)
    assert "source address" in result.note


@pytest.mark.parametrize("kind", ["tcp", "icmp", "dns"])
def test_an_interface_that_is_missing_is_our_fault_for_every_kind(lab, job, kind):
    async def main():
        target = {"tcp": "tcp://127.0.0.1:9", "icmp": "icmp://127.0.0.1", "dns": "dns://127.0.0.1/a.test"}[kind]
        async with lab() as engine:
            return await engine.one(job(target, interface="nosuch0"))

    result = asyncio.run(main())

    assert (result.failure, result.sent) == (Failure.AGENT, 0)
    assert result.note


def test_a_source_of_ours_is_what_the_peer_sees(lab, job, serve):
    seen = []

    async def peer(reader, writer):
        seen.append(writer.get_extra_info("peername")[0])

    async def main():
        async with serve(peer) as port, lab() as engine:
            again = job(f"tcp://127.0.0.1:{port}", source="127.0.0.77")
            results = [await engine.one(again), await engine.one(again)]
            await until(lambda: len(seen) == 2)
            return results

    assert [result.failure for result in asyncio.run(main())] == [None, None]
    assert seen == ["127.0.0.77", "127.0.0.77"], "the first attempt and those by the known route"


def test_a_close_by_rst_is_seen_by_the_peer_as_one(lab, job, serve):
    seen = []

    async def peer(reader, writer):
        try:
            seen.append(await reader.read())
        except ConnectionResetError:
            seen.append("reset")

    async def main():
        async with serve(peer) as port, lab() as engine:
            await engine.one(job(f"tcp://127.0.0.1:{port}"))
            again = job(f"tcp://127.0.0.1:{port}", reset=True, token=2)
            await engine.one(again)
            await engine.one(again)
            await until(lambda: len(seen) == 3)

    asyncio.run(main())

    assert seen == [b"", "reset", "reset"]


def test_a_name_is_resolved_apart_from_the_rtt_and_its_family_is_honoured(lab, job):
    def lookup(host, family):
        time.sleep(0.2)
        return {4: ("127.0.0.1",), 6: ("::1",), 0: ("127.0.0.1", "::1")}[family]

    async def main():
        with listening() as server:
            async with lab(resolver=Resolver(lookup=lookup)) as engine:
                named = job(f"tcp://line.test:{port_of(server)}")
                first, second = await engine.one(named), await engine.one(named)
                assert engine.engine.address(named) == "127.0.0.1"
                return first, second

    first, second = asyncio.run(main())

    assert first.failure is None
    assert first.rtt_us < 200_000
    assert second.failure is None


def test_a_name_that_does_not_resolve_is_a_state_of_its_line(lab, job):
    def lookup(host, family):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    async def main():
        async with lab(resolver=Resolver(lookup=lookup)) as engine:
            return await engine.one(job("https://line.test/"))

    result = asyncio.run(main())

    assert (result.failure, result.note) == (Failure.RESOLVE, "name does not resolve")
    assert (result.sent, result.late) == (0, False)


def test_a_name_server_that_hangs_ends_with_the_attempts_time(lab, job):
    async def main():
        gate = asyncio.Event()
        loop = asyncio.get_running_loop()

        def lookup(host, family):
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(10)
            return ("127.0.0.1",)

        async with lab(resolver=Resolver(lookup=lookup)) as engine:
            result = await engine.one(job("tcp://line.test:9", timeout=0.1, patience=0.1))
            gate.set()
            await asyncio.sleep(0)
            return result

    result = asyncio.run(main())

    assert (result.failure, result.note) == (Failure.RESOLVE, "the name server does not answer")


def test_starts_beyond_the_cap_are_shed_openly(lab, job):
    async def main():
        with FullServer() as full:
            async with lab(limit=3) as engine:
                jobs = [
                    job(f"tcp://127.0.0.1:{full.port}", token=number, timeout=0.05, patience=0.05)
                    for number in range(5)
                ]
                results = await engine.probe(*jobs)
                return results, engine.engine.counters()

    results, counters = asyncio.run(main())

    shed = [result for result in results if result.failure is Failure.AGENT]
    assert len(shed) == counters.shed == 2
    assert all(result.note == "more than 3 attempts at once" and result.sent == 0 for result in shed)


def test_no_descriptor_left_is_our_fault(lab, job):
    async def main():
        with listening() as server:
            async with lab() as engine:
                await engine.one(job(f"tcp://127.0.0.1:{port_of(server)}"))
                soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                free = os.dup(0)
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
                try:
                    results = [
                        await engine.one(job(f"tcp://127.0.0.1:{port_of(server)}")),
                        await engine.one(job("icmp://127.0.0.1", token=2)),
                        await engine.one(job("dns://127.0.0.1/a.test", token=3)),
                    ]
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                return results

    results = asyncio.run(main())

    assert [result.failure for result in results] == [Failure.AGENT] * 3
    assert {result.note for result in results} == {"too many open files in this process"}


def test_a_cancelled_token_says_nothing_more(lab, job):
    async def main():
        with FullServer() as full, listening() as server:
            async with lab() as engine:
                before = open_files()
                times = [9.0, 9.0, 9.0, 0.2]
                stuck = [
                    job(f"tcp://127.0.0.1:{full.port}", token=number, timeout=within, patience=0.2)
                    for number, within in enumerate(times)
                ]
                for one in stuck:
                    engine.engine.start(one, at=engine.engine.now())
                engine.engine.start(stuck[0], at=engine.engine.now() + 0.1)
                await until(lambda: engine.engine.counters().started >= 4, every=0.002)
                for number in range(3):
                    engine.engine.cancel(number)
                await until(lambda: engine.engine.counters().live <= 1, every=0.002)
                alive = await engine.one(job(f"tcp://127.0.0.1:{port_of(server)}", token=0))
                await until(lambda: len(engine.ended) == 2)
                assert not open_files() - before
                return alive, engine

    alive, engine = asyncio.run(main())

    assert alive.failure is None
    assert [result.token for result in engine.ended] == [0, 3]
    assert set(engine.overdue) <= {3}


def test_what_is_due_leaves_before_answers_are_taken(lab, job):
    """An answer is timed by the kernel however late we look; a start is late by all that is done before it."""

    async def main():
        with listening() as server:
            async with lab() as engine:
                one, two = (job(f"tcp://127.0.0.1:{port_of(server)}", token=token) for token in (1, 2))
                await engine.probe(one, two)
                begun = []
                engine.engine.done = lambda *result: begun.append((result[0], engine.engine.counters().started))
                engine.engine.start(one, at=0.0)
                engine.engine._begin(engine.engine.ns())
                engine.engine.start(two, at=0.0)
                engine.engine.turn()
                await until(lambda: len(begun) == 2, every=0.002)
                return begun

    assert dict(asyncio.run(main()))[1] == 4


def test_a_descriptor_used_again_does_not_inherit_the_deadline_of_the_attempt_before(lab, job):
    """Deadlines are kept by descriptor: the first attempt's time is up while the second one's is not."""

    async def main():
        with listening() as server, FullServer() as full:
            async with lab() as engine:
                await engine.one(job(f"tcp://127.0.0.1:{port_of(server)}", token=1))
                silent = job(f"tcp://127.0.0.1:{full.port}", token=2, timeout=0.5, patience=0.1)
                await engine.one(silent)
                quick = job(f"tcp://127.0.0.1:{port_of(server)}", token=1, timeout=0.3)
                await engine.one(quick)
                engine.overdue.clear()
                await engine.one(quick)
                at = engine.engine.now()
                engine.engine.start(silent, at=0.0)
                await until(lambda: engine.overdue, every=0.002)
                return engine.engine.now() - at

    assert asyncio.run(main()) >= 0.5


def test_attempts_that_began_together_are_late_each_in_its_own_time(lab, job):
    async def main():
        with listening() as server, FullServer() as full:
            async with lab() as engine:
                jobs = [
                    job(f"tcp://127.0.0.1:{port_of(server)}", token=1, timeout=0.6, patience=0.1),
                    job(f"tcp://127.0.0.1:{full.port}", token=2, timeout=0.4, patience=0.1),
                    job(f"tcp://127.0.0.1:{full.port}", token=3, timeout=0.1, patience=0.1),
                ]
                await engine.probe(*jobs)
                engine.overdue.clear()
                results = await engine.probe(*jobs)
                return engine.overdue, [(result.failure, result.late) for result in results]

    overdue, results = asyncio.run(main())

    assert overdue == [3, 2]
    assert results == [(None, False), (Failure.TIMEOUT, True), (Failure.TIMEOUT, True)]


def test_what_is_cancelled_while_it_waits_for_others_to_begin_with_does_not_begin(lab, job):
    """One that ends at once cancels another of the same turn, whose socket is not opened yet."""

    async def main():
        with listening() as server:
            async with lab() as engine:
                good = job(f"tcp://127.0.0.1:{port_of(server)}", token=1)
                await engine.one(good)
                ended = []

                def done(token, *_):
                    ended.append(token)
                    if token == 2:
                        engine.engine.cancel(1)
                        engine.engine.start(job(f"tcp://127.0.0.1:{port_of(server)}", token=3), at=0.0)

                engine.engine.done = done
                engine.engine.start(good, at=0.0)
                engine.engine.start(job("tcp://127.0.0.1:9", token=2, interface="nowhere0"), at=0.0)
                await until(lambda: 3 in ended, every=0.002)
                return ended

    assert asyncio.run(main()) == [2, 3]


def test_attempts_are_not_looked_through_for_cycles_all_the_time(lab):
    """Thousands at once are nothing to collect. Where the collector is off it stays off."""

    async def main():
        async with lab():
            return gc.get_threshold()

    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        seldom = asyncio.run(main())
        gc.set_threshold(0, 10, 10)
        never = asyncio.run(main())
    finally:
        gc.set_threshold(*before)

    assert seldom == (5_000, 10, 10)
    assert never == (0, 10, 10)


def test_done_may_start_cancel_and_close(lab, job):
    async def main():
        with listening() as server:
            async with lab() as engine:
                again = job(f"tcp://127.0.0.1:{port_of(server)}")
                seen = []

                def done(*result):
                    seen.append(result)
                    if len(seen) == 5:
                        engine.engine.cancel(1)
                        engine.engine.start(again, at=0.0)
                    elif len(seen) == 8:
                        engine.engine.start(again, at=0.0)
                        engine.engine.close()
                    else:
                        engine.engine.start(again, at=0.0)

                engine.engine.done = done
                engine.engine.start(again, at=0.0)
                await until(lambda: len(seen) == 8, every=0.002)
                return seen

    assert all(result[1] is None for result in asyncio.run(main()))


def test_close_leaves_no_descriptor_whatever_is_under_way(lab, job, serve, say):
    async def main():
        async with serve(say(b"", wait=True)):
            with FullServer() as full:
                await asyncio.sleep(0)
                before = open_files()
                async with lab() as engine:
                    jobs = [
                        job(f"tcp://127.0.0.1:{full.port}", token=1),
                        job("icmp://127.0.0.1", token=2),
                        job("dns://127.0.0.1:9/a.test", token=3),
                        job("tcp://nosuch.invalid:1", token=4),
                    ]
                    for one in jobs:
                        engine.engine.start(one, at=engine.engine.now())
                    await until(lambda: engine.engine.counters().started == 4, every=0.002)
                    engine.engine.start(jobs[0], at=engine.engine.now() + 1_000)
                    engine.engine.close()
                    engine.engine.turn()
                    engine.engine.close()
                return before, open_files()

    before, after = asyncio.run(main())

    assert after <= before


def test_thousands_of_attempts_leave_descriptors_and_memory_as_they_were(lab, job):
    async def main():
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
            server.setblocking(False)
            loop = asyncio.get_running_loop()

            def accept():
                try:
                    while True:
                        server.accept()[0].close()
                except BlockingIOError:
                    pass

            loop.add_reader(server, accept)
            async with lab() as engine:
                many = [job(f"tcp://127.0.0.1:{port_of(server)}", token=number) for number in range(500)]
                first = await engine.probe(*many)
                assert {(result.failure, result.late) for result in first} == {(None, False)}
                engine.ended.clear()
                files, memory = open_files(), rss()
                for _ in range(8):
                    await engine.probe(*many)
                    engine.ended.clear()
                after = open_files(), rss()
                loop.remove_reader(server)
                return files, memory, *after

    files, memory, files_after, memory_after = asyncio.run(main())

    assert not files_after - files, "whatever an earlier test left may go meanwhile, but nothing may come"
    assert memory_after - memory < 4 << 20, "4000 attempts of 1 kB each would show"


def rss() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_our_own_lateness_is_counted_apart(lab, job):
    async def main():
        with listening() as server:
            async with lab() as engine:
                engine.engine.start(job(f"tcp://127.0.0.1:{port_of(server)}"), at=engine.engine.now() + 0.01)
                time.sleep(0.06)
                await until(lambda: engine.ended, every=0.002)
                return engine.ended[0], engine.engine.counters(), engine.engine.counters()

    result, counters, again = asyncio.run(main())

    assert 45_000 <= result.lateness_us < 1_000_000
    assert counters.worst_lag_us >= 45_000
    assert counters.worst_lateness_us == counters.lateness_us == result.lateness_us
    assert again.worst_lag_us < counters.worst_lag_us


def test_an_answer_that_came_while_we_were_away_is_on_time(lab, job):
    """Events are taken before deadlines: a stall of ours past the timeout makes nothing late."""

    async def main():
        with listening() as server:
            async with lab() as engine:
                one = job(f"tcp://127.0.0.1:{port_of(server)}", timeout=0.05, patience=0.05)
                await engine.one(one)
                engine.engine.start(one, at=engine.engine.now())
                await until(lambda: engine.engine.counters().started == 2, every=0.0)
                time.sleep(0.2)
                await until(lambda: len(engine.ended) == 2, every=0.002)
                return engine.ended[1], engine.overdue

    result, overdue = asyncio.run(main())

    assert (result.failure, result.late, result.clock) == (None, False, Clock.TCP_INFO)
    assert overdue == []


def test_waiting_for_a_dead_line_costs_next_to_no_turns(lab, job):
    async def main():
        with FullServer() as full:
            async with lab() as engine:
                engine.engine.start(job(f"tcp://127.0.0.1:{full.port}", timeout=0.1, patience=0.6), at=0.0)
                await until(lambda: engine.overdue, every=0.002)
                before = engine.engine.counters().turns
                await until(lambda: engine.ended, every=0.002)
                return engine.engine.counters().turns - before

    assert asyncio.run(main()) <= 10


def test_starts_keep_to_their_slots_and_a_turn_is_bounded(lab, job):
    async def main():
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
            async with lab() as engine:
                at = engine.engine.now() + 0.05
                jobs = [job(f"tcp://127.0.0.1:{port_of(server)}", token=number) for number in range(200)]
                for one in jobs:
                    engine.engine.start(one, at=at)
                await asyncio.sleep(0)
                assert engine.engine.counters().started == 0
                time.sleep(0.1)
                engine.engine.turn()
                assert engine.engine.counters().started == 64
                await until(lambda: len(engine.ended) == 200)
                return engine.ended

    assert all(result.failure is None for result in asyncio.run(main()))


def test_an_unreachable_address_is_the_paths_word(lab, job):
    """A blackhole route answers at once, as a router would."""
    if os.geteuid() != 0:
        pytest.skip("routes need root")
    if os.system("ip route add unreachable 198.51.100.0/24 2>/dev/null") != 0:
        pytest.skip("this kernel takes no unreachable route")

    async def main():
        async with lab() as engine:
            return await engine.one(job("tcp://198.51.100.9:443"))

    try:
        result = asyncio.run(main())
    finally:
        os.system("ip route del unreachable 198.51.100.0/24")

    assert (result.failure, result.note) == (Failure.UNREACHABLE, "no route to host")
    assert result.rtt_us is None


def test_the_default_cap_is_what_the_descriptors_allow(lab):
    async def main():
        async with lab() as engine:
            return engine.engine.limit

    assert asyncio.run(main()) == kernel.budget(None)
