"""What the daemons log: events with fields, as lines for a terminal or as JSON for a collector. Rendered by structlog."""

from __future__ import annotations

import logging
import sys
import time
from enum import StrEnum
from typing import Annotated, Final

import structlog
import typer
from structlog.typing import Processor

from reachline.errors import ConfigError, Problem

__all__ = ["LogFormat", "LogFormatOption", "LogLevelOption", "start_logging"]


_LEVELS: Final = ("debug", "info", "warning", "error")
_NO_ACCEPT: Final = "socket.accept() out of system resource"
"""What asyncio says when no descriptor is left, with a traceback, for each connection that waits, each second."""
_SAID_AGAIN: Final = 60.0
"""Seconds until it is said again: once a minute fills no disk."""


class LogFormat(StrEnum):
    """How events are written."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[LogFormat, typer.Option("--log", help="Events as text or as JSON lines.")]
LogLevelOption = Annotated[str, typer.Option(help="debug, info, warning or error.")]
"""The annotations of a daemon's `log_format` and `log_level`."""


class _Accepting(logging.Filter):
    """One line a minute, without a traceback, of connections that wait for a descriptor; whatever else there is passes."""

    def __init__(self) -> None:
        super().__init__()
        self._said = -_SAID_AGAIN

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.getMessage().startswith(_NO_ACCEPT):
            return True
        now = time.monotonic()
        if now - self._said < _SAID_AGAIN:
            return False
        self._said = now
        record.msg, record.args, record.exc_info = "descriptors_used_up", (), None
        return True


def start_logging(form: LogFormat, level: str = "info") -> None:
    """Every standard-library event goes to standard error in this form; libraries from warnings up."""
    if level not in _LEVELS:
        hint = f"one of {', '.join(_LEVELS)}"
        raise ConfigError(Problem(place="option", path="--log-level", value=level, rule="is no level", hint=hint))
    renderer: Processor = structlog.processors.JSONRenderer()
    if form is LogFormat.TEXT:
        # Plain: structlog's own choice, rich, prints every frame's variables, tokens among them, and takes seconds to do so.
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    before: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=False),
    ]
    after: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if form is LogFormat.JSON:
        after.append(structlog.processors.format_exc_info)
    handler = logging.StreamHandler()
    handler.addFilter(_Accepting())
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=[*after, renderer]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("reachline").setLevel(level.upper())
