"""The agent against a center on a real socket: what it reports, and what it does when the center misbehaves or goes."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from functools import partial
from pathlib import Path

import grpc
import pytest
import trustme
from tests.agent.peer import Center, Door, agent, line, plan_of, probe, settings, target
from tests.measured import best_of

from reachline.agent.run import _Agent, run
from reachline.core import histogram
from reachline.errors import ConfigError
from reachline.model import Clock, Failure, Kind, Reading
from reachline.testing.wait import until
from reachline.wire.frame import Heartbeat, Hint, ProbePlan, decode

DEAD = "tcp://127.0.0.1:1"


def go(work: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(100):
            await work

    asyncio.run(bounded())


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def test_an_agent_introduces_itself_and_reports_what_it_sees(center: Center) -> None:
    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(line("good", good, probe(burst=5)), line("dead", DEAD))
            async with center, agent(settings(center, zone="az1", region="r1", token="s3cret")):
                await until(lambda: center.reports("c/good") and center.reports("c/good")[-1].reading.answered >= 20)

    go(work())

    hello, good, dead = center.hellos[0], center.reports("c/good")[-1], center.reports("c/dead")[-1]
    assert (hello.agent, hello.locality, hello.token) == ("v1", ("r1", "az1", ""), "s3cret")
    assert good.reading.counts.ok == good.reading.counts.attempts >= 20
    assert good.reading.sent == good.reading.counts.attempts
    assert (good.reading.rounds, good.reading.rounds_ok) == (3, 3)
    assert 0 < good.reading.p50_us <= good.reading.p95_us < 100_000
    assert good.reading.ewma_us is not None
    assert good.detail.clock == Clock.TCP_INFO.value
    assert good.detail.address == "127.0.0.1"
    assert dead.reading.counts.refused == dead.reading.counts.attempts > 0
    assert (dead.reading.rounds, dead.reading.rounds_ok) == (3, 0)
    assert dead.detail.error == "connection refused"


def test_sequences_rise_by_one_and_fresh_counts_and_histograms_add_up(center: Center) -> None:
    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(line("good", good, probe(burst=5)))
            async with center, agent(settings(center)):
                await until(lambda: len(center.beats) >= 8)

    go(work())

    assert [beat.sequence for beat in center.beats] == list(range(1, len(center.beats) + 1))
    reports = center.reports("c/good")
    fresh = sum(report.reading.fresh_ok + report.reading.fresh_failed for report in reports)
    assert fresh == reports[-1].reading.counts.attempts
    parts = [histogram.decode(report.detail.histogram) for report in reports if report.detail.histogram]
    assert histogram.merged(*parts).total == reports[-1].reading.answered


def test_a_line_that_turns_is_reported_before_the_heartbeat_is_due(center: Center) -> None:
    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(line("good", good), line("dead", DEAD), heartbeat=60_000)
            async with center, agent(settings(center)):
                await until(lambda: any(beat.urgent and beat.reports for beat in center.beats))
                await until(
                    lambda: any(r.reading.rounds_ok == 0 and r.reading.rounds == 3 for r in center.reports("c/dead"))
                )

    go(work())

    assert all(report.reading.rounds == 3 for beat in center.beats if beat.urgent for report in beat.reports)


def test_urgent_heartbeats_are_at_most_one_a_second(center: Center) -> None:
    async def work() -> None:
        lines = [line(f"dead{number}", DEAD, probe(every=50 + 97 * number)) for number in range(12)]
        center.plan = plan_of(*lines, heartbeat=60_000)
        async with center, agent(settings(center)):
            await until(lambda: all(any(r.reading.rounds == 3 for r in center.reports(each.line)) for each in lines))

    go(work())

    times = [beat.sent_ms for beat in center.beats if beat.urgent]
    assert len(times) >= 2
    assert all(later - earlier >= 990 for earlier, later in itertools.pairwise(times))


def test_a_part_in_the_making_never_carries_an_older_reading_than_one_that_was_sent(center: Center) -> None:
    """The line turns while the rest of its part is still being read: nothing that is sent later knows less of it."""

    async def work() -> None:
        there = _Agent(settings(center), boot="b1", seed=1)
        async with there.prober, asyncio.TaskGroup() as tasks:
            seldom = ProbePlan(kind=Kind.TCP, interval_ms=3_600_000, suspect_interval_ms=3_600_000)
            there.prober.adopt([line(f"{number:02}", DEAD, seldom) for number in range(100)])
            await until(lambda: not there.prober.is_adopting, what="all lines to be taken up")
            first, now = there.prober.lines["c/00"][0], asyncio.get_running_loop().time()
            first.window.record(now, None, 1_000, number=1)
            working = tasks.create_task(there.work(now))
            while first.window.fresh_ok:
                await asyncio.sleep(0)
            first.window.record(now, Failure.REFUSED, None, number=2)
            there._changed(first)
            await until(lambda: len(there.outbox) >= 2, what="the part and the urgent report")
            working.cancel()
        frames = [decode(data) for data in iter(lambda: there.outbox.take(now), None)]
        beats = [frame for frame in frames if isinstance(frame, Heartbeat)]
        assert [beat.sequence for beat in beats] == list(range(1, len(beats) + 1))

        attempts.extend(row.reading.counts.attempts for beat in beats for row in beat.reports if row.line == "c/00")

    attempts: list[int] = []
    go(work())

    assert attempts == [1, 2]


def test_a_heartbeat_is_sent_in_parts_of_a_hundred_lines(center: Center) -> None:
    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(
                *(line(f"l{number}", good, probe(every=60_000)) for number in range(250)), heartbeat=1_000
            )
            async with center, agent(settings(center)):
                await until(lambda: sum(beat.part[1] == 3 for beat in center.beats) >= 9)

    go(work())

    of_three = [beat for beat in center.beats if beat.part[1] == 3]
    rounds = [of_three[at : at + 3] for at in (0, 3, 6)]
    for round_of in rounds:
        assert [beat.part for beat in round_of] == [(1, 3), (2, 3), (3, 3)]
        assert [len(beat.reports) for beat in round_of] == [100, 100, 50]
    gaps = [[later.sent_ms - earlier.sent_ms for earlier, later in itertools.pairwise(each)] for each in rounds]
    assert max(map(min, gaps)) >= 95, "a busy machine may send one late, and the next in time: not in every round"


def test_a_center_that_dies_and_returns_gets_the_backlog_in_order_and_then_the_present(
    center: Center, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "reachline.agent")

    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(line("good", good))
            async with center, agent(settings(center)):
                await until(lambda: len(center.beats) >= 3)
                await center.die()
                heard = len(center.beats)
                await until(lambda: sum("center_not_reached" in record.message for record in caplog.records) >= 1)
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
                await until(_elapsed(1.0))
                await center.start()
                await until(lambda: len(center.beats) > heard + 4 and not center.beats[-1].replayed)

    go(work())

    sequences = [beat.sequence for beat in center.beats]
    assert sequences == sorted(sequences)
    assert set(range(1, sequences[-1] + 1)) == set(sequences)
    replayed = [beat.sequence for beat in center.beats if beat.replayed]
    assert len(replayed) >= 3
    assert replayed == list(range(replayed[0], replayed[-1] + 1))
    first, second = center.hellos
    assert first.boot == second.boot
    events = [record.message for record in caplog.records]
    assert events.count("center_lost") == 1
    assert events.count("center_not_reached") == 1
    assert events.count("center_attached") == 2


def _elapsed(seconds: float):
    until_then = asyncio.get_running_loop().time() + seconds
    return lambda: asyncio.get_running_loop().time() >= until_then


def test_what_was_not_acknowledged_is_sent_again_as_history(center: Center) -> None:
    center.acks = False

    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(line("good", good))
            async with center, agent(settings(center)):
                await until(lambda: len(center.beats) >= 3)
                await center.die()
                center.acks = True
                await center.start()
                await until(lambda: any(not beat.replayed for beat in center.beats[4:]) and len(center.hellos) == 2)
                await until(lambda: center.beats[-1].sequence > 6)

    go(work())

    again = [beat.sequence for beat in center.beats if beat.replayed]
    assert again[:3] == [1, 2, 3]


def test_a_bounded_backlog_gives_up_the_oldest_and_says_so(center: Center, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "reachline.agent")

    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(line("good", good), heartbeat=50)
            async with center, agent(settings(center, backlog=1_500)):
                await until(lambda: center.beats)
                await center.die()
                await until(lambda: any(record.message == "backlog_full" for record in caplog.records))
                await until(_elapsed(0.5))
                told = len(center.beats)
                await center.start()
                await until(lambda: len(center.beats) > told and not center.beats[-1].replayed)

    go(work())

    sequences = [beat.sequence for beat in center.beats]
    gap = max(later - earlier for earlier, later in itertools.pairwise(sequences))
    (dropped,) = [record for record in caplog.records if record.message == "heartbeats_dropped"]
    heartbeats: int = dropped.heartbeats  # type: ignore[attr-defined]
    assert heartbeats > 0
    # Two more at most: the one that was on its way when the center died was sent, and the first after the word made room too.
    assert 0 <= gap - 1 - heartbeats <= 2


def test_another_plan_keeps_the_windows_of_lines_that_stay(center: Center) -> None:
    async def work() -> None:
        async with target() as good, target() as also:
            center.plan = plan_of(line("stays", good), line("goes", good), line("moves", good))
            async with center, agent(settings(center)):
                await until(lambda: center.reports("c/stays") and center.reports("c/stays")[-1].reading.counts.ok >= 10)
                before = center.reports("c/stays")[-1].reading.counts.ok
                told = len(center.beats)
                await center.say(
                    plan_of(line("stays", good, probe(every=200)), line("moves", also), line("new", good), number=2)
                )
                await until(lambda: center.reports("c/new"))
                first = next(beat for beat in center.beats[told:] if any(r.line == "c/new" for r in beat.reports))
                counted = {report.line: report.reading.counts.attempts for report in first.reports}
                assert counted["c/stays"] >= before
                assert counted["c/moves"] <= before // 2
                told = len(center.beats)
                await until(lambda: len(center.beats) > told + 2)
                assert not any(report.line == "c/goes" for beat in center.beats[told:] for report in beat.reports)

    go(work())


def test_hinted_lines_are_probed_at_the_suspect_interval_until_the_hint_is_taken_back(center: Center) -> None:
    async def work() -> None:
        async with target() as good:
            slow = probe(every=3_600_000)
            center.plan = plan_of(line("good", good, slow))
            async with center, agent(settings(center)):
                # The first rounds come at the suspect interval, until one is known to be ok.
                await until(lambda: center.reports("c/good") and center.reports("c/good")[-1].reading.counts.ok >= 1)
                await until(lambda: center.reports("c/good")[-1].reading.fresh_ok == 0)
                await center.say(Hint(suspects=("c/good",)))
                await until(lambda: center.reports("c/good")[-1].reading.counts.ok >= 8)
                await center.say(Hint())
                await until(lambda: center.reports("c/good")[-1].reading.fresh_ok == 0)
                settled = center.reports("c/good")[-1].reading.counts.ok
                told = len(center.beats)
                await until(lambda: len(center.beats) >= told + 4)
                assert center.reports("c/good")[-1].reading.counts.ok == settled

    go(work())


def test_a_name_that_does_not_resolve_is_a_state_of_its_line(center: Center) -> None:
    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(line("nowhere", "tcp://no-such-name.invalid:80"), line("good", good))
            async with center, agent(settings(center)):
                await until(
                    lambda: center.reports("c/nowhere") and center.reports("c/nowhere")[-1].reading.counts.unresolved
                )
                await until(lambda: center.reports("c/good")[-1].reading.counts.ok)

    go(work())

    nowhere = center.reports("c/nowhere")[-1]
    assert nowhere.detail.error == "name does not resolve"
    assert nowhere.reading.sent == 0


def test_a_line_that_cannot_be_probed_is_said_and_the_others_go_on(center: Center) -> None:
    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(
                line("ping", good, probe(Kind.ICMP), via="socks5://bob:geheim@127.0.0.1:1080"),
                line("out", good, via="socks5://bob:geheim@127.0.0.1"),
                line("odd", good, probe(Kind.HTTP, colour="red")),
                line("good", good),
            )
            async with center, agent(settings(center)):
                await until(lambda: center.reports("c/good") and center.reports("c/good")[-1].reading.counts.ok)

    go(work())

    assert center.reports("c/ping", Kind.ICMP)[-1].detail.error == (
        "echo requests do not go through a proxy; it is not sent directly instead"
    )
    assert center.reports("c/out")[-1].detail.error == "needs the proxy's port"
    assert "is not an option" in center.reports("c/odd", Kind.HTTP)[-1].detail.error
    assert center.reports("c/ping", Kind.ICMP)[-1].reading.counts.attempts == 0
    assert center.reports("c/out")[-1].reading.counts.attempts == 0


def test_all_kinds_of_a_line_travel_in_one_part(center: Center) -> None:
    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(line("good", good, probe(), probe(Kind.HTTP)))
            async with center, agent(settings(center)):
                await until(
                    lambda: (
                        center.reports("c/good", Kind.HTTP)
                        and center.reports("c/good", Kind.HTTP)[-1].reading.counts.reset
                    )
                )

    go(work())

    assert all(
        [report.reading.kind for report in beat.reports] == [Kind.TCP, Kind.HTTP]
        for beat in center.beats
        if beat.reports
    )


@pytest.mark.parametrize(
    ("refusal", "protocol", "why"),
    [
        ("agent 'v1' is not in the document's agents", (1, 0), "not in the document's agents"),
        ("agent 'v1' did not give its token", (1, 0), "did not give its token"),
        ("", (2, 0), "speaks protocol 2, this agent 1"),
    ],
)
def test_a_final_refusal_ends_the_agent_with_its_reason_once(
    center: Center, refusal: str, protocol: tuple[int, int], why: str
) -> None:
    center.refusal, center.protocol = refusal, protocol

    async def work() -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with center, agent(settings(center)):
                await asyncio.Event().wait()
        (error,) = leaves(caught.value)
        assert isinstance(error, ConfigError)
        assert why in str(error)
        assert len(error.problems) == 1

    go(work())

    assert len(center.hellos) == 1


@pytest.mark.parametrize("refusal", ["the center stops", "1000 agents have joined"])
def test_a_passing_refusal_is_waited_out(center: Center, refusal: str) -> None:
    center.refusal, center.final = refusal, False

    async def work() -> None:
        async with center, agent(settings(center)):
            await until(lambda: len(center.hellos) >= 3, what="the agent to come again")
            center.refusal = ""
            await until(lambda: center.beats, what="a heartbeat")

    go(work())


def test_a_newer_minor_protocol_is_welcome(center: Center) -> None:
    center.protocol = (1, 9)

    async def work() -> None:
        async with center, agent(settings(center)):
            await until(lambda: center.beats)

    go(work())


def test_the_next_address_is_tried_when_the_first_does_not_answer_and_when_it_dies(
    center: Center, other: Center
) -> None:
    async def work() -> None:
        async with other, agent(settings(center, other)):
            await until(lambda: other.beats)
            async with center:
                await other.die()
                await until(lambda: center.beats, what="the first address to be used again")

    go(work())


def test_a_center_that_never_welcomes_is_left_for_another(center: Center, other: Center) -> None:
    center.welcomes = False

    async def work() -> None:
        async with center, other, agent(settings(center, other, attach_timeout=2.0)):
            await until(lambda: other.beats)

    go(work())


def test_a_center_that_takes_nothing_is_left_and_probing_goes_on(center: Center, other: Center) -> None:
    center.reads = False

    async def work() -> None:
        async with target() as good:
            lines = [line(f"l{number}-{'x' * 200}", good, probe(every=60_000)) for number in range(300)]
            center.plan = plan_of(line("good", good, probe(every=50)), *lines, heartbeat=50)
            other.plan = center.plan
            async with center, other, agent(settings(center, other, send_timeout=0.5)):
                await until(
                    lambda: other.reports("c/good") and other.reports("c/good")[-1].reading.counts.ok > 5, within=30
                )

    go(work())


def test_a_stopped_agent_says_bye_within_two_seconds_and_leaves_nothing_behind(center: Center) -> None:
    async def work() -> None:
        async with target() as good, center:
            center.plan = plan_of(line("good", good, probe(burst=5)), line("dead", DEAD))
            center.beats.clear()
            center.byes.clear()
            before = descriptors()
            async with agent(settings(center)) as stop:
                await until(lambda: center.reports("c/good"))
                asked = asyncio.get_running_loop().time()
                stop()
                await until(lambda: center.byes)
            spent = asyncio.get_running_loop().time() - asked
            left = [
                task for task in asyncio.all_tasks() if task.get_name() in {"work", "beat", "hurry", "speak", "leave"}
            ]
            assert not left
            await until(lambda: descriptors() <= before + 1, what="the agent's descriptors to be closed")
        assert spent < 2

    best_of(3, lambda: go(work()))

    assert [bye.reason for bye in center.byes] == ["the agent was stopped"]


def test_an_agent_without_any_center_stops_at_once(center: Center) -> None:
    async def work() -> None:
        async with agent(settings(center)) as stop:
            await until(_elapsed(0.3))
            asked = asyncio.get_running_loop().time()
            stop()
        assert asyncio.get_running_loop().time() - asked < 2

    best_of(3, lambda: go(work()))


def test_descriptors_are_flat_over_rounds_and_plans(center: Center) -> None:
    async def work() -> None:
        async with target() as good, center, agent(settings(center)):
            await until(lambda: center.beats)
            before = descriptors()
            for number in range(2, 14, 2):
                lines = (line(f"l{name}", good, probe(every=50 + number, burst=5)) for name in range(20))
                await center.say(plan_of(*lines, line("dead", DEAD), number=number))
                told = len(center.beats)
                await until(partial(lambda told: len(center.beats) > told + 3, told))
                await center.say(plan_of(number=number + 1))
                await until(lambda: descriptors() <= before + 1, what="descriptors as before any probe")

    go(work())


def test_while_every_reference_target_fails_readings_are_void_and_taken_back_afterwards(center: Center) -> None:
    def newest(name: str) -> Reading:
        return center.reports(f"c/{name}")[-1].reading

    async def work() -> None:
        async with target() as good, Door() as near, center:
            center.plan = plan_of(line("good", good), line("dead", DEAD))
            async with agent(settings(center, references=(near.url,))):
                await until(lambda: center.reports("c/good") and newest("good").counts.ok > 3)
                assert not any(report.reading.void for report in center.reports("c/good"))
                await near.shut()
                await until(lambda: newest("good").void, what="void readings")
                await until(lambda: newest("dead").counts.refused > 40)
                during = newest("dead").counts.refused
                await near.open()
                await until(lambda: not newest("good").void, what="readings that count again")
                assert newest("dead").counts.refused < during
        assert not any(report.line.startswith("~") for beat in center.beats for report in beat.reports)

    go(work())


def test_an_empty_plan_leaves_a_sign_of_life(center: Center) -> None:
    async def work() -> None:
        async with target() as good:
            center.plan = plan_of(line("good", good))
            async with center, agent(settings(center)):
                await until(lambda: center.reports("c/good"))
                await center.say(plan_of(number=2))
                told = len(center.beats)
                await until(lambda: len(center.beats) > told + 3)
                assert not center.beats[-1].reports

    go(work())


def tls_center(authority: trustme.CA, *, asks: bool = False) -> Center:
    """A center on TCP whose certificate `authority` signed; `asks` for one of the agent's."""
    own, roots = authority.issue_cert("127.0.0.1", "localhost"), authority.cert_pem.bytes() if asks else None
    pair = (own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes())
    return Center("127.0.0.1:0", credentials=grpc.ssl_server_credentials([pair], roots, asks))


