"""What the daemons log: events with fields, as lines for a terminal or as JSON for a collector. Rendered by structlog."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Final

import structlog
from structlog.typing import Processor

from reachline.errors import ConfigError, Problem

__all__ = ["LogFormat", "start_logging"]


_LEVELS: Final = ("debug", "info", "warning", "error")


class LogFormat(StrEnum):
    """How events are written."""

    TEXT = "text"
    JSON = "json"


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
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=[*after, renderer]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("reachline").setLevel(level.upper())
