"""An Xray document as a center's: what reads one is what reads the next one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reachline.doors.settings import Document

__all__ = ["lines_of"]


def lines_of(path: Path, *, remarks: str = "") -> Callable[[str], Document]:
    """What makes a document of lines of the file's text; its warnings are told. ConfigError holds every problem."""
    from reachline.doors import reach  # noqa: PLC0415  (pydantic, as all of a center's)
    from reachline.doors.observatory import Source, lined, read  # noqa: PLC0415  (a door of its own, for its own documents)

    def document(text: str) -> Document:
        settings = read([Source(str(path), text)], remarks=remarks or None)
        for each in settings.warnings:
            print(f"warning: {each}", file=sys.stderr)
        found = lined(settings, name=str(path))
        return reach.read(json.dumps(found.document), name=f"{path} as lines", environ={**os.environ, **found.secrets})

    return document
