"""POST: what clients' calls came to, and what foreign agents measured. Answered once the journal has it, or cannot have it.

What an answer of 202 says is counted, whatever became of the journal: a client that posted it again would be counted twice.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson
from fastapi import APIRouter, Request, Response

from reachline.center.api.desk import Desk
from reachline.center.api.guard import shows
from reachline.center.api.reading import json_answer, unknown_cluster
from reachline.center.api.refused import RefusedError
from reachline.center.api.schema import model
from reachline.doors import heartbeat
from reachline.errors import ConfigError
from reachline.model import Kind, LineId
from reachline.wire import view
from reachline.wire.frame import Report
from reachline.wire.posted import OutcomesDocument, read_outcomes

__all__ = ["routes"]

_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": model(view.ErrorDocument)},
    404: {"model": model(view.ErrorDocument)},
    413: {"model": model(view.ErrorDocument)},
}
_COUNTED: Final = {"ambiguous_target": "ambiguous", "agent_attached": "attached"}
"""How refusals of foreign heartbeats are counted, by their code; all others as unknown."""


def routes(desk: Desk) -> APIRouter:
    """`/outcomes` and `/heartbeats`."""
    router = APIRouter()
    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": _schema(OutcomesDocument)}}}}

    @router.post("/outcomes", status_code=202, responses=_REFUSALS, openapi_extra=body)
    async def outcomes(request: Request) -> Response:
        """A batch of call results of one client, summed per line and second, and its open breakers."""
        posted = read_outcomes(await _document(request))
        cell = desk.board.clusters.get(posted.cluster)
        if cell is None:
            raise unknown_cluster(desk, posted.cluster)
        known = tuple(row for row in posted.outcomes if row.line in cell.value.lines)
        unknown = sorted({row.line for row in posted.outcomes} - cell.value.lines.keys())
        desk.board.counts["outcomes_unknown", ""] += len(posted.outcomes) - len(known)
        record = desk.owner.outcomes(cell.value.scope, posted.client, known, shed=posted.shed)
        desk.board.client(posted.client, posted.open)
        journalled = await desk.owner.disk.stored(record)
        return json_answer({"taken": len(known), "unknown": unknown, "journalled": journalled}, 202)

    @router.post("/heartbeats", status_code=202, responses={**_REFUSALS, 409: {"model": model(view.ErrorDocument)}})
    async def heartbeats(request: Request) -> Response:
        """One heartbeat of a foreign agent, as the source document writes it; an optional `line` says which line it means."""
        answer = "unknown"
        try:
            found = _foreign(desk, await request.body(), request.headers.get("authorization", ""))
            answer = "taken"
        except RefusedError as error:
            answer = _COUNTED.get(error.code, answer)
            raise
        finally:
            desk.board.counts["reports_foreign", answer] += 1
        report = Report(line=found.line, reading=heartbeat.reading(found.heartbeat))
        others = _other_kinds(desk, found, report.reading.kind)
        record = desk.owner.report(found.heartbeat.agent, [report], standing=others)
        journalled = await desk.owner.disk.stored(record)
        return json_answer({"line": found.line, "journalled": journalled}, 202)

    return router


class _Matched(NamedTuple):
    line: LineId
    heartbeat: heartbeat.ForeignHeartbeat


def _foreign(desk: Desk, body: bytes, authorization: str) -> _Matched:
    """The heartbeat and the one line it speaks of; RefusedError for one that cannot be taken."""
    try:
        found = heartbeat.read(body)
    except ConfigError as error:
        problems = "; ".join(map(str, error.problems))
        raise RefusedError(400, "malformed", problems, "the fields are those of the source document") from error
    roster = desk.board.roster
    token = roster.token(found.agent)
    if token and not desk.token and not shows(authorization, token):
        raise RefusedError(
            401, "unauthorized", f"agent {found.agent!r} did not give its token", "Authorization: Bearer …"
        )
    if desk.gate.is_certified(found.agent):
        told = f"agent {found.agent!r} reports by its certificate alone"
        raise RefusedError(403, "certified", told, "report under another agent_id")
    if (agent := roster.get(found.agent)) and agent.session:
        told = f"agent {found.agent!r} is attached and speaks for itself"
        raise RefusedError(409, "agent_attached", told, "report under another agent_id")
    lines = [line for cell in desk.board.cells() for line in cell.value.lines.values()]
    line = heartbeat.match(found, lines, roster.localities())
    if isinstance(line, tuple):
        raise _unmatched(found, line)
    if refused := roster.foreign(found.agent, desk.board.clock()):
        raise RefusedError(403, "unknown_agent", refused, "name it there, or leave `agents` out")
    desk.owner.members()
    return _Matched(line, found)


def _unmatched(found: heartbeat.ForeignHeartbeat, candidates: tuple[LineId, ...]) -> RefusedError:
    target = f"{found.target} as seen by {found.agent}"
    if candidates:
        hint = "say which with the key `line`"
        return RefusedError(
            409,
            "ambiguous_target",
            f"{target} may be {len(candidates)} lines",
            hint,
            extra={"candidates": candidates},
        )
    return RefusedError(404, "unknown_target", f"no line has the target {target}", "GET /api/v1/lines names them")


def _other_kinds(desk: Desk, found: _Matched, kind: Kind) -> list[Report]:
    """What the same agent said of the line by other kinds and still counts: a ledger wants all kinds of a line together."""
    cluster = desk.board.find(found.line)
    fresh_ms = cluster[0].rules.quorum.fresh_ms if cluster else 0
    now_ms = desk.board.clock()
    return [
        Report(line=found.line, reading=seen.reading)
        for (vantage, other), seen in sorted(desk.board.readings.seen(found.line).items())
        if vantage == found.heartbeat.agent
        and other is not kind
        and now_ms - seen.at_ms <= fresh_ms
        # Shown to people only: from a time without a center, or of an agent that was cut off itself.
        and not (seen.replayed or seen.reading.void)
    ]


def _schema(document: type) -> dict[str, Any]:
    return model(document).model_json_schema()


async def _document(request: Request) -> object:
    try:
        return orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise RefusedError(400, "malformed_json", f"the body is no JSON: {error}") from error
