"""Watching what others send: a window like any other's, from the connections of another process on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Self

import pytest
from tests.agent.peer import Center, agent, line, plan_of, settings

from reachline.agent.flows import Heard
from reachline.agent.passive import QUIET, Passive, Watched
from reachline.core.ring import Columns
from reachline.model import Counts, Kind, Reading
from reachline.testing.serving import serving
from reachline.testing.wait import until
from reachline.wire.frame import MOST_TEXT, Detail, LinePlan, ProbePlan

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of its connections")


def passive(every: int = 50, **options: str | int | bool) -> ProbePlan:
    """Twenty looks a second, so that tests are quick."""
    return ProbePlan(
        kind=Kind.PASSIVE, interval_ms=every, suspect_interval_ms=every, timeout_ms=1_000, window=200, options=options
    )


def watched(**told: object) -> Watched:
    return Watched(line("a", "tcp://10.0.0.9:443", passive(), **told), passive(), Columns())


def said(one: Watched, now: float) -> Reading:
    return one.reading(now, void=False)[0]


def test_segments_have_their_own_denominator_and_round_trips_no_percentile() -> None:
    one = watched()

    for second in range(40):
        one.take(Heard(sent=100, lost=2, ends=(20_000,) * 5), float(second))

    reading = said(one, 39.5)
    assert (reading.kind, reading.lost / reading.sent) == (Kind.PASSIVE, 0.02)
    assert reading.sent >= 2_000
    assert (reading.counts, reading.rounds, reading.rounds_ok) == (Counts(ok=200), 3, 3)
    assert (reading.ewma_us, reading.p50_us) == (20_000, 20_000)
    assert (reading.p95_us, reading.jitter_us) == (None, None)
    assert one.reading(39.5, void=False)[1].p95_answered_us == 20_000


def test_looks_at_which_every_connection_waits_in_vain_are_rounds_that_fail() -> None:
    one = watched()

    for second in range(4):
        one.take(Heard(ends=(None, None)), float(second))

    reading, detail = one.reading(4.0, void=False)
    assert (reading.counts.late, reading.rounds, reading.rounds_ok) == (8, 3, 0)
    assert detail.error == "connections wait for an answer in vain"


@pytest.mark.parametrize(("after", "knows"), [(QUIET, True), (QUIET + 0.1, False)])
def test_without_traffic_there_is_no_verdict_which_is_not_healthy(after: float, knows: bool) -> None:
    one = watched()
    for second in range(10):
        one.take(Heard(sent=10, lost=5, ends=(None,)), float(second))
    for second in range(10, 10 + round(after)):
        one.take(Heard(), float(second))

    reading, detail = one.reading(9.0 + after, void=False)

    assert bool(reading.sent or reading.rounds or reading.counts.attempts) is knows
    assert bool(detail.error) is True


def test_a_failure_of_the_past_is_not_why_there_is_no_verdict_now() -> None:
    one = watched()
    one.take(Heard(sent=1, ends=(None,)), 0.0)

    assert one.reading(1.0, void=False)[1].error == "connections wait for an answer in vain"
    assert one.reading(1.1 + QUIET, void=False)[1].error.startswith("no connection of this machine's programs")
    assert one.reading(1.1 + QUIET, void=False, blind="no tcp_diag")[1].error == "no tcp_diag"
    assert len(one.reading(1.1, void=False, blind="x" * 9_000)[1].error) == MOST_TEXT


def test_what_was_found_while_our_own_end_was_broken_can_be_taken_back() -> None:
    watching = Passive()
    watching.adopt([line("a", "tcp://10.0.0.9:443", passive())])
    for second in range(10):
        watching.watched["c/a"].take(Heard(sent=10, lost=second, ends=(None,)), float(second))

    watching.revoke(1.5)

    reading = said(watching.watched["c/a"], 10.0)
    assert (reading.sent, reading.lost, reading.counts.late, reading.rounds) == (20, 1, 2, 0)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (line("b", "tcp://10.0.0.9:443", passive(), via="socks5://10.0.0.1:1080"), "a proxy stands between"),
        (line("b", "tcp://10.0.0.9:443", passive(match="mark")), "is not known"),
        (line("b", "quic://10.0.0.9:443", passive()), "must begin with one of"),
    ],
    ids=["proxy", "no mark", "unknown scheme"],
)
def test_a_line_that_cannot_be_watched_says_why_and_the_others_go_on(refused: LinePlan, words: str) -> None:
    watching = Passive()

    watching.adopt([line("a", "tcp://10.0.0.9:443", passive()), refused])

    assert watching.lines == ("c/a", "c/b")
    assert words in watching.report("c/b", 0.0, void=False)[0].detail.error
    assert words not in watching.report("c/a", 0.0, void=False)[0].detail.error


def test_only_a_changed_line_begins_anew() -> None:
    watching = Passive()
    first, second = line("a", "tcp://10.0.0.9:443", passive()), line("b", "tcp://10.0.0.8:443", passive())
    watching.adopt([first, second])
    before = dict(watching.watched)

    watching.adopt([first, line("b", "tcp://10.0.0.8:444", passive()), line("c", "tcp://10.0.0.7:1")])

    assert watching.watched["c/a"] is before["c/a"]
    assert watching.watched["c/b"] is not before["c/b"]
    assert watching.lines == ("c/a", "c/b")


# -- on real sockets -------------------------------------------------------------------------------------------------------

BUSINESS = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
for _ in sys.stdin:
    sock.sendall(b"x" * 10)
    sock.recv(10)
    print("answered", flush=True)
"""


