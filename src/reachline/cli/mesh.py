"""`reachline mesh`: the ways between agents, and which of them is at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from reachline.cli.asking import CENTER, CenterOption, ask
from reachline.cli.render import Column, Output, OutputOption, console, milliseconds, percent, show, table
from reachline.core import words
from reachline.errors import ConfigError, Problem

__all__ = ["command"]

Row = Mapping[str, Any]

_GRID: Final = 8
"""Agents whose matrix fits a terminal of 80 columns."""


def command(
    agent: Annotated[str, typer.Argument(metavar="[AGENT]", help="Only the ways from and to this agent.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Of many agents too, ways that are well.")] = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show every way between two agents: round trip, loss and delay each way, and which way is certainly at fault.

    Troubled ways come first. A fault is named once it is certain: about two minutes for 2 % of loss, 15 seconds for a delay.
    """
    document = ask(center, "/api/v1/mesh")
    ways = _of(document, agent)
    if output is Output.TABLE and not ways:
        console().print(_why_empty(document))
        return
    is_few = len(document["agents"]) <= _GRID
    if output is Output.TABLE and not agent and is_few:
        _matrix(document)
    rows = sorted(ways, key=_urgency)
    shown = rows if is_few or agent or all_ or output is Output.JSON else [way for way in rows if _is_troubled(way)]
    if shown:
        show(output, shown, _COLUMNS, document={**document, "ways": ways})
    if len(shown) < len(rows):
        console().print(f"{len(rows) - len(shown)} of {len(rows)} ways are heard and well (--all shows them)")


def _of(document: Mapping[str, Any], agent: str) -> Sequence[Row]:
    ways: Sequence[Row] = document["ways"]
    if not agent:
        return ways
    known = [each["agent"] for each in document["agents"]]
    if agent not in known:
        hint = f"there are: {', '.join(known[:10])}" if known else "no agent has come yet"
        raise ConfigError(
            Problem(place="mesh", path="AGENT", value=agent, rule="is no agent of this center", hint=hint)
        )
    return [way for way in ways if agent in (way["vantage"], way["peer"])]


def _why_empty(document: Mapping[str, Any]) -> str:
    if not document["enabled"]:
        return "the mesh is off: the document says mesh.enabled: false"
    reached = sum(each["address"] is not None for each in document["agents"])
    if len(document["agents"]) < 2:
        return "a mesh needs two agents at least"
    if reached:
        return "agents have not told anything yet: the first word comes with a heartbeat"
    return "no agent says where it answers others: start agents with --mesh, or say agents.NAME.mesh in the document"


def _matrix(document: Mapping[str, Any]) -> None:
    """From the agent of a row to that of a column."""
    names = [each["agent"] for each in document["agents"]]
    ways = {(way["vantage"], way["peer"]): way for way in document["ways"]}

    def column(peer: str) -> Column[str]:
        return Column(title=f"→ {peer}", cell=lambda name: _cell(ways.get((name, peer))), align="right")

    out = console()
    out.print(table(names, [Column(title="", cell=str), *(column(name) for name in names)]))
    out.print()


def _cell(way: Row | None) -> str:
    """What there is to say of one way, in a word or two."""
    if way is None:
        return "·"
    if way["state"] != "heard":
        dead = way["losing"] in ("forward", "both")
        return "dead" if dead else str(way["state"])
    if way["losing"] in ("forward", "both"):
        return f"{percent(way['loss'])} lost"
    if way["delayed"] in ("forward", "both"):
        return f"+{milliseconds(way['rise'])}"
    return milliseconds(way["rtt"])


def _is_troubled(way: Row) -> bool:
    return way["state"] != "heard" or bool(way["losing"] or way["delayed"])


def _urgency(way: Row) -> tuple[bool, bool, str, str]:
    return (not (way["losing"] or way["delayed"]), way["state"] == "heard", way["vantage"], way["peer"])


def _state(way: Row) -> str:
    """Heard or not, and since when; what is old is told with its age."""
    if way["state"] == "stale":
        return f"stale, {words.duration(round(way['age'] * 1_000))} old"
    if way["state"] == "heard":
        return "heard"
    since = "" if way["silent"] is None else f" for {words.duration(round(way['silent'] * 1_000))}"
    return way["error"] or (f"silent{since}" if since else "never answered")


def _finding(way: Row) -> str:
    """The certain faults as a person says them: `loses 2.1 % →`, `+90 ms ←`."""
    if way["state"] == "silent":
        dead = {"forward": "nothing gets through →", "reverse": "nothing comes back ←", "both": "dead both ways"}
        return dead.get(way["losing"], "")
    parts = []
    if way["losing"] in ("forward", "both"):
        parts.append(f"loses {percent(way['loss'])} →")
    if way["losing"] in ("reverse", "both"):
        parts.append(f"loses {percent(way['loss_back'])} ←")
    if way["delayed"] in ("forward", "both"):
        parts.append(f"+{milliseconds(way['rise'])} →")
    if way["delayed"] in ("reverse", "both"):
        parts.append(f"+{milliseconds(way['rise_back'])} ←")
    return ", ".join(parts)


_COLUMNS: list[Column[Row]] = [
    Column(title="from", cell=lambda way: way["vantage"]),
    Column(title="to", cell=lambda way: way["peer"]),
    Column(title="state", cell=_state, style=lambda way: "" if way["state"] == "heard" else "yellow"),
    Column(title="rtt", cell=lambda way: milliseconds(way["rtt"]), align="right"),
    Column(title="loss →", cell=lambda way: percent(way["loss"]), align="right"),
    Column(title="loss ←", cell=lambda way: percent(way["loss_back"]), align="right"),
    Column(title="certain", cell=lambda way: _finding(way) or "–", style=lambda way: "red" if _finding(way) else ""),
    Column(title="told by", cell=lambda way: way["told_by"]),
]
