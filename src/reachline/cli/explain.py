"""`reachline explain LINE`: why a line stands where it stands, now or then, from a running center or from its journal alone."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote, urlsplit

import typer

from reachline.cli.render import Output, OutputOption, write_json
from reachline.errors import ConfigError, JournalError, Problem, ReachlineError
from reachline.model import LineId, Seconds

__all__ = ["command"]

_CENTER: Final = "http://127.0.0.1:7680"
_PATIENCE: Final[Seconds] = 10.0
"""A center answers from its journal's newest checkpoint: well under a second; ten say that it hangs."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)([smhd])")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_NUMBER: Final = re.compile(r"\d{9,11}(?:\.\d+)?")
"""Unix seconds, 1973 to 5138."""


def command(
    line: Annotated[str, typer.Argument(help="`cluster/line` or `cluster/line@origin`.", metavar="LINE")],
    at: Annotated[
        str | None,
        typer.Option("--at", help="Then instead of now: `14:03:22`, `2026-11-30 14:03:22`, `-5m`, or Unix seconds."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Read this journal directory; the center may be down.")
    ] = None,
    center: Annotated[str | None, typer.Option("--center", help=f"The center to ask. [default: {_CENTER}]")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why a line stands where it stands: rule, votes with their counts, what comes next and when.

    Asks a running center, or reads its journal with --journal.
    """
    if journal is not None and center is not None:
        raise _refused("--journal", str(journal), "--journal and --center exclude each other", "give one of them")
    moment = None if at is None else _moment(at, time.time())
    if journal is not None:
        found = _from_journal(journal, line, moment)
    else:
        found = _from_center(center or _CENTER, line, moment)
    if output is Output.JSON:
        write_json(found)
    else:
        print(found.get("text", ""))


def _from_journal(journal: Path, line: str, at: Seconds | None) -> Mapping[str, object]:
    from reachline.store.history import told  # noqa: PLC0415  (asking a center needs no apsw)

    try:
        return told(journal, LineId(line), at=at).document()
    except JournalError as error:
        rule, _, hint = str(error).removeprefix(f"{journal}: ").partition("; ")
        raise ConfigError(Problem(place=str(journal), path="", value="", rule=rule, hint=hint)) from error


def _from_center(center: str, line: str, at: Seconds | None) -> Mapping[str, object]:
    if urlsplit(center).scheme not in ("http", "https") or not urlsplit(center).netloc:
        raise _refused("--center", center, "must be an http or https URL", f"for example {_CENTER}")
    query = "" if at is None else f"?at={at}"
    address = f"{center.rstrip('/')}/api/v1/explain/{quote(line, safe='/@')}{query}"
    # A center is reached directly: a proxy of the environment is for the world outside.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=_PATIENCE) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as refused:
        raise _answered(refused, line) from refused
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ReachlineError(
            f"{center}: no answer from a center ({reason}); where it is down, read its journal: --journal DIRECTORY"
        ) from error
    if not isinstance(found, dict):
        raise ReachlineError(f"{center}: not a center's answer")
    return found


def _answered(refused: urllib.error.HTTPError, line: str) -> ReachlineError:
    """The center's own words, as a usage error where it does not know the line."""
    try:
        told = json.load(refused)["error"]
        message, hint = str(told["message"]), str(told.get("hint", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        message, hint = f"HTTP {refused.code}", ""
    if 400 <= refused.code < 500:
        return _refused("LINE", line, message, hint)
    return ReachlineError(f"{line}: {message}")


def _moment(text: str, now: Seconds) -> Seconds:
    """Unix seconds of what a person wrote; a time of day is the newest one not in the future."""
    if match := _AGO.fullmatch(text):
        return now - float(match[1]) * _UNITS[match[2]]
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        if match := _CLOCK.fullmatch(text):
            today = datetime.fromtimestamp(now).astimezone()
            day = today.replace(hour=int(match[1]), minute=int(match[2]), second=int(match[3] or 0), microsecond=0)
            return (day if day <= today else day - timedelta(days=1)).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise _refused(
            "--at", text, "is not a moment", "write 14:03:22, '2026-11-30 14:03:22', -5m, or Unix seconds"
        ) from None


def _refused(path: str, value: str, rule: str, hint: str) -> ConfigError:
    return ConfigError(Problem(place="explain", path=path, value=value, rule=rule, hint=hint))
