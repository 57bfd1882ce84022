"""Where Xray's files of lists are found: `geosite.dat`, `geoip.dat`, and those that rules name by `ext:`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["lists"]

_MAX_LISTS = 256 << 20
"""Bytes of a file of lists: the largest that people share has a tenth of it."""
_SHARED = (Path("/usr/local/share/xray"), Path("/usr/share/xray"))
"""Where Xray's packages put their files of lists."""


def lists(file: Path, geodata: Path | None) -> Callable[[str], bytes | None]:
    """What gives such a file's bytes by its name: from `geodata` alone where that is given, else from beside the document `file`,
    `$XRAY_LOCATION_ASSET` and where packages put them.
    """
    given = os.environ.get("XRAY_LOCATION_ASSET")
    usual = (file if file.is_dir() else file.parent, *((Path(given),) if given else ()), *_SHARED)
    places = (geodata,) if geodata is not None else usual

    def load(name: str) -> bytes | None:
        if not name or Path(name).name != name:
            return None
        found: Path | None = next((place / name for place in places if (place / name).is_file()), None)
        try:
            return None if found is None or found.stat().st_size > _MAX_LISTS else found.read_bytes()
        except OSError:  # a file that cannot be read is none, to a proxy that is running above all
            return None

    return load
