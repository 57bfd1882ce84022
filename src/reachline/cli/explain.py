"""`reachline explain LINE`: why a line stands where it stands, now or then, from a running center or from its journal alone."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer

from reachline.cli.asking import CENTER, CenterOption, Refusal, Unreached, ask
from reachline.cli.render import Output, OutputOption, write_json
from reachline.errors import ConfigError, JournalError, Problem, ReachlineError
from reachline.model import LineId, Seconds

__all__ = ["command"]

_PATIENCE: Final[Seconds] = 10.0
"""A center answers from its journal's newest checkpoint: well under a second; ten say that it hangs."""
_QUESTION: Final = frozenset({400, 404, 422})
"""Answers that find fault with the question: usage errors."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)([smhd])")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_NUMBER: Final = re.compile(r"\d{9,11}(?:\.\d+)?")
"""Unix seconds, from 1973 on."""
_LATEST: Final[Seconds] = 2.0**33
"""The year 2242, as in the center's own rule: whatever is later was meant otherwise."""


def command(
    context: typer.Context,
    line: Annotated[
        str, typer.Argument(help="`cluster/line` or `cluster/line@origin`; none with --request.", metavar="[LINE]")
    ] = "",
    at: Annotated[
        str | None,
        typer.Option("--at", help="Then instead of now: `14:03:22`, `2026-11-30 14:03:22`, `-5m`, or Unix seconds."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Read this journal directory; the center may be down.")
    ] = None,
    request: Annotated[
        str, typer.Option("--request", help="Where this goes by a bootstrap of Envoy: `GET http://host/path`.")
    ] = "",
    file: Annotated[str, typer.Option("--file", "-f", help="The bootstrap that --request is about.")] = "",
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="Of the request: `name: value`.")] = None,
    source: Annotated[str, typer.Option("--from", help="The address that the request comes from.")] = "",
    listener: Annotated[str, typer.Option("--listener", help="By name, instead of by the request's port.")] = "",
    seed: Annotated[int, typer.Option("--seed", help="Of the chances that the request takes.")] = 0,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why a line stands where it stands: rule, votes with their counts, what comes next and when.

    Asks a running center, or reads its journal with --journal. With --request: where a request goes, step by step.
    """
    if request or file:
        _check_asked(line, request, file)
        from reachline.cli.explain_request import explain  # noqa: PLC0415  (a door of its own, for its own documents)

        explain(request, file, headers=header or (), source=source, listener=listener, seed=seed, output=output)
        return
    if not line:
        raise _refused("LINE", "", "is needed: a line, or --request with --file", "`cluster/line`")
    if journal is not None and _is_typed(context, "center"):
        raise _refused("--journal", str(journal), "--journal and --center exclude each other", "give one of them")
    moment = None if at is None else _moment(at, time.time())
    found = _from_center(center, line, moment) if journal is None else _from_journal(journal, line, moment)
    if output is Output.JSON:
        write_json(found)
    else:
        print(found.get("text", ""))


def _check_asked(line: str, request: str, file: str) -> None:
    if line:
        raise _refused("LINE", line, "and --request exclude each other", "give one of them")
    if not file:
        raise _refused("--file", "", "is needed by --request", "-f bootstrap.yaml")
    if not request:
        raise _refused("--request", "", "is needed by --file", "--request 'GET http://host/path'")


def _is_typed(context: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line: a default and a variable of the environment do not."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _from_journal(journal: Path, line: str, at: Seconds | None) -> Mapping[str, object]:
    from reachline.store.history import told  # noqa: PLC0415  (asking a center needs no apsw)

    try:
        return told(journal, LineId(line), at=at).document()
    except JournalError as error:
        rule, _, hint = str(error).removeprefix(f"{journal}: ").partition("; ")
        raise ConfigError(Problem(place=str(journal), path="", value="", rule=rule, hint=hint)) from error


def _from_center(center: str, line: str, at: Seconds | None) -> Mapping[str, object]:
    query = "" if at is None else f"?at={at}"
    try:
        found = ask(center, f"/api/v1/explain/{quote(line, safe='/@')}{query}", patience=_PATIENCE)
    except Unreached as error:
        raise Unreached(f"{error}; where it is down, read its journal: --journal DIRECTORY") from error
    except Refusal as refused:
        if refused.status not in _QUESTION:
            raise
        raise _refused("LINE", line, refused.message, refused.hint) from refused
    if not isinstance(found, dict):
        raise ReachlineError(f"{center}: what answers there is no center")
    return found


def _moment(text: str, now: Seconds) -> Seconds:
    """Unix seconds of what a person wrote; a time of day is the newest one not in the future."""
    try:
        found = _read(text, now)
    except (ValueError, OverflowError):
        hint = "write 14:03:22, '2026-11-30 14:03:22', -5m, or Unix seconds"
        raise _refused("--at", text, "is not a moment", hint) from None
    if not 0 <= found <= _LATEST:
        raise _refused("--at", text, "is no moment that a journal can hold", "from 1970 to 2242")
    return found


def _read(text: str, now: Seconds) -> Seconds:
    if match := _AGO.fullmatch(text):
        return now - float(match[1]) * _UNITS[match[2]]
    if _NUMBER.fullmatch(text):
        return float(text)
    if match := _CLOCK.fullmatch(text):
        today = datetime.fromtimestamp(now).astimezone()
        day = today.replace(hour=int(match[1]), minute=int(match[2]), second=int(match[3] or 0), microsecond=0)
        return (day if day <= today else day - timedelta(days=1)).timestamp()
    return datetime.fromisoformat(text).timestamp()


def _refused(path: str, value: str, rule: str, hint: str) -> ConfigError:
    return ConfigError(Problem(place="explain", path=path, value=value, rule=rule, hint=hint))
