"""The live table, driven by keys without a terminal; and the states and sparklines it shows."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.css.query import NoMatches
from textual.widgets import DataTable, Input, Static
from textual.widgets.data_table import RowDoesNotExist

from reachline.agent.prober import Attempt
from reachline.cli.watch_screen import WatchApp, spark
from reachline.cli.watch_state import Bar, Sight, Watched, watch_rules
from reachline.cli.watch_targets import Pace, read_targets
from reachline.cli.watch_text import BLOCKS, PLAIN, levels, line_of, markdown
from reachline.core.ring import Columns
from reachline.core.window import Window
from reachline.model import Clock, Failure, Health, Kind
from reachline.testing.wait import until

MS = 1_000


def sight(
    target: str, state: str = "healthy", *, p95: float | None = 0.02, loss: float = 0.0, reason: str = ""
) -> Sight:
    return Sight(
        target=target,
        rounds=30,
        state=state,
        reason=reason,
        ok=state == "healthy",
        failure=None,
        rtt=0.01,
        clock="tcp_info",
        last=0.01,
        loss=loss,
        sent=30,
        lost=round(30 * loss),
        attempts=30,
        failed=round(30 * loss),
        ewma=0.01,
        p50=0.01,
        p95=p95,
        jitter=0.01,
        address="192.0.2.1",
    )


class World:
    """What the table asks for, and how often."""

    def __init__(self, *sights: Sight) -> None:
        self.sights = {each.target: each for each in sights}
        self.histories = self.looks = 0

    def app(self) -> WatchApp:
        return WatchApp(
            tuple(self.sights), state=lambda name: self.sights[name].state, sight=self._sight, history=self._history
        )

    def _sight(self, name: str) -> Sight:
        self.looks += 1
        return self.sights[name]

    def _history(self, _: str) -> list[Bar]:
        self.histories += 1
        return [Bar(0.01), Bar(None), Bar(0.03, late=True)]


def go(work: Coroutine[None, None, None]) -> None:
    asyncio.run(work)


def column(app: WatchApp, number: int = 0) -> list[str]:
    table = app.query_one(DataTable)
    return [str(table.get_row_at(row)[number]) for row in range(table.row_count)]


def text_of(app: WatchApp, query: str) -> str:
    return str(app.screen.query_one(query, Static).render())


async def soon(check: Callable[[], object]) -> None:
    """Holds, once what a key began has been done: a busy machine lets the pilot return before."""

    def holds() -> bool:
        try:
            return bool(check())
        except (NoMatches, RowDoesNotExist, IndexError):
            return False

    await until(holds)


def test_the_table_shows_every_target_with_its_state_and_reason() -> None:
    world = World(
        sight("tcp://a:1"), sight("tcp://b:1", "unhealthy", reason="connection refused; 0 of the last 3 rounds ok")
    )

    async def work() -> None:
        app = world.app()
        async with app.run_test(size=(160, 20)) as pilot:
            await pilot.pause()
            await soon(lambda: column(app) == ["tcp://a:1", "tcp://b:1"])
            await soon(lambda: column(app, 1) == ["healthy", "unhealthy"])
            await soon(lambda: column(app, 10)[1] == "connection refused; 0 of the last 3 rounds ok")
            await soon(lambda: "2 targets: 1 healthy, 1 unhealthy" in text_of(app, "#head"))

    go(work())


def test_s_sorts_and_the_cursor_stays_on_its_target() -> None:
    world = World(sight("a"), sight("b", "unhealthy"), sight("c", "degraded", p95=0.5), sight("d", loss=0.5))

    async def work() -> None:
        app = world.app()
        async with app.run_test(size=(160, 20)) as pilot:
            await pilot.press("s")
            await soon(lambda: column(app) == ["b", "c", "d", "a"])
            await soon(lambda: app.query_one(DataTable).cursor_row == 3)
            await pilot.press("s")
            await soon(lambda: column(app)[0] == "c")
            await pilot.press("s")
            await soon(lambda: column(app)[0] == "d")
            await pilot.press("s")
            await soon(lambda: column(app) == ["a", "b", "c", "d"])
            await soon(lambda: app.query_one(DataTable).cursor_row == 0)

    go(work())


def test_slash_filters_and_escape_shows_all_again() -> None:
    world = World(sight("tcp://alpha:1"), sight("tcp://beta:1"), sight("icmp://alpha"))

    async def work() -> None:
        app = world.app()
        async with app.run_test(size=(160, 20)) as pilot:
            await pilot.press("slash", *"ALPH")
            await soon(lambda: column(app) == ["tcp://alpha:1", "icmp://alpha"])
            await pilot.press("enter")
            await soon(lambda: not app.query_one(Input).has_focus)
            await pilot.press("escape")
            await soon(lambda: len(column(app)) == 3)
            await pilot.press("slash", *"zzz")
            await soon(lambda: column(app) == [])
            await pilot.press("enter", "enter", "s", "escape")
            await soon(lambda: len(column(app)) == 3)

    go(work())


def test_enter_opens_a_target_in_full_and_escape_returns() -> None:
    world = World(
        sight("tcp://a:1"), sight("tcp://b:1", "degraded", loss=0.1, reason="TCP packet loss: 3 of 30 (10 %)")
    )

    async def work() -> None:
        app = world.app()
        async with app.run_test(size=(160, 30)) as pilot:
            await pilot.press("down", "enter")
            await soon(lambda: text_of(app, "#page"))
            page = text_of(app, "#page")
            assert "tcp://b:1" in page
            assert "TCP packet loss: 3 of 30 (10 %)" in page
            assert "3 of 30 packets" in page
            assert "192.0.2.1" in page
            await pilot.press("escape")
            await soon(lambda: not app.screen.query("#page"))
            await soon(lambda: "tcp://b:1 is degraded: TCP packet loss" in text_of(app, "#why"))

    go(work())


def test_question_mark_helps_and_q_closes_help_first_and_then_quits() -> None:
    async def work() -> None:
        app = World(sight("a")).app()
        async with app.run_test(size=(120, 30)) as pilot:
            await pilot.press("question_mark")
            await soon(lambda: "sort" in text_of(app, "#page"))
            await pilot.press("q")
            await soon(lambda: not app.screen.query("#page"))
            assert app.is_running
            await pilot.press("q")
            await pilot.pause()
            await soon(lambda: app._exit)

    go(work())


def test_of_500_targets_only_those_in_sight_are_painted_and_a_quiet_row_costs_nothing() -> None:
    world = World(*(sight(f"tcp://10.0.0.{number}:1") for number in range(500)))

    async def work() -> None:
        app = world.app()
        async with app.run_test(size=(160, 40)) as pilot:
            await pilot.pause()
            world.histories = world.looks = 0
            app._tick()
            painted, looks = world.histories, world.looks
            await pilot.press("ctrl+end")
            await until(lambda: column(app)[499] == "tcp://10.0.0.499:1", within=30)
            assert 0 < painted <= 40
            assert looks <= 50
            spent = []
            for _ in range(20):
                began = time.thread_time()
                app._tick()
                spent.append(time.thread_time() - began)
        assert statistics.median(spent) < 0.05

    go(work())


def test_a_narrow_terminal_keeps_the_figures_and_shortens_the_bars() -> None:
    async def work() -> None:
        app = World(sight("tcp://a:1")).app()
        async with app.run_test(size=(80, 12)) as pilot:
            narrow = {str(each.label): each.width for each in app.query_one(DataTable).ordered_columns}
            await pilot.resize_terminal(200, 12)
            await until(lambda: [each for each in app.query_one(DataTable).ordered_columns if each.width == 30])
            wide = {str(each.label): each.width for each in app.query_one(DataTable).ordered_columns}
        assert narrow["p95"] == wide["p95"]
        assert narrow["history"] == 8
        assert wide["history"] == 30

    go(work())


def test_without_colour_nothing_is_said_by_colour_and_without_utf8_all_is_ascii(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    world = World(sight("tcp://a:1", "unhealthy", p95=None, loss=0.1, reason="jitter (P95 − P50)"))

    async def work() -> None:
        app = world.app()
        app._blocks = False
        async with app.run_test(size=(160, 20)) as pilot:
            await pilot.pause()
            cells = app.query_one(DataTable).get_row_at(0)
            assert all(cell.plain.isascii() for cell in cells)
            assert {str(cell.style) for cell in cells} <= {"", "bold"}
            assert cells[9].plain == "_x@"

    go(work())


# -- sparklines ------------------------------------------------------------------------------------------------------------------


def test_loss_is_a_red_gap_a_late_answer_yellow() -> None:
    bars = [Bar(0.010), Bar(None), Bar(0.020), Bar(0.9, late=True)]

    text = spark(bars, color=True, blocks=True)

    assert text.plain[1] == " "
    assert [(span.start, span.end, str(span.style)) for span in text.spans] == [(1, 2, "on red"), (3, 4, "yellow")]


@pytest.mark.parametrize(("blocks", "gap"), [(True, "×"), (False, "x")])
def test_without_colour_loss_is_a_cross(blocks: bool, gap: str) -> None:
    text = spark([Bar(0.01), Bar(None)], color=False, blocks=blocks)

    assert text.plain[1] == gap
    assert not text.spans
    assert text.plain.isascii() or blocks


@given(bars=st.lists(st.one_of(st.just(Bar(None)), st.builds(Bar, st.floats(1e-6, 60))), max_size=60))
def test_one_glyph_a_bar_lowest_to_highest(bars: list[Bar]) -> None:
    for glyphs in (BLOCKS, PLAIN):
        drawn = levels(bars, glyphs)

        assert len(drawn) == len(bars)
        assert all((glyph == " ") == (bar.rtt is None) for bar, glyph in zip(bars, drawn, strict=True))
        heights = sorted(
            (bar.rtt, glyphs.index(glyph)) for bar, glyph in zip(bars, drawn, strict=True) if bar.rtt is not None
        )
        assert [height for _, height in heights] == sorted(height for _, height in heights)


def test_a_steady_line_draws_no_waves() -> None:
    assert set(levels([Bar(0.0100), Bar(0.0101), Bar(0.0102)], BLOCKS)) <= {"▁", "▂"}


# -- states ----------------------------------------------------------------------------------------------------------------------


def attempt(number: int, rtt: int | None = 10 * MS, failure: Failure | None = None, note: str = "") -> Attempt:
    return Attempt(number, True, failure, rtt, Clock.TCP_INFO, False, note)


class Line:
    """A target whose rounds a test makes up: a window as the prober keeps it, and the row over it."""

    def __init__(self, text: str = "tcp://192.0.2.1:443") -> None:
        (target,) = read_targets((text,), Pace())
        self.window = Window(Columns(), target.kind)
        self.row = Watched(target, watch_rules(1.0))
        self.number = 0

    def rounds(self, count: int, rtt: int | None = 10 * MS, failure: Failure | None = None, note: str = "") -> Watched:
        for _ in range(count):
            self.number += 1
            one = attempt(self.number, rtt, failure, note)
            self.window.record(
                self.number,
                failure,
                rtt,
                late=failure is Failure.TIMEOUT,
                sent=1,
                lost=int(rtt is None),
                number=self.number,
            )
            self.row.ended(one, *self.window.summary(self.number))
        return self.row


def test_the_first_good_round_makes_a_line_healthy_and_nothing_needs_a_reason() -> None:
    row = Line().rounds(1)

    assert (row.health, row.reason) == (Health.HEALTHY, "")


def test_failed_rounds_make_a_line_degraded_then_unhealthy_with_the_counts() -> None:
    line = Line()
    line.rounds(5)

    states = [line.rounds(1, None, Failure.TIMEOUT, "no answer").health for _ in range(7)]

    assert states[0] is Health.HEALTHY
    assert Health.DEGRADED not in states[states.index(Health.UNHEALTHY) :]
    assert states[-1] is Health.UNHEALTHY
    assert line.row.reason == "no answer; 0 of the last 3 rounds ok"


def test_a_line_recovers_by_patience_and_says_how_far_it_is() -> None:
    line = Line()
    line.rounds(8, 1 * MS, Failure.REFUSED, "connection refused")

    for _ in range(200):
        line.rounds(1)
        if line.row.health is Health.HEALTHY:
            break
        assert line.row.reason

    assert line.row.health is Health.HEALTHY
    assert line.row.reason == ""


def test_slow_answers_degrade_a_line_by_the_limit_of_the_document() -> None:
    row = Line().rounds(30, 260 * MS)

    assert row.health is Health.DEGRADED
    assert "260 ms" in row.reason
    assert "limit" in row.reason


def test_our_own_fault_is_told_and_judged_by_nobody() -> None:
    line = Line()
    line.rounds(3)

    row = line.rounds(5, None, Failure.AGENT, "too many open files")

    assert row.health is Health.HEALTHY
    assert row.reason == "too many open files"


def test_a_dns_or_icmp_target_is_judged_by_the_only_kind_it_has() -> None:
    assert Line("dns://example.org@192.0.2.53").rounds(4, None, Failure.TIMEOUT, "no answer").health is Health.UNHEALTHY


def test_a_line_of_text_names_few_targets_and_of_many_only_the_bad() -> None:
    few = line_of([sight("a"), sight("b", "unhealthy", reason="no answer")])
    many = line_of(
        [*(sight(f"ok{number}") for number in range(20)), *(sight(f"bad{number}", "degraded") for number in range(9))]
    )

    assert "1 healthy, 1 unhealthy" in few
    assert "a healthy" in few
    assert "ok3" not in many
    assert "bad0 degraded" in many
    assert "and 3 more" in many
    assert "\n" not in many


def test_a_pipe_in_a_reason_does_not_break_the_report() -> None:
    row = markdown([sight("a", reason="x | y")]).splitlines()[2]

    assert row.replace("\\|", "").count("|") == 11


@pytest.mark.parametrize(
    ("text", "kind", "target", "options"),
    [
        ("https://a.test/x?y=1", Kind.HTTP, "https://a.test:443/x?y=1", {}),
        ("tls://a.test", Kind.TLS, "tls://a.test:443", {}),
        ("dns://a.test", Kind.DNS, "dns://", {"name": "a.test"}),
        ("dns://a.test@10.0.0.2", Kind.DNS, "dns://10.0.0.2:53", {"name": "a.test"}),
        (
            "dns://a.test@[2001:db8::1]:5353?type=AAAA",
            Kind.DNS,
            "dns://[2001:db8::1]:5353",
            {"name": "a.test", "type": "AAAA"},
        ),
        ("redis://u:p@h", Kind.REDIS, "redis://h:6379", {"user": "u", "password": "p"}),
        ("dns://10.0.0.2/a.test", Kind.DNS, "dns://10.0.0.2:53/a.test", {}),
    ],
)
def test_targets_become_plans(text: str, kind: Kind, target: str, options: dict[str, str]) -> None:
    (found,) = read_targets((text,), Pace())

    (probe,) = found.plan.probes
    assert (found.kind, found.plan.target, probe.options) == (kind, target, options)
