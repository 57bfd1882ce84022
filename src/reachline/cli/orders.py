"""What operators order: `drain`, `undrain`, `weight`, `standby`, `open`, `close`, `undo`, and `orders` that lists them.

What an order does to the traffic is shown before it is given; a person is asked, a script is told.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, Protocol
from urllib.parse import urlencode

import typer

from reachline.cli.asking import CENTER, CenterOption, Refusal, ask
from reachline.cli.render import Column, Output, OutputOption, console, show, style_of, table, write_json
from reachline.core import words
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds

__all__ = ["COMMANDS", "EFFECT", "How", "Send", "Target", "Yes", "act", "clock", "lasts", "refused"]

Row = Mapping[str, Any]

_ORDERS: Final = "/api/v1/orders"
_PATIENCE: Final[Seconds] = 30.0
"""The center works out what an order does on a copy of all it holds: about a second for ten thousand lines."""
_WORD: Final = {True: "true", False: "false"}
_QUESTION: Final = frozenset({400, 404, 409, 422})
"""Answers that find fault with what was asked: usage errors…"""
_MALFORMED: Final = 400
"""…and the one that names the key and its value itself."""

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="A line (`cluster/line[@origin]`), a cluster, `provider:NAME` or `group:NAME`."
    ),
]
For = Annotated[
    str | None, typer.Option("--for", metavar="TIME", help="For how long: 90s, 30m, 2h, 1d. Else until it is undone.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; everybody who looks reads it.")]
Force = Annotated[bool, typer.Option("--force", help="Also where no line of a cluster carries traffic any more.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not show it first, do not ask.")]


class Send(Protocol):
    """Asks the center for something, or (`dry`) what it would do."""

    def __call__(self, *, dry: bool) -> Any: ...


class How(NamedTuple):
    """How a command was asked to act."""

    command: str
    center: str
    output: Output
    dry_run: bool
    yes: bool


def drain(
    target: Target,
    for_: For = None,
    reason: Reason = "",
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give lines no new traffic for a time; calls that are under way finish, and the lines are still probed and judged."""
    _place(How("drain", center, output, dry_run, yes), target, for_, reason, force=force)