def test_a_center_with_tls_is_reached_by_who_trusts_its_authority(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    async def work() -> None:
        async with tls_center(authority) as center, agent(settings(center, ca=f"{tmp_path}/ca.pem")):
            await until(lambda: center.beats)

    go(work())


def test_a_center_that_asks_for_a_certificate_is_shown_one(tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("v1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "v1.pem")
    own.private_key_pem.write_to_path(tmp_path / "v1.key")

    async def work() -> None:
        shown = {"ca": f"{tmp_path}/ca.pem", "certificate": f"{tmp_path}/v1.pem", "key": f"{tmp_path}/v1.key"}
        async with tls_center(authority, asks=True) as center, agent(settings(center, **shown)):
            await until(lambda: center.beats)

    go(work())


@pytest.mark.parametrize("foreign", [True, False])
def test_a_center_that_cannot_be_trusted_or_understood_is_not_reached_and_the_reason_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, foreign: bool
) -> None:
    caplog.set_level(logging.WARNING, "reachline.agent")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")

    async def work() -> None:
        async with (
            tls_center(trustme.CA()) as center,
            agent(settings(center, **({"ca": f"{tmp_path}/other.pem"} if foreign else {}))),
        ):
            await until(lambda: any(record.message == "center_not_reached" for record in caplog.records))
            assert not center.hellos

    go(work())

    (said,) = [record for record in caplog.records if record.message == "center_not_reached"][:1]
    assert ("handshake failed" in said.reason) == foreign  # type: ignore[attr-defined]


def test_a_certificate_file_that_cannot_be_read_is_said_at_the_start(center: Center) -> None:
    with pytest.raises(FileNotFoundError, match=r"/nonexistent\.pem"):
        go(run(settings(center, ca="/nonexistent.pem"), stop=asyncio.Event()))
