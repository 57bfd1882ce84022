"""What of a host's counters is told: what is out of the ordinary, once, and in words that people know."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from reachline.agent.vitals import EVERY, Vitals, differences
from reachline.core import vitals
from reachline.net.vitals import Core, Host, Nic
from reachline.testing.wait import until
from reachline.wire.frame import Vital
from reachline.wire.optics import Light

QUIET = Host(cores={"cpu0": Core(100, 10, 10_000), "cpu1": Core(0, 0, 10_000)}, nics={"eth0": Nic(10_000, 5, 0, 2)})


def told(**changed: object) -> list[tuple[str, str, int, int]]:
    """What is told of a host that was quiet ten seconds ago."""
    found = differences(QUIET, QUIET._replace(**changed), 10.0)  # type: ignore[arg-type]
    return [(vital.name, vital.where, vital.value, vital.whole) for vital in found]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"cores": {"cpu0": Core(120, 10, 11_000), "cpu1": Core(410, 0, 11_000)}}, [("softirq", "cpu1", 410, 0)]),
        ({"cores": {"cpu0": Core(199, 10, 11_000), "cpu1": Core(0, 0, 11_000)}}, []),
        ({"cores": {"cpu0": Core(100, 90, 11_000), "cpu1": Core(0, 20, 11_000)}}, [("steal", "", 50, 0)]),
        ({"nics": {"eth0": Nic(12_000, 17, 0, 2)}}, [("drops", "eth0", 12, 2_000)]),
        ({"nics": {"eth0": Nic(90_000, 25, 0, 2)}}, []),
        ({"nics": {"eth0": Nic(10_010, 14, 0, 2)}}, []),
        ({"nics": {"eth0": Nic(10_100, 5, 1, 4)}}, [("errors", "eth0", 1, 100), ("carrier", "eth0", 2, 0)]),
        ({"nics": {"eth0": Nic(3, 0, 0, 0), "eth1": Nic(9, 9_999, 9, 9)}}, []),
        ({"backlog": 3, "full": 4}, [("backlog", "", 3, 0), ("udp", "", 4, 0)]),
        ({"segments": 1_000, "again": 20}, [("retransmits", "", 20, 1_000)]),
        ({"segments": 2_000, "again": 20}, []),
        ({"segments": 100, "again": 19}, []),
    ],
    ids=[
        "nothing", "softirq", "little softirq", "steal", "drops", "few drops", "very few drops", "errors and carrier",
        "an interface that was replaced, and a new one", "buffers", "sent again", "a small share", "a small number",
    ],
)  # fmt: skip
def test_only_what_is_out_of_the_ordinary_is_told(
    changed: dict[str, object], expected: list[tuple[str, str, int, int]]
) -> None:
    assert told(**changed) == expected


@pytest.mark.parametrize(
    ("name", "where", "value", "whole", "words"),
    [
        ("softirq", "cpu2", 410, 0, "softirq 41 % of cpu2"),
        ("steal", "", 55, 0, "the hypervisor took 5.5 % of the processors"),
        ("drops", "eth0", 312, 52_000, "eth0 dropped 312 of 52000 packets"),
        ("carrier", "eth0", 2, 0, "eth0 lost or found its carrier 2 times"),
        ("light", "eth3", 158, 400, "eth3 receives -18.0 dBm (its module warns below -14.0 dBm)"),
        ("light", "eth3", 0, 0, "eth3 receives no light"),
        ("fan", "chassis", 900, 0, "chassis fan 900"),
    ],
)
def test_a_vital_is_told_in_words_and_an_unknown_one_by_its_name(
    name: str, where: str, value: int, whole: int, words: str
) -> None:
    assert vitals.told(name, where, value, whole) == words


def test_counters_are_looked_at_every_few_seconds_and_only_of_the_interfaces_that_lines_take() -> None:
    asked: list[tuple[str, ...]] = []

    def read(nics: Iterable[str]) -> Host:
        asked.append(tuple(nics))
        return Host(full=len(asked))

    async def scenario() -> list[tuple[Vital, ...]]:
        looking = Vitals(lambda: ["eth0"], read=read, see=lambda _: None)
        found = [looking.news(at) for at in (0.0, 1.0, EVERY, EVERY + 1.0, 2 * EVERY)]
        looking.close()
        return found

    found = asyncio.run(scenario())

    assert asked == [("eth0",)] * 3
    assert [[vital.value for vital in each] for each in found] == [[], [], [1], [], [1]]
    assert {vital.over_ms for each in found for vital in each} == {round(1_000 * EVERY)}


def test_modules_that_cannot_be_read_cost_nothing_but_their_light() -> None:
    def see(_: str) -> Light | None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> tuple[Vital, ...]:
        looking = Vitals(lambda: ["eth0"], read=lambda _: Host(full=next(counts)), see=see)
        looking.news(0.0)
        await until(lambda: looking.has_read, what="the module asked")
        return looking.news(EVERY)

    counts = iter(range(9))
    (only,) = asyncio.run(scenario())

    assert (only.name, only.value) == ("udp", 1)


def test_light_is_told_when_it_changed_by_a_decibel_or_is_less_than_its_module_likes() -> None:
    seen = iter(
        [Light(5_000, 400), Light(4_500, 400), Light(3_900, 400), Light(3_900, 400), Light(300, 400), Light(300, 400)]
    )

    async def scenario() -> list[int | None]:
        looking, now, found = Vitals(lambda: ["eth0"], read=lambda _: Host(), see=lambda _: next(seen)), 0.0, []
        for _ in range(6):
            looking.news(now)
            await until(lambda: looking.has_read, what="the module read")
            said = looking.news(now + EVERY)
            found.append(said[0].value if said else None)
            now += 60.0
        looking.close()
        return found

    assert asyncio.run(scenario()) == [None, None, 3_900, None, 300, 300]
