"""`reachline status [LINE]`: the lines of a running center, or one line in full."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from reachline.cli.asking import CENTER, CenterOption, Refusal, ask
from reachline.cli.render import (
    Column,
    Output,
    OutputOption,
    console,
    milliseconds,
    number,
    percent,
    show,
    style_of,
    table,
    write_json,
)
from reachline.core import words
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds

__all__ = ["command"]

Row = Mapping[str, Any]

_BY_HDS: Final = " by HDS"
"""How the release of a vantage ends that is an Envoy."""


def command(
    line: Annotated[str | None, typer.Argument(metavar="[LINE]", help="One line, as `cluster/line[@origin]`.")] = None,
    center: CenterOption = CENTER,
    cluster: Annotated[str, typer.Option("--cluster", help="Only this cluster.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how lines stand: state, weight, score, P95, loss, the rule that put them there, what comes next."""
    try:
        if line is None:
            _all(ask(center, f"/api/v1/lines?cluster={quote(cluster)}"), output)
            if output is Output.TABLE:
                _notes(ask(center, "/api/v1/clusters")["clusters"])
                _agents(ask(center, "/api/v1/agents")["agents"])
        else:
            _one(ask(center, f"/api/v1/lines/{quote(line, safe='/@')}"), output)
    except Refusal as refused:
        if refused.status != 404:
            raise
        problem = Problem(place="status", path="", value="", rule=refused.message, hint=refused.hint)
        raise ConfigError(problem) from refused


def _all(document: Mapping[str, Any], output: Output) -> None:
    rows: Sequence[Row] = document["lines"]
    show(output, rows, _columns(time.time()), document=document)
    if output is Output.TABLE:
        console().print(f"\nversion {document['version']}, judged {document['age']:.1f} s ago", style="dim")


def _notes(rows: Sequence[Row]) -> None:
    """What is wrong in a cluster and no line's fault."""
    for row in rows:
        for note in row.get("notes", ()):
            console().print(f"{row['cluster']}: {note}", style="yellow", markup=False)


def _agents(rows: Sequence[Row]) -> None:
    """Agents that doubt themselves or cannot do all they are wanted for, and what is out of the ordinary on their hosts; nothing where all is well."""
    out = console()
    for row in rows:
        if row.get("doubt"):
            reasons = "; ".join(row["doubts"]) or "its reasons are over, the doubt fades"
            out.print(
                f"agent {row['agent']} doubts itself ({row['doubt']} of 7): {reasons}", style="yellow", markup=False
            )
        if quarantined := row.get("quarantined"):
            out.print(
                f"agent {row['agent']} is in quarantine ({row['trust']:.2f} of 1) in {', '.join(quarantined)}: "
                "it saw most lines fail alone, or contradicted the others for long",
                style="yellow",
                markup=False,
            )
        if lacks := row.get("lacks"):
            why = "is an Envoy, and none can" if row["release"].endswith(_BY_HDS) else "is too old to"
            said = f"agent {row['agent']} ({row['release']}) {why} probe {', '.join(lacks)}"
            out.print(said, style="yellow", markup=False)
        if (pacing := row.get("pacing")) and (pacing["limit"] or pacing["stretch"] > 1):
            out.print(f"agent {row['agent']} holds back: {_held(pacing)}", style="yellow", markup=False)
        for vital in row.get("vitals", ()):
            ago = words.duration(round(1_000 * vital["age"]))
            out.print(f"agent {row['agent']}: {vital['text']} ({ago} ago)", style="dim", markup=False)


def _held(pacing: Row) -> str:
    """What an agent leaves out by itself, so that nobody takes it for a line's doing."""
    stretched = f"all intervals are {pacing['stretch']:.2g} times as long" if pacing["stretch"] > 1 else ""
    skipped = sum(pacing["skipped"].values())
    limit = f"{pacing['limit']} is at its limit, {skipped} rounds are skipped so far" if pacing["limit"] else ""
    return "; ".join(filter(None, (stretched, limit)))