class Business:
    """Another process with one keep-alive connection; it asks when it is told to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, port: int) -> AsyncIterator[Self]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BUSINESS, str(port), stdin=pipe, stdout=pipe
        )
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"connected\n"
            yield cls(process)
        finally:
            process.kill()
            await process.wait()

    async def ask(self) -> None:
        """One request and its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        assert await self._process.stdout.readline() == b"answered\n"


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)

    async with serving(serve) as service:
        yield service.port


@contextlib.asynccontextmanager
async def looking(*lines: LinePlan) -> AsyncIterator[Passive]:
    watching = Passive()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watching.run())
        watching.adopt(lines)
        try:
            yield watching
        finally:
            running.cancel()


def found(watching: Passive, name: str = "c/a") -> tuple[Reading, Detail]:
    (report,) = watching.report(name, asyncio.get_running_loop().time(), void=False)
    return report.reading, report.detail


def test_anothers_requests_are_counted_and_our_own_are_not() -> None:
    async def scenario(port: int, business: Business, watching: Passive) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: found(watching)[1].connections, what="a first look")
        for _ in range(5):
            writer.write(b"y" * 10)
            await reader.readexactly(10)
            await business.ask()

        await until(lambda: found(watching)[0].sent == 5, what="five requests, none of ours")

        writer.close()
        reading, detail = found(watching)
        assert (reading.lost, reading.counts.late) == (0, 0)
        assert reading.counts.ok >= 1
        assert 0 < (reading.ewma_us or 0) < 1e6
        assert detail.connections is not None
        assert (detail.connections.count, detail.address) == (1, "127.0.0.1")

    async def run() -> None:
        async with (
            echo() as port,
            Business.to(port) as business,
            looking(line("a", f"tcp://127.0.0.1:{port}", passive())) as watching,
        ):
            await scenario(port, business, watching)

    asyncio.run(run())


def test_very_many_lines_do_not_hold_the_loop() -> None:
    many = [line(str(at), f"tcp://10.{at >> 8}.{at & 255}.1:1", passive(60_000)) for at in range(2_000)]

    async def work() -> int:
        turns = 0
        async with looking(*many) as watching:
            while watching.watched["c/0"].due == 0.0:
                turns += 1
                await asyncio.sleep(0)
        return turns

    assert asyncio.run(work()) > 2_000 // 128


def test_a_line_that_is_looked_at_less_often_than_another_loses_nothing_by_it() -> None:
    async def work() -> None:
        async with echo() as port, echo() as elsewhere:
            often = line("a", f"tcp://127.0.0.1:{elsewhere}", passive(20))
            seldom = line("b", f"tcp://127.0.0.1:{port}", passive(150))
            async with looking(often, seldom) as watching:
                await until(lambda: found(watching, "c/b")[1].connections, what="a first look")
                async with Business.to(port) as business:
                    await business.ask()

                    await until(lambda: found(watching, "c/b")[0].sent == 2, what="its SYN and its request")

    asyncio.run(work())


UNPRIVILEGED = """
import asyncio, ctypes, os, sys
from reachline.agent.passive import Passive
from reachline.model import Kind
from reachline.wire.frame import LinePlan, ProbePlan

def line(name, **options):
    plan = ProbePlan(kind=Kind.PASSIVE, interval_ms=50, suspect_interval_ms=50, options=options)
    return LinePlan(line=name, target=f"tcp://127.0.0.1:{sys.argv[1]}", probes=(plan,))

async def main():
    watching = Passive()
    watching.adopt([line("c/a"), line("c/b", match="mark", mark=7)])
    running = asyncio.create_task(watching.run())
    clock = asyncio.get_running_loop().time
    said = lambda name: watching.report(name, clock(), void=False)[0].detail
    while not (said("c/a").connections and said("c/a").connections.count and "CAP_NET_ADMIN" in said("c/b").error):
        await asyncio.sleep(0.01)
    running.cancel()

os.setgroups([]); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
asyncio.run(asyncio.wait_for(main(), 60))
"""
"""Waits until the one line sees its connection and the other says what it lacks. (4: PR_SET_DUMPABLE, which setuid clears.)"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_privileges_marks_are_refused_in_words_and_destinations_are_seen_all_the_same() -> None:
    async def work() -> None:
        async with echo() as port, Business.to(port):
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", UNPRIVILEGED, str(port))
            assert await process.wait() == 0

    asyncio.run(work())


def test_an_agent_with_nothing_but_a_passive_line_reports_it_and_sends_nothing() -> None:
    async def scenario() -> None:
        async with echo() as port, Business.to(port) as business, Center("127.0.0.1:0") as center:
            center.plan = plan_of(line("a", f"tcp://127.0.0.1:{port}", passive()))
            async with agent(settings(center)):
                await until(lambda: center.reports("c/a", Kind.PASSIVE), what="a report")
                await until(lambda: center.reports("c/a", Kind.PASSIVE)[-1].detail.connections, what="a look")
                await business.ask()

                await until(lambda: center.reports("c/a", Kind.PASSIVE)[-1].reading.sent == 1, what="the request")

            assert not center.reports("c/a", Kind.TCP)
            assert center.reports("c/a", Kind.PASSIVE)[0].detail.error.startswith("no connection of this machine's")

    asyncio.run(scenario())


def test_a_line_whose_interface_is_gone_or_whose_name_has_no_address_says_so() -> None:
    async def scenario() -> None:
        gone = line("a", "tcp://127.0.0.1:443", passive(), interface="nope0")
        nameless = line("b", "tcp://nowhere.invalid:443", passive())
        async with looking(gone, nameless) as watching:
            await until(lambda: found(watching)[1].error == "there is no interface nope0", what="a missing interface")
            await until(lambda: "name" in found(watching, "c/b")[1].error, what="a name without address")

    asyncio.run(scenario())