def undrain(
    target: Target,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """End every drain order that drains nothing but these lines."""
    _place(How("undrain", center, output, dry_run, yes), target, None, reason)


def weight(
    target: Target,
    points: Annotated[int, typer.Argument(metavar="POINTS", help="The base weight for the time, from 1 on.")],
    for_: For = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give lines another base weight for a time; faults and breaker go on from there."""
    _place(How("weight", center, output, dry_run, yes), target, for_, reason, weight=points)


def standby(
    target: Target,
    for_: For = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set lines aside for a time: backups where the policy knows them, else 5 % of their base weight."""
    _place(How("standby", center, output, dry_run, yes), target, for_, reason)


def open_(
    target: Target,
    for_: For = None,
    reason: Reason = "",
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Keep breakers open for a time, whatever is measured; then lines come back through a trial.

    The last line that carries traffic waits until another one does, unless --force.
    """
    _place(How("open", center, output, dry_run, yes), target, for_, reason, force=force)


def close(
    target: Target,
    for_: For = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Keep breakers closed for a time, whatever is measured; what the judge says is recorded, and faults still cost weight."""
    _place(How("close", center, output, dry_run, yes), target, for_, reason)


def undo(
    number: Annotated[int, typer.Argument(metavar="ID", min=1, help="The order's id, as `reachline orders` lists it.")],
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """End an order before its time."""

    def send(*, dry: bool) -> Any:
        query = urlencode({"reason": reason, "dry_run": _WORD[dry]})
        return ask(center, f"{_ORDERS}/{number}?{query}", method="DELETE", patience=_PATIENCE)

    act(How("undo", center, output, dry_run, yes), str(number), send, shown=_effects, told=_told)


def orders(
    all_: Annotated[bool, typer.Option("--all", help="Those that ended too.")] = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """List orders, newest first: who asked what of which lines, until when, why."""
    document = ask(center, f"{_ORDERS}?{urlencode({'over': str(all_).lower()})}")
    rows: Sequence[Row] = document["orders"]
    if output is Output.TABLE and not rows:
        console().print("no order is in force" + ("" if all_ else " (--all shows those that ended)"))
        return
    show(output, rows, _columns(time.time()), document=document)


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "drain": drain,
    "undrain": undrain,
    "weight": weight,
    "standby": standby,
    "open": open_,
    "close": close,
    "undo": undo,
    "orders": orders,
}
"""The functions behind the commands."""


def _place(
    how: How, target: str, for_: str | None, reason: str, *, weight: int | None = None, force: bool = False
) -> None:
    if weight is not None and weight < 1:
        raise refused(how.command, "POINTS", str(weight), "must be 1 or more", "`drain` takes all traffic away")
    body: dict[str, object] = {"action": how.command, "target": target, "reason": reason}
    if for_ is not None:
        body["for"] = lasts(how.command, for_)
    if weight is not None:
        body["weight"] = weight
    if force:
        body["force"] = True

    def send(*, dry: bool) -> Any:
        return ask(how.center, f"{_ORDERS}?dry_run={_WORD[dry]}", method="POST", body=body, patience=_PATIENCE)

    act(how, target, send, shown=_effects, told=_told)


def lasts(command: str, text: str) -> Seconds:
    """What `--for` says; ConfigError where it is no time."""
    from reachline.doors.units import seconds  # noqa: PLC0415  (pydantic, for a command that was given a time)

    found = seconds(text)
    if found is None:
        raise refused(command, "--for", text, "must be a duration", "write 90s, 30m, 2h, 1d or 1h30m")
    if not math.isfinite(found) or found < 1:
        raise refused(command, "--for", text, "must be a second or more", "write 90s, 30m, 2h, 1d or 1h30m")
    return found


def act(how: How, value: str, send: Send, *, shown: Callable[[Row], None], told: Callable[[Row], None]) -> None:
    """Foresee, show, ask where somebody sits there, do. `value` is what a refusal is about; `shown` prints what would be, `told`
    what was done.
    """
    try:
        if how.dry_run or not (how.yes or how.output is Output.JSON):
            foreseen = send(dry=True)
            if how.output is Output.JSON:
                write_json(foreseen)
                return
            shown(foreseen)
            if how.dry_run:
                return
            if _is_attended() and not typer.confirm("Go on?", default=False):
                console().print("nothing was changed")
                raise typer.Exit(1)
        done = send(dry=False)
    except Refusal as error:
        if error.status not in _QUESTION:
            raise
        about = "" if error.status == _MALFORMED else value
        raise refused(how.command, "", about, error.message, error.hint) from error
    if how.output is Output.JSON:
        write_json(done)
    else:
        told(done)


def _is_attended() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def refused(command: str, path: str, value: str, rule: str, hint: str) -> ConfigError:
    """What is wrong with a command's option or with what it asked of the center; the value is named once."""
    return ConfigError(Problem(place=command, path=path, value="" if value in rule else value, rule=rule, hint=hint))


def _effects(foreseen: Row) -> None:
    """A table a cluster: every line's weight and share, before and after."""
    out = console()
    for effect in foreseen["effects"]:
        out.print(table(effect["lines"], EFFECT, title=effect["cluster"]))
        if effect["panic"]:
            out.print(f"{effect['cluster']}: ordinary rules are suspended then ({effect['panic']})", style="yellow")
        for line in effect["waiting"]:
            out.print(f"{line} alone carries traffic: it opens once another line does", style="yellow", markup=False)
        if not any(row["after"]["weight"] for row in effect["lines"]):
            out.print(f"no line of {effect['cluster']} carries traffic then", style="red", markup=False)


EFFECT: Final[list[Column[Row]]] = [
    Column(title="line", cell=lambda row: row["line"]),
    Column(title="state", cell=lambda row: _moved(_word(row["before"]), _word(row["after"])), style=lambda row: style_of(_word(row["after"]))),
    Column(title="weight", cell=lambda row: _moved(row["before"]["weight"], row["after"]["weight"]), align="right"),
    Column(title="share", cell=lambda row: _moved(_share(row["before"]), _share(row["after"])), align="right"),
]  # fmt: skip


def _word(side: Row) -> str:
    word: str = side["health"] if side["breaker"] == "closed" else side["breaker"]
    return word


def _share(side: Row) -> str:
    return f"{100 * side['share']:.1f} %"


def _moved(before: object, after: object) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _told(done: Mapping[str, Any]) -> None:
    """One line an order: what is in force from when on, and how it ends."""
    within = words.duration(round(1_000 * done["within"]))
    for order in done["orders"]:
        what = f"order {order['id']}, {_what(order)} {order['target']}"
        if order["state"] == "in_force":
            until = "until it is undone" if order["until"] is None else f"until {clock(order['until'], time.time())}"
            told = f"{what} {until}: in force within {within}; `reachline undo {order['id']}` ends it"
        else:
            told = f"{what}: ended, within {within}"
        console().print(told, markup=False, highlight=False)
    if not done["journalled"]:
        console().print("the journal does not have it yet: a restart may lose it", style="yellow")


def _what(order: Row) -> str:
    return f"{order['action']} {order['weight']}" if order["weight"] is not None else str(order["action"])


def _columns(now: Seconds) -> list[Column[Row]]:
    return [
        Column(title="id", cell=lambda row: str(row["id"]), align="right"),
        Column(title="order", cell=_what),
        Column(title="target", cell=lambda row: row["target"]),
        Column(title="lines", cell=_lines, align="right"),
        Column(title="since", cell=lambda row: clock(row["since"], now)),
        Column(title="until", cell=lambda row: _until(row, now)),
        Column(title="by", cell=lambda row: row["by"]),
        Column(title="reason", cell=lambda row: row["reason"] or "–"),
    ]


def _lines(row: Row) -> str:
    """How many lines it names; none is no error, for one may come that it names."""
    waiting = f", {len(row['waiting'])} waiting" if row["waiting"] else ""
    return f"{len(row['lines'])}{waiting}"


def _until(row: Row, now: Seconds) -> str:
    match row["state"]:
        case "undone":
            why = f": {row['ended_reason']}" if row["ended_reason"] else ""
            return f"undone {clock(row['ended'], now)} by {row['ended_by']}{why}"
        case "over":
            return f"over since {clock(row['ended'], now)}"
        case _ if row["until"] is None:
            return "undone"
        case _:
            return f"{clock(row['until'], now)} (in {words.duration(round(1_000 * (row['until'] - now)))})"


def clock(unix: Seconds, now: Seconds) -> str:
    """A Unix time as local time; with its date where that is not today's."""
    moment, today = time.localtime(unix), time.localtime(now)
    is_today = (moment.tm_year, moment.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M", moment)