def _columns(now: Seconds) -> list[Column[Row]]:
    return [
        Column(title="line", cell=lambda row: row["line"]),
        Column(title="state", cell=_state, style=lambda row: style_of(_telling(row))),
        Column(title="weight", cell=lambda row: f"{row['weight']}/{row['base']}", align="right"),
        Column(title="score", cell=lambda row: number(row["score"]), align="right"),
        Column(title="p95", cell=lambda row: milliseconds(row["p95"]), align="right"),
        Column(title="loss", cell=lambda row: percent(_loss(row)), align="right"),
        Column(title="reason", cell=lambda row: row["reason"] or "–"),
        Column(title="next", cell=lambda row: _next(row, now)),
    ]


def _telling(row: Row) -> str:
    """The word that colours a line: its breaker unless that is closed."""
    word: str = row["health"] if row["breaker"] == "closed" else row["breaker"]
    return word


def _state(row: Row) -> str:
    """Health, or what the breaker does, in words; blindness is said."""
    word = _telling(row).replace("_", "-")
    if row["breaker"] == "ramp":
        word = f"ramp {row['step']}"
    return f"{word}, blind" if row["blind"] else word


def _loss(row: Row) -> float | None:
    """What a person means by loss: packets lost or attempts never answered, whichever is worse."""
    known = [value for value in (row["loss"], row["timeout"]) if value is not None]
    return max(known, default=None)


def _next(row: Row, now: Seconds) -> str:
    if row["next"] is None:
        return "–"
    ahead = row["next"] - now
    return f"in {words.duration(round(ahead * 1000))}" if ahead > 0 else "due"


def _one(page: Mapping[str, Any], output: Output) -> None:
    if output is Output.JSON:
        write_json(page)
        return
    now, out = time.time(), console()
    out.print(table([page], _columns(now)))
    via = f" by way of {page['via']}" if page["via"] != "direct" else ""
    out.print(f"\n{page['address']}{via}; so since {words.duration(round((now - page['since']) * 1000))}")
    if page["votes"]:
        out.print()
        out.print(table(page["votes"], _VOTES, title="votes"))
    if page["readings"]:
        out.print()
        out.print(table(page["readings"], _READINGS, title="readings"))
        for row in page["readings"]:
            if (paths := row.get("paths")) and paths["text"]:
                out.print(f"{row['vantage']}: {paths['text']}", style="yellow", markup=False)
    if page["changes"]:
        out.print()
        out.print(table(page["changes"][-10:], _CHANGES, title="decisions"))


def _counted(row: Row) -> str:
    """Numerator of denominator where both are counts; a round trip in milliseconds."""
    if "metric" not in row:
        return "–"
    if row["metric"].rpartition(".")[2] in ("p95", "ewma", "jitter"):
        return milliseconds(row["numerator"] / 1e6)
    return f"{row['numerator']}/{row['denominator']}"


_VOTES: list[Column[Row]] = [
    Column(title="vantage", cell=lambda row: row["vantage"]),
    Column(title="says", cell=lambda row: row["zone"]),
    Column(title="metric", cell=lambda row: row.get("metric", "–")),
    Column(title="counted", cell=_counted, align="right"),
    Column(
        title="heard", cell=lambda row: f"{row['age']:.1f} s ago" + ("" if row["fresh"] else ", stale"), align="right"
    ),
]

_READINGS: list[Column[Row]] = [
    Column(title="vantage", cell=lambda row: row["vantage"]),
    Column(title="kind", cell=lambda row: row["kind"]),
    Column(title="ok", cell=lambda row: f"{row['ok']}/{row['attempts']}", align="right"),
    Column(title="lost", cell=lambda row: f"{row['lost']}/{row['sent']}", align="right"),
    Column(title="p50", cell=lambda row: milliseconds(row["p50"]), align="right"),
    Column(title="p95", cell=lambda row: milliseconds(row["p95_answered"] or row["p95"]), align="right"),
    Column(title="ewma", cell=lambda row: milliseconds(row["ewma"]), align="right"),
    Column(title="newest failure", cell=lambda row: row["error"] or "–"),
]

_CHANGES: list[Column[Row]] = [
    Column(title="at", cell=lambda row: time.strftime("%H:%M:%S", time.localtime(row["at"]))),
    Column(title="rule", cell=lambda row: row["rule"]),
    Column(title="weight", cell=lambda row: f"{row['before']['weight']} → {row['after']['weight']}", align="right"),
    Column(title="state", cell=lambda row: f"{_telling(row['before'])} → {_telling(row['after'])}"),
]
