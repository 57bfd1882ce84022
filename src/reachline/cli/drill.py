"""`reachline drill` and `drills`: lines held to have failed, or to be slow, for a time, and what became of that.

Without `--real` it is only rehearsed: the center lets a copy of its state go on with the drill, and nothing is published.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from reachline.cli.asking import CENTER, CenterOption, ask
from reachline.cli.orders import EFFECT, How, Target, Yes, act, clock, lasts, refused
from reachline.cli.render import Column, Output, OutputOption, console, show, table
from reachline.core import words
from reachline.model import Seconds

__all__ = ["COMMANDS"]

Row = Mapping[str, Any]

_DRILLS: Final = "/api/v1/drills"
_PATIENCE: Final[Seconds] = 60.0
"""The center looks some minutes ahead on a copy of all it holds: a few seconds for ten thousand lines."""

Lasts = Annotated[str, typer.Option("--for", metavar="TIME", help="For how long, a day at most: 90s, 5m, 1h.")]
Fail = Annotated[bool, typer.Option("--fail", help="As if the lines had failed.")]
Slow = Annotated[
    str | None,
    typer.Option(
        "--slow", metavar="TIME", help="As if answers took this long: 300ms. What comes of it is the limits'."
    ),
]
Real = Annotated[
    bool, typer.Option("--real/--shadow", help="Move the traffic, or (else) only show what would be, on a copy.")
]
AbortAbove = Annotated[
    str,
    typer.Option(
        "--abort-above", metavar="SHARE", help="End it once calls fail by so much more than before: 1%, 0.005."
    ),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; needed with --real, everybody reads it.")]
Force = Annotated[bool, typer.Option("--force", help="Also where too little would be left to carry the traffic.")]


def drill(
    target: Target,
    for_: Lasts,
    fail: Fail = False,
    slow: Slow = None,
    real: Real = False,
    abort_above: AbortAbove = "1%",
    reason: Reason = "",
    force: Force = False,
    yes: Yes = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play that lines failed or are slow, and see whether traffic moves and the others carry it.

    A real drill ends by itself: when its time is over, when calls fail more often than before, or when another line fails.
    """
    if real and not reason:
        rule = "must be said for a real drill; everybody who looks reads it"
        raise refused("drill", "--reason", "", rule, '--reason "does b carry a?"')
    body = _body(target, for_, fail=fail, slow=slow, abort_above=abort_above, reason=reason)
    body |= {"force": True} if force else {}

    def send(*, dry: bool) -> Any:
        return ask(center, _DRILLS, method="POST", body=body | ({} if dry else {"real": True}), patience=_PATIENCE)

    act(How("drill", center, output, not real, yes), target, send, shown=_rehearsals, told=_told)
    if not real and output is Output.TABLE:
        console().print("nothing was changed: `--real` plays it", style="dim")


def drills(center: CenterOption = CENTER, output: OutputOption = Output.TABLE) -> None:
    """List drills, newest first: whether traffic moved and how soon, whether capacity held, what failed, and how each ended."""
    document = ask(center, _DRILLS)
    parts = [row | {"of": part} for row in document["drills"] for part in row["clusters"]]
    if output is Output.TABLE and not parts:
        console().print("no drill is known")
        return
    show(output, parts, _columns(time.time()), document=document)


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {"drill": drill, "drills": drills}
"""The functions behind the commands."""


def _body(target: str, for_: str, *, fail: bool, slow: str | None, abort_above: str, reason: str) -> dict[str, object]:
    if fail is (slow is not None):
        raise refused(
            "drill", "--fail", "", "either --fail or --slow must be said", "--slow 300ms: as if answers took so long"
        )
    body: dict[str, object] = {"target": target, "for": lasts("drill", for_), "reason": reason}
    body |= {"fail": True} if slow is None else {"slow": _seconds("--slow", slow)}
    return body | {"abort_above": _share(abort_above)}


def _seconds(option: str, text: str) -> Seconds:
    from reachline.doors.units import seconds  # noqa: PLC0415  (pydantic, for a command that was given a time)

    found = seconds(text)
    if found is None or not 0.001 <= found <= 60:
        raise refused("drill", option, text, "must be a duration from 1ms to 60s", "write 300ms or 1.5s")
    return found


