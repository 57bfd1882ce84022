"""How an agent judges itself: on real sockets, by what it can and cannot reach."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from random import Random

import pytest
from tests.agent.peer import Center, Door, agent, line, plan_of, probe, settings, target

from reachline.agent.flows import Heard
from reachline.agent.passive import Passive
from reachline.agent.prober import Prober
from reachline.agent.references import References, is_own
from reachline.agent.selfcheck import SelfCheck
from reachline.agent.settings import checked
from reachline.center.checks import check
from reachline.errors import ConfigError
from reachline.model import Failure, Kind, Seconds, Zone
from reachline.testing.serving import serving
from reachline.testing.wait import until
from reachline.wire.frame import Heartbeat, LinePlan, ProbePlan

LATEST: Seconds = 100.0


def go(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LATEST):
            await work

    asyncio.run(bounded())


class Own:
    """An agent's opinion of itself with everything it is made of, and nothing that reports."""

    def __init__(self, prober: Prober, references: References) -> None:
        self.prober, self.references = prober, references
        self.passive = Passive()
        self.trust = SelfCheck(prober, self.passive, references)

    def adopt(self, *lines: LinePlan) -> None:
        self.prober.adopt((*self.references.plans, *lines), at_once=True)

    def look(self, later: Seconds = 0.0) -> list[str]:
        """The doubts of one more heartbeat; late timers and a slow loopback aside, for they are the test machine's."""
        self.trust.look(asyncio.get_running_loop().time() + later)
        assert self.trust.doubts == () or self.trust.score
        return [doubt for doubt in self.trust.doubts if "timers" not in doubt and "loopback" not in doubt]

    def fail(self, name: str, rounds: int = 3, failure: Failure | None = Failure.TIMEOUT) -> None:
        """The newest rounds of one of our lines end without an answer, or as it is said."""
        (probed,) = (probes[0] for own, probes in self.prober.lines.items() if own.startswith(name))
        for _ in range(rounds):
            probed.number += 1
            now = asyncio.get_running_loop().time()
            probed.window.record(now, failure, None, number=probed.number)

    def turn(self, line: str, zone: Zone) -> None:
        self.prober.lines[line][0].zone = zone
        self.trust.turned(line)

    def known(self, name: str) -> bool:
        probes = (probes[0] for own, probes in self.prober.lines.items() if own.startswith(name))
        return any(probed.window.rounds.last_ok for probed in probes)


@contextlib.asynccontextmanager
async def own(*targets: str, gateway: str = "") -> AsyncIterator[Own]:
    async with References(targets, gateway=lambda: gateway) as references, Prober(rng=Random(1)) as prober:
        yield Own(prober, references)


def test_a_reference_that_is_lost_raises_the_doubt_and_its_return_lets_it_fade() -> None:
    async def work() -> None:
        async with target() as far, Door() as near, own(far, near.url) as ours:
            ours.adopt()
            await until(lambda: ours.known("~reference") and ours.known("~loopback"), what="references that answer")
            await until(lambda: ours.look() == [], what="no doubt")

            ours.fail(f"~reference/{near.url}", 1)

            assert f"reference {near.url} does not answer" in ours.look()
            assert not ours.trust.is_void
            await until(lambda: not ours.look() and not ours.trust.score, what="a doubt that faded")

    go(work())


def test_an_agent_without_references_is_cut_off_when_its_gateway_is_gone_and_no_line_gets_through() -> None:
    async def work() -> None:
        async with target() as good, own(gateway="127.0.0.1") as ours:
            ours.adopt(line("a", good, probe(every=60_000)))
            await until(lambda: ours.known("~gateway") and ours.known("c/a"), what="gateway and line that answer")
            assert ours.look() == []

            ours.fail("~gateway", 2)
            assert ours.look() == []
            ours.fail("~gateway", 1)
            assert ours.look() == []
            ours.fail("c/a", 1)
            doubts = ours.look(later=1.0)

            assert ours.trust.is_void
            assert doubts == [
                "the gateway 127.0.0.1 does not answer",
                "results are void: the gateway 127.0.0.1 does not answer, and no line does",
            ]

    go(work())


def test_a_gateway_that_never_answered_says_nothing() -> None:
    async def work() -> None:
        async with own(gateway="127.0.0.1") as ours:
            ours.adopt()
            ours.fail("~gateway", 3)

            assert ours.look() == []

    go(work())


def test_a_gateway_that_no_longer_answers_raises_no_doubt_while_most_lines_get_through() -> None:
    async def work() -> None:
        async with target() as good, own(gateway="127.0.0.1") as ours:
            ours.adopt(*(line(name, good, probe(every=60_000)) for name in "abc"))
            await until(lambda: all(map(ours.known, ("~gateway", "c/a", "c/b", "c/c"))), what="all that answer")
            assert ours.look() == []
            ours.fail("~gateway", 3)
            ours.fail("c/a", 1)

            found = [ours.look(later=float(beat)) for beat in range(10)]
            ours.fail("~gateway", 3)
            ours.fail("c/b", 1)

            assert found == [[]] * 10
            assert ours.look(later=10.0) == ["the gateway 127.0.0.1 does not answer"]
            assert not ours.trust.is_void

    go(work())


