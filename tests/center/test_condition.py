"""What agents say of themselves: kept a while, shown, quoted by explain, and in no decision but through the doubt."""

from __future__ import annotations

import asyncio
import contextlib
import io
from pathlib import Path

import pytest

from reachline.center.checks import check
from reachline.center.condition import KEPT_MS, Condition
from reachline.cli import status
from reachline.cli.render import Output
from reachline.errors import RemoteProtocolError
from reachline.testing.center import dead, good, running_center
from reachline.testing.wait import until
from reachline.wire.frame import Heartbeat, Vital

SOFTIRQ = Vital(name="softirq", where="cpu2", value=410, over_ms=10_000)
DROPS = Vital(name="drops", where="eth0", value=312, whole=52_000, over_ms=10_000)
LATE = "own timers fired 0.43 s late"


def beat(*vitals: Vital, doubts: tuple[str, ...] = (), doubt: int = 0) -> Heartbeat:
    return Heartbeat(agent="edge-03", boot="b", sequence=1, vitals=vitals, doubts=doubts, doubt=doubt)


def texts(condition: Condition, now_ms: int) -> list[str]:
    return [one.text for one in condition.between(now_ms - KEPT_MS, now_ms)]


def test_the_newest_word_on_each_thing_is_shown_for_a_quarter_of_an_hour() -> None:
    condition = Condition()
    condition.take(beat(SOFTIRQ, DROPS), 1_000)
    condition.take(beat(Vital(name="softirq", where="cpu2", value=250)), 2_000)

    assert texts(condition, 3_000) == ["eth0 dropped 312 of 52000 packets", "softirq 25 % of cpu2"]
    assert [row["age"] for row in condition.rows(2_500)] == [1.5, 0.5]
    assert texts(condition, 1_001 + KEPT_MS) == ["softirq 25 % of cpu2"]
    assert [one.name for one in condition.fresh(31_500)] == ["softirq"]


def test_a_doubt_is_noted_when_it_comes_not_whenever_its_numbers_change() -> None:
    condition = Condition()
    for at_ms, text in enumerate(("own timers fired 0.43 s late", "own timers fired 0.6 s late")):
        condition.take(beat(doubts=(text,), doubt=1), at_ms)

    assert texts(condition, 10) == ["doubts itself: own timers fired 0.43 s late"]


def test_doubts_for_two_references_are_two_though_only_their_numbers_differ() -> None:
    condition, lost = Condition(), [f"reference tcp://10.0.0.{at}:443 does not answer" for at in (1, 2)]
    condition.take(beat(doubts=(lost[0],), doubt=1), 1)
    condition.take(beat(doubts=tuple(lost), doubt=2), 2)

    assert texts(condition, 10) == [f"doubts itself: {text}" for text in lost]


def test_what_a_host_in_trouble_says_is_bounded() -> None:
    condition = Condition()
    for at_ms in range(1_000):
        condition.take(beat(Vital(name="errors", where=f"eth{at_ms}", value=1)), at_ms)

    assert len(condition.rows(1_000)) == 128


@pytest.mark.parametrize(
    "wrong",
    [
        beat(Vital(name="x" * 301, value=1)),
        beat(Vital(name="drops", where="eth0\x1b[2J", value=1)),
        beat(Vital(name="drops", value=-1)),
        beat(Vital(name="drops", value=2**60)),
        beat(doubts=("two\nlines",)),
        beat(doubts=("x",) * 257),
    ],
    ids=["endless", "steers a terminal", "negative", "beyond reason", "two lines", "too many"],
)
def test_what_cannot_be_meant_is_refused(wrong: Heartbeat) -> None:
    with pytest.raises(RemoteProtocolError, match="vitals"):
        check(wrong)


def test_doubts_and_vitals_are_in_the_listing_the_metrics_the_status_and_the_explanation(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_center(tmp_path) as center, center.agent("edge-03") as agent:
            said = {"vitals": (SOFTIRQ, DROPS), "doubts": (LATE,), "doubt": 1}
            for _ in range(3):
                await agent.reported({"payments/a": dead(), "payments/b": good()}, **said)
            row = (await center.json("/api/v1/agents"))["agents"][0]
            assert (row["doubt"], row["doubts"]) == (1, [LATE])
            assert [vital["text"] for vital in row["vitals"]] == [
                "eth0 dropped 312 of 52000 packets",
                "softirq 41 % of cpu2",
            ]
            assert await center.metric('reachline_agent_doubt{agent="edge-03"}') == 1
            assert await center.metric('reachline_agent_vital{agent="edge-03",name="drops",where="eth0"}') == 312

            async def explained() -> str:
                text: str = (await center.json("/api/v1/explain/payments/a"))["text"]
                return text

            await until(lambda: _has(explained), what="the vitals in the explanation")
            text = await explained()
            assert "Beside   at " in text
            assert " edge-03: doubts itself: own timers fired 0.43 s late" in text
            # They may have come in another second than the doubt.
            assert "eth0 dropped 312 of 52000 packets, softirq 41 % of cpu2" in text
            shown = await asyncio.to_thread(_status, center.http)
            assert "agent edge-03 doubts itself (1 of 7): own timers fired 0.43 s late" in shown
            assert "agent edge-03: softirq 41 % of cpu2 (" in shown

    asyncio.run(scenario())


def test_two_vantages_that_doubt_themselves_do_not_outvote_one_that_does_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running_center(tmp_path) as center,
            center.agent("sure") as sure,
            center.agent("late-1") as first,
            center.agent("late-2") as second,
        ):

            async def is_healthy() -> bool:
                await sure.reported({"payments/a": good()})
                for doubter in (first, second):
                    await doubter.reported({"payments/a": dead()}, doubt=3, doubts=(LATE,))
                return (await center.line("payments/a"))["health"] == "healthy"

            await until(is_healthy, what="the line judged healthy")

    asyncio.run(scenario())


async def _has(explained) -> bool:  # type: ignore[no-untyped-def]
    return "Beside" in await explained()


def _status(url: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status.command(line=None, center=url, cluster="", output=Output.TABLE)
    return out.getvalue()