def _share(text: str) -> float:
    number, is_percent = text.removesuffix("%").strip(), text.endswith("%")
    try:
        found = float(number) / (100 if is_percent else 1)
    except ValueError:
        found = -1.0
    if not 0.001 <= found <= 1:
        raise refused("drill", "--abort-above", text, "must be a share from 0.1% to 100%", "write 1% or 0.01")
    return found


def _rehearsals(seen: Row) -> None:
    for row in seen["rehearsals"]:
        _rehearsal(row)


def _rehearsal(row: Row) -> None:
    """Weights and shares before and once it has come to rest, and what each line then carries."""
    out, loads = console(), {load["line"]: load for load in row["loads"]}
    carries: Column[Row] = Column(title="carries", cell=lambda line: _load(loads.get(line["line"])), align="right")
    out.print(table(row["lines"], [*EFFECT, *([carries] if loads else [])], title=row["cluster"]))
    settles = words.duration(round(1_000 * row["settles"]))
    out.print(f"{row['cluster']}: it comes to rest after {settles}", markup=False, highlight=False)
    for line, rule in row["held"].items():
        out.print(f"{line} should go and is kept: {words.rule(rule, {})}", style="yellow", markup=False)
    if row["panic"]:
        out.print(f"{row['cluster']}: ordinary rules are suspended then ({row['panic']})", style="yellow")
    if not any(line["after"]["weight"] for line in row["lines"]):
        out.print(f"no line of {row['cluster']} carries traffic then", style="red", markup=False)


def _load(load: Row | None) -> str:
    if load is None:
        return "–"
    used = f" ({100 * load['used']:.0f} % of {load['capacity']})" if load["used"] is not None else ""
    return f"{load['before']:.0f} → {load['during']:.0f}/s{used}"


def _told(done: Row) -> None:
    row = done["drill"]
    told = f"drill {row['id']}, {row['target']} {_play(row)} until {clock(row['until'], time.time())}"
    ends = f"`reachline drills` tells how it goes, `reachline undo {row['id']}` ends it"
    console().print(f"{told}: {ends}", markup=False, highlight=False)
    if not done["journalled"]:
        console().print("the journal does not have it yet: a restart may lose it", style="yellow")


def _play(row: Row) -> str:
    return "fails" if row["slow"] is None else f"answers in {words.milliseconds(round(1_000_000 * row['slow']))}"


def _columns(now: Seconds) -> Sequence[Column[Row]]:
    return [
        Column(title="id", cell=lambda row: str(row["id"]), align="right"),
        Column(title="drill", cell=lambda row: f"{row['target']} {_play(row)}"),
        Column(title="since", cell=lambda row: clock(row["since"], now)),
        Column(title="moved", cell=_moved, align="right"),
        Column(title="left there", cell=lambda row: _percent(row["of"]["since_moved"]["on_share"], 2), align="right"),
        Column(title="failed before, in it, after", cell=_failed, align="right"),
        Column(title="fullest other", cell=_peak, style=lambda row: "red" if row["of"]["held"] is False else ""),
        Column(title="ended", cell=lambda row: _ended(row, now), style=lambda row: "red" if row["state"] == "aborted" else ""),
        Column(title="by", cell=lambda row: row["by"]),
        Column(title="reason", cell=lambda row: row["reason"] or "–"),
    ]  # fmt: skip


def _moved(row: Row) -> str:
    moved = row["of"]["moved"]
    return "not yet" if moved is None else f"+{words.duration(round(1_000 * moved))}"


def _failed(row: Row) -> str:
    return ", ".join(_percent(row["of"][when]["failed_share"], 1) for when in ("before", "during", "after"))


def _percent(share: float | None, digits: int) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def _peak(row: Row) -> str:
    peak = row["of"]["peak"]
    return "–" if peak is None else f"{peak['line']} {100 * peak['used']:.0f} %"


def _ended(row: Row, now: Seconds) -> str:
    match row["state"]:
        case "running":
            return f"{clock(row['until'], now)} (in {words.duration(round(1_000 * (row['until'] - now)))})"
        case "over":
            return f"over since {clock(row['ended'], now)}"
        case "aborted":
            return f"aborted {clock(row['ended'], now)}: {row['ended_reason']}"
        case _:
            why = f": {row['ended_reason']}" if row["ended_reason"] else ""
            return f"undone {clock(row['ended'], now)} by {row['ended_by']}{why}"
