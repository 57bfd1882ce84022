"""Data planes as the center remembers them: who is here is never forgotten, and of who was forgotten nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from envoy.service.health.v3 import hds_pb2
from google.protobuf import json_format
from tests.center.planes import hello

from reachline.center.board import Board, ConfigStatus
from reachline.center.ledgers import compiled
from reachline.center.owner import Owner
from reachline.center.roster import Agent, Roster
from reachline.center.stream import Stream
from reachline.center.xds import planes
from reachline.center.xds.access import AccessLogs
from reachline.center.xds.admission import INTRODUCTION
from reachline.center.xds.load import Loads
from reachline.center.xds.planes import By, Plane, Planes
from reachline.center.xds.sums import Windows
from reachline.center.xds.vantage import Vantages
from reachline.doors import reach
from reachline.errors import RemoteProtocolError
from reachline.model import LineId, Locality, VantageId, Version
from reachline.net.rpc import Call
from reachline.store.journal import Journal
from reachline.testing import builders
from reachline.wire import hds
from reachline.wire.frame import Plan
from reachline.wire.lrs import Load, Spot
from reachline.wire.telling import Teller

DOCUMENT = reach.read("clusters: {payments: {lines: {a: 'tcp://10.0.0.1:443'}}}", name="test")
PEER = Call("ipv4:10.0.0.9:1", {})
Played = Callable[[Callable[[Planes], Coroutine[Any, Any, None]]], Board]


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    """Plays a story of data planes against an owner and its journal; the board afterwards."""
    journal = Journal.open(tmp_path)
    board = Board(clock=lambda: 10, origin=0.0, roster=Roster({}), config=ConfigStatus(name="", digest="", loaded=0.0))
    board.version = Version(1, 0)
    owner = Owner(board=board, stream=Stream(board), journal=journal, ledgers={}, holds={})
    owner.begin(compiled(DOCUMENT))

    def play(story: Callable[[Planes], Coroutine[Any, Any, None]]) -> Board:
        async def main() -> None:
            await owner.tick()  # publishes the lines
            await story(Planes(owner=owner, board=board))

        asyncio.run(main())
        return board

    yield play
    journal.close()


def told(found: Planes, plane: Plane, calls: int) -> None:
    found.loads(plane, [Spot("payments", Locality(sub_zone="a"), Load(calls, 0))], at_ms=10, interval_us=0)


def test_a_data_plane_that_is_here_is_not_forgotten_however_many_there_are(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planes, "_MOST", 1)

    async def story(found: Planes) -> None:
        first = found.joined(Teller("envoy-1"), By.LRS, "")
        found.joined(Teller("envoy-2"), By.LRS, "")
        told(found, first, 3)
        found.post()
        assert [row["node"] for row in found.rows()] == ["envoy-1", "envoy-2"]

    assert played(story).counts["outcomes", "ok"] == 3


def test_the_last_calls_of_one_that_is_forgotten_count_and_totals_never_fall(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planes, "_MOST", 1)

    async def story(found: Planes) -> None:
        first = found.joined(Teller("envoy-1"), By.LRS, "")
        told(found, first, 3)
        found.left(first)
        found.joined(Teller("envoy-2"), By.LRS, "")
        found.post()
        assert [row["node"] for row in found.rows()] == ["envoy-2"]
        assert (found.figures()["counted", "lrs"], found.figures()["streams", "lrs"]) == (3, 1)

    assert played(story).counts["outcomes", "ok"] == 3


def test_who_left_longest_ago_is_forgotten_first(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "_MOST", 2)

    async def story(found: Planes) -> None:
        old, young = (found.joined(Teller(name), By.LRS, "") for name in ("old", "young"))
        found.left(young)
        found.left(old)
        found.joined(Teller("next"), By.LRS, "")
        assert [row["node"] for row in found.rows()] == ["next", "old"]

    played(story)


def test_streams_that_say_nothing_yet_open_no_more_than_there_is_room_for(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are let in before any has said who it is."""
    monkeypatch.setattr(planes, "_STREAMS", 1)

    async def story(found: Planes) -> None:
        vantages, gate = Vantages(found, plan=planned, document=lambda: DOCUMENT), asyncio.Event()
        streams = [vantages.stream(introduced(name, gate), PEER) for name in ("envoy-1", "envoy-2")]
        asked = [asyncio.ensure_future(anext(each)) for each in streams]
        await asyncio.sleep(0)
        gate.set()
        first, second = await asyncio.gather(*asked, return_exceptions=True)
        assert (type(first), str(second)) == (bytes, "1 streams of data planes are open already")

    roster = played(story).roster
    assert (roster.get(VantageId("envoy-1")) is None, roster.get(VantageId("envoy-2"))) == (False, None)


def planned(agent: Agent, number: int) -> Plan:
    return reach.plan(DOCUMENT, agent=agent.id, locality=agent.locality, number=number)


async def introduced(name: str, gate: asyncio.Event) -> AsyncIterator[bytes]:
    await gate.wait()
    said = hello(hds.METHOD, {"id": name})
    yield json_format.ParseDict(said, hds_pb2.HealthCheckRequestOrEndpointHealthResponse()).SerializeToString()


def test_a_call_that_claims_to_have_lasted_less_than_no_time_began_no_earlier_than_it_ended() -> None:
    found, line = Windows(), LineId("payments/a")
    found.look("payments", builders.snapshot(replace(builders.standing("a"), line=line, window=7)), 1_000)

    assert [found.of(line, -(10**12), at_ms) for at_ms in (1_000, 2_999, 3_000)] == [0, 0, 7]


def test_a_stream_of_evidence_does_not_begin_with_more_than_an_introduction(played: Played) -> None:
    """It is read before anybody knows whose it is."""

    async def giant() -> AsyncIterator[bytes]:
        yield bytes(INTRODUCTION + 1)

    async def story(found: Planes) -> None:
        vantages = Vantages(found, plan=planned, document=lambda: DOCUMENT)
        for stream in (AccessLogs(found).stream, Loads(found).stream, vantages.stream):
            with pytest.raises(RemoteProtocolError, match="has 1048577 bytes, at most 1048576 are read"):
                await anext(stream(giant(), PEER))

    played(story)
