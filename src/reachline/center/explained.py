"""Why a line stands as it does: from the ledger for now, from the journal for a moment in the past."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from reachline.center.api.refused import RefusedError
from reachline.center.board import Board
from reachline.center.evidence import BY_HDS, Told
from reachline.center.matrix import told_way
from reachline.center.mesh import MeshSeen
from reachline.center.owner import Owner
from reachline.center.readings import told_paths
from reachline.core import telling
from reachline.core.explain import Explanation, explain
from reachline.core.steer import told as told_steer
from reachline.core.vitals import Beside
from reachline.errors import JournalError
from reachline.model import LineId, Seconds, VantageId
from reachline.net.stamped import parts
from reachline.store.history import Told as Then
from reachline.store.history import told

__all__ = ["Explainer"]

_BEFORE_MS: Final = 60_000
"""A decision rests on what the last minute brought: three ticks of ten seconds, and the heartbeats before them…"""
_AFTER_MS: Final = 15_000
"""…and the host's own counters come with the heartbeat that follows."""


class Explainer:
    """Answers from what the center knows. Reads only."""

    def __init__(
        self,
        *,
        board: Board,
        owner: Owner,
        journal: Path,
        mesh: Callable[[], MeshSeen],
        told: Callable[[LineId], Sequence[Told]] = lambda _: (),
    ) -> None:
        """`told` is what data planes said of a line lately."""
        self._board = board
        self._told = told
        self._mesh = mesh
        self._owner = owner
        self._journal = journal

    async def explain(self, line: LineId, at: Seconds | None) -> Mapping[str, object]:
        """The explanation of a known line, now or at a Unix time."""
        if at is None:
            return self._now(line)
        then = await asyncio.to_thread(self._then, line, at)
        return then.document(self._beside(then.explanation, then.meta.unix))

    def _now(self, line: LineId) -> Mapping[str, object]:
        board, now_ms = self._board, self._board.clock()
        known = self._owner.view(line)
        if known is None:
            raise RefusedError(
                404, "unknown_line", f"{line} is not judged any more, or not yet", "ask again after a tick"
            )
        found = explain(known[0], board.history(line), rules=known[1], now_ms=now_ms)
        beside = (
            *self._plan(line),
            *self._beside(found, self._unix),
            *self._limits(line),
            *self._ways(line),
            *self._planes(line),
            *self._envoys(found),
        )
        return telling.document(found, self._clock, self._unix, beside)

    def _beside(self, found: Explanation, unix: Callable[[int], Seconds]) -> tuple[Beside, ...]:
        """What the vantages said of themselves around the decision and around the moment that is explained."""
        vantages = sorted({vote.vantage for vote in (*found.votes, *found.current)})
        moments = [found.now_ms] if found.decided_ms is None else [found.decided_ms, found.now_ms]
        here = [round(1_000 * (unix(moment) - self._board.origin)) for moment in moments]
        said = {
            (vantage, one)
            for vantage in vantages
            if (agent := self._board.roster.get(VantageId(vantage)))
            for moment in here
            for one in agent.condition.between(moment - _BEFORE_MS, moment + _AFTER_MS)
        }
        ordered = sorted(said, key=lambda item: (item[1].at_ms, item[0], item[1]))
        return tuple(
            Beside(vantage, self._unix(one.at_ms), self._clock(one.at_ms), one.text) for vantage, one in ordered
        )

    def _plan(self, line: LineId) -> Iterator[Beside]:
        """What the plan across regions makes of the line's cluster, for it moves calls that weights do not."""
        known = self._board.find(line)
        if known is not None and (steer := known[0].steer) is not None:
            at_ms = known[0].snapshot.issued_ms
            yield Beside("the plan across regions", self._unix(at_ms), self._clock(at_ms), told_steer(steer))

    def _limits(self, line: LineId) -> Iterator[Beside]:
        """What vantages that are heard now found of the paths behind the line, and what their own limits keep from it."""
        known = self._board.find(line)
        fresh_ms = max(_BEFORE_MS, known[0].rules.quorum.fresh_ms) if known else _BEFORE_MS
        since_ms = self._board.clock() - fresh_ms
        for (vantage, _), seen in sorted(self._board.readings.seen(line).items()):
            if seen.replayed or seen.at_ms < since_ms:
                continue
            texts = [told_paths(seen.detail.ports)]
            if (skipped := seen.detail.skipped) and (agent := self._board.roster.get(vantage)):
                why = agent.pacing.limit if agent.pacing else ""
                texts.append(f"left out {skipped} rounds itself" + (f", for the limit of {why}" if why else ""))
            for text in filter(None, texts):
                yield Beside(vantage, self._unix(seen.at_ms), self._clock(seen.at_ms), text)

    def _ways(self, line: LineId) -> Iterator[Beside]:
        """What the line's vantages are certain of on their ways to an agent that stands where the line ends."""
        known, now_ms = self._board.find(line), self._board.clock()
        vantages = {vantage for vantage, _ in self._board.readings.seen(line)}
        mesh, host = self._mesh(), known[1].endpoint.host if known else ""
        ends = [agent for agent, address in mesh.agents if host and parts(address)[0] == host]
        for way in mesh.ways.between(vantages, ends):
            if text := told_way(way):
                at_ms = now_ms - round(1_000 * way["age"])
                yield Beside(way["vantage"], self._unix(at_ms), self._clock(at_ms), text)

    def _planes(self, line: LineId) -> Iterator[Beside]:
        """Whose calls stand behind what the business says, and what the line's endpoints say of themselves."""
        for teller, at_ms, text in self._told(line):
            yield Beside(teller, self._unix(at_ms), self._clock(at_ms), text)

    def _envoys(self, found: Explanation) -> Iterator[Beside]:
        """Which of the vantages are data planes: what they say is weaker evidence."""
        for vantage in sorted({vote.vantage for vote in (*found.votes, *found.current)}):
            agent = self._board.roster.get(VantageId(vantage))
            if agent is not None and agent.last_ms is not None and agent.release.endswith(BY_HDS):
                text = f"{agent.release}, which says of a probe whether it went well, and no more"
                yield Beside(vantage, self._unix(agent.last_ms), self._clock(agent.last_ms), text)

    def _unix(self, at_ms: int) -> Seconds:
        return round(self._board.origin + at_ms / 1000, 3)

    def _clock(self, at_ms: int) -> str:
        """A moment of the journal as this machine's clock showed it."""
        return time.strftime("%H:%M:%S", time.localtime(self._board.origin + at_ms / 1000))

    def _then(self, line: LineId, at: Seconds) -> Then:
        try:
            return told(self._journal, line, at=at)
        except JournalError as error:
            raise RefusedError(404, "not_in_journal", str(error), "ask for a moment that the journal holds") from error
