"""GET: lines, one line, decisions, explanations, agents, the document's status."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from reachline.center.api.desk import Desk
from reachline.center.api.refused import RefusedError
from reachline.center.api.schema import model
from reachline.center.board import Cluster, dumps
from reachline.model import Line, LineId
from reachline.wire import incidents, matrix, view

__all__ = ["json_answer", "routes", "unknown_cluster"]

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {404: {"model": model(view.ErrorDocument)}}
_LATEST: Final = float(2**33)
"""Unix seconds of the year 2242: a moment beyond is none that anybody means."""
_HIGHEST: Final = float(2**53)
"""Decisions' ids are below, so that every reader of JSON keeps them exact."""
_MOST: Final = 2_000
"""Decisions one answer carries: all that are kept."""


def json_answer(document: object, status: int = 200) -> Response:
    """The document as JSON."""
    return Response(dumps(document), status, media_type="application/json")


def unknown_line(desk: Desk, line: str) -> RefusedError:
    """404 for a line, with what there is instead."""
    known = sorted(each for cell in desk.board.cells() for each in cell.value.lines)
    near = [each for each in known if line.rpartition("/")[2] in each][:5] or known[:5]
    return RefusedError(404, "unknown_line", f"there is no line {line!r}", f"there are, for example: {', '.join(near)}")


def unknown_cluster(desk: Desk, cluster: str) -> RefusedError:
    """404 for a cluster, with what there is instead."""
    names = ", ".join(sorted(desk.board.clusters)[:10])
    return RefusedError(404, "unknown_cluster", f"there is no cluster {cluster!r}", f"there are: {names}")


def _found(desk: Desk, line: str) -> tuple[Cluster, Line]:
    found = desk.board.find(line)
    if found is None:
        raise unknown_line(desk, line)
    return found


def routes(desk: Desk) -> APIRouter:
    """Everything that is read once."""
    router = APIRouter(default_response_class=JSONResponse)
    _lines(router, desk)
    _decisions(router, desk)
    _incidents(router, desk)
    _status(router, desk)
    for name, page in desk.pages.items():
        router.add_api_route(
            f"/{name}", lambda page=page: json_answer(page()), summary=f"{name}: told by who started this"
        )
    return router


def _lines(router: APIRouter, desk: Desk) -> None:
    board = desk.board

    @router.get("/lines", responses={200: {"model": model(view.LinesDocument)}, **_ANSWERS})
    async def lines(cluster: Annotated[str, Query(description="Only this cluster.")] = "") -> Response:
        """Every line as it stands, clusters by name, lines as published (weight down)."""
        if cluster and cluster not in board.clusters:
            raise unknown_cluster(desk, cluster)
        rows = board.rows(board.clusters[cluster].value) if cluster else board.all_rows()
        document: view.LinesDocument = {"version": str(board.version), "age": board.age(), "lines": rows}
        return json_answer(document)

    @router.get("/lines/{line:path}", responses={200: {"model": model(view.LineRow)}, **_ANSWERS})
    async def one_line(line: str) -> Response:
        """One line in full: its row, and `votes`, `readings`, `history` (15 minutes), `changes`, and what data planes `told` lately."""
        cluster, found = _found(desk, line)
        page = board.page(cluster, found)
        told = [
            {"by": by, "age": round((board.clock() - at_ms) / 1_000, 3), "text": text}
            for by, at_ms, text in desk.evidence.told(found.id)
        ]
        return json_answer({**page, "votes": desk.owner.votes(found.id), "told": told})

    @router.get("/clusters")
    async def clusters() -> Response:
        """Every cluster with its version, policy and number of lines, and `notes`: what is wrong there and no line's fault."""
        rows = [
            {
                "cluster": cell.value.scope.cluster,
                "version": str(cell.value.version),
                "policy": list(cell.value.rules.policy),
                "panic": cell.value.snapshot.panic,
                "lines": len(cell.value.lines),
                "notes": list(board.notes.get(cell.value.scope.cluster, ())),
            }
            for cell in board.cells()
        ]
        return json_answer({"version": str(board.version), "clusters": rows})


def _decisions(router: APIRouter, desk: Desk) -> None:
    @router.get("/changes")
    async def changes(
        since: Annotated[
            float,
            Query(
                ge=0,
                le=_HIGHEST,
                allow_inf_nan=False,
                description="A decision's id, or Unix seconds: only what came after.",
            ),
        ] = 0,
        line: Annotated[str, Query(description="Only this line.")] = "",
        limit: Annotated[int, Query(ge=1, le=_MOST)] = 100,
    ) -> Response:
        """The newest decisions, oldest first."""
        if line:
            _found(desk, line)
        rows = desk.board.changes(since=since, line=line, limit=limit)
        return json_answer({"changes": rows, "next": rows[-1]["id"] if rows else since})

    @router.get("/explain/{line:path}", responses=_ANSWERS)
    async def explain(
        line: str,
        at: Annotated[
            float | None,
            Query(ge=0, le=_LATEST, allow_inf_nan=False, description="Unix seconds; now, where it is left out."),
        ] = None,
    ) -> Response:
        """Why the line stands where it stands: rule, votes with their counts, facts, the next deadline."""
        _found(desk, line)
        return json_answer(await desk.explain(LineId(line), at))


def _incidents(router: APIRouter, desk: Desk) -> None:
    @router.get("/incidents", responses={200: {"model": model(incidents.IncidentsDocument)}, **_ANSWERS})
    async def told(
        line: Annotated[str, Query(description="Only those of this line.")] = "",
        lasting: Annotated[bool, Query(description="Only those that last.")] = False,
        limit: Annotated[int, Query(ge=1, le=_MOST)] = 100,
    ) -> Response:
        """The newest incidents, newest first: faults from the first bad verdict to full weight, with their mean times."""
        if line:
            _found(desk, line)
        found = [one for one in desk.board.log.incidents.all() if not line or line in one.lines]
        found = [one for one in found if not (lasting and one.is_over)]
        return json_answer(incidents.document(found[-limit:], origin=desk.board.origin))


def _status(router: APIRouter, desk: Desk) -> None:
    board = desk.board

    @router.get("/agents")
    async def agents() -> Response:
        """Every agent that is expected or has joined."""
        return json_answer({"now": round(time.time(), 3), "agents": board.roster.rows(board.clock())})

    @router.get("/evidence")
    async def evidence() -> Response:
        """Every data plane (Envoy, gRPC client) that sends evidence: how (`hds`, `lrs`, `als`), and what became of it."""
        return json_answer({"now": round(time.time(), 3), "planes": desk.evidence.rows()})

    @router.get("/mesh", responses={200: {"model": model(matrix.MeshDocument)}})
    async def mesh(
        agent: Annotated[str, Query(description="Only the ways from and to this agent.")] = "",
        *,
        trouble: Annotated[bool, Query(description="Only ways that are silent, stale or at fault.")] = False,
    ) -> Response:
        """Every way between two agents: heard or silent, loss and delay rise each way, and which way is at fault."""
        document = await asyncio.to_thread(desk.mesh().document, agent=agent, only_trouble=trouble)
        return json_answer(document)

    @router.get("/config")
    async def config() -> Response:
        """Which document is in force, and what became of its last change on disk."""
        return json_answer({**board.config._asdict(), "problems": list(board.config.problems)})