def test_a_gateway_that_no_longer_answers_voids_nothing_of_lines_that_are_only_watched() -> None:
    async def work() -> None:
        async with own(gateway="127.0.0.1") as ours:
            watching = ProbePlan(kind=Kind.PASSIVE, interval_ms=1_000, suspect_interval_ms=1_000)
            ours.passive.adopt([line("a", "tcp://10.0.0.9:443", watching)])
            ours.adopt()
            await until(lambda: ours.known("~gateway"), what="a gateway that answers")
            assert ours.look() == []
            ours.fail("~gateway", 3)

            assert ours.look() == []
            ours.passive.watched["c/a"].take(Heard(sent=10, ends=(20_000,)), asyncio.get_running_loop().time())
            assert ours.look(later=1.0) == []
            ours.passive.watched["c/a"].take(Heard(sent=10, ends=(None,)), asyncio.get_running_loop().time())
            assert ours.look(later=2.0)[-1].startswith("results are void: the gateway")

    go(work())


def test_references_are_told_of_without_their_secrets_and_no_center_refuses_a_heartbeat_for_them() -> None:
    async def work() -> None:
        pages = [f"https://10.0.0.1/{at}{'x' * 400}?token=secret" for at in range(300)]
        async with own("redis://user:secret@10.0.0.1:6379", *pages) as ours:
            ours.adopt()
            await until(lambda: not ours.prober.is_adopting, what="all references")
            for name in [name for name in ours.prober.lines if name.startswith("~reference")]:
                ours.fail(name, 1)

            doubts = ours.look()

            assert doubts[0] == "reference redis://***@10.0.0.1:6379 does not answer"
            assert doubts[-2:] == [
                "285 more references do not answer",
                "results are void: no reference answers",
            ]
            assert "secret" not in "".join((*doubts, *ours.prober.lines))
            check(Heartbeat(agent="v1", boot="b", sequence=1, doubts=ours.trust.doubts, doubt=1))

    go(work())


def test_what_comes_and_goes_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with own("tcp://127.0.0.1:1") as ours:
            ours.adopt()
            for beat in range(20):
                ours.fail("~reference", 1, None if beat % 2 else Failure.TIMEOUT)
                ours.look(later=float(beat))

    with caplog.at_level("INFO", "reachline.agent"):
        go(work())

    told = [record.msg for record in caplog.records if "timers" not in record.__dict__.get("reasons", "")]
    assert told == ["results_void", "doubt_changed", "results_count_again"]


def test_most_lines_turning_bad_at_once_speak_against_us_once() -> None:
    async def work() -> None:
        async with own() as ours:
            lines = [line(name, f"tcp://10.0.0.{name}:1", probe(every=60_000)) for name in "1234"]
            ours.adopt(*lines)
            ours.look()
            for name in "123":
                ours.turn(f"c/{name}", Zone.F)

            assert ours.look() == ["3 of 4 lines turned bad at once"]
            assert ours.look() == []

    go(work())


def test_lines_that_share_a_group_may_turn_bad_at_once() -> None:
    async def work() -> None:
        async with own() as ours:
            ours.adopt(
                *(line(name, f"tcp://10.0.0.{name}:1", probe(every=60_000), groups=("fibre-7",)) for name in "123")
            )
            ours.look()
            for name in "123":
                ours.turn(f"c/{name}", Zone.F)

            assert ours.look() == []

    go(work())


def test_timers_that_fire_late_are_told_with_by_how_much() -> None:
    async def work() -> None:
        async with own() as ours:
            ours.adopt(line("a", "tcp://127.0.0.1:1", probe(every=100)))
            ours.look()
            _busy(0.3)
            await until(lambda: ours.look() or ours.trust.doubts, what="late timers")

            assert ours.trust.doubts[0].startswith("own timers fired ")
            assert ours.trust.score >= 1

    go(work())


def _busy(seconds: Seconds) -> None:
    """Holds the loop, as a slow agent does."""
    clock = asyncio.get_running_loop().time
    until_then = clock() + seconds
    while clock() < until_then:
        pass


class Page:
    """A page whose status a test sets."""

    def __init__(self) -> None:
        self.status = 204

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {self.status} Said\r\nContent-Length: 0\r\n\r\n".encode())


def test_while_the_connectivity_check_fails_results_are_void_and_the_heartbeat_says_why() -> None:
    async def scenario(page: Page, url: str, center: Center) -> None:
        def is_void() -> bool:
            return bool(center.reports("c/good")) and center.reports("c/good")[-1].reading.void

        await until(lambda: center.reports("c/good") and not is_void(), what="reports that count")
        page.status = 500
        await until(is_void, what="void readings")
        why = f"results are void: the connectivity check {url} fails"
        await until(lambda: why in center.beats[-1].doubts, what="the reason in the heartbeat")
        assert center.beats[-1].doubt >= 1
        page.status = 204
        await until(lambda: not is_void(), what="readings that count again")
        await until(lambda: why not in center.beats[-1].doubts, what="a heartbeat without the reason")
        assert not any(is_own(report.line) for beat in center.beats for report in beat.reports)

    async def work() -> None:
        page = Page()
        async with (
            target() as good,
            Center("127.0.0.1:0") as center,
            serving(page.serve) as server,
        ):
            url = f"http://127.0.0.1:{server.port}/"
            center.plan = plan_of(line("good", good))
            async with agent(settings(center, connectivity=url)):
                await scenario(page, url, center)

    go(work())


@pytest.mark.parametrize("wrong", ["tcp://10.0.0.1:443", "nonsense", "https://"])
def test_a_connectivity_check_is_a_page(wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(id="v1", centers=("127.0.0.1:7600",), connectivity=wrong)

    assert str(caught.value).startswith("--connectivity: ")
    assert "\n" not in str(caught.value)
