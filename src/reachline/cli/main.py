"""The entry point: which commands there are, and the one place where errors become a line and an exit code.

Imports nothing outside the standard library, so that a base install can say in one line what is missing. A command's
module is imported when the command runs, never for `--help`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from reachline import __version__
from reachline.errors import ConfigError, ReachlineError

__all__ = ["COMMANDS", "Entry", "MissingExtraError", "main", "missing", "report", "show_version"]


class Entry(NamedTuple):
    """One command: where it lives, what `--help` says of it, and the extra its imports need."""

    module: str
    summary: str
    extra: str


COMMANDS: Final[Mapping[str, Entry]] = {
    "up": Entry("reachline.cli.up", "Center and agents on this machine (--demo).", "center"),
    "agent": Entry("reachline.cli.agent", "Probe lines for a center.", "agent"),
    "center": Entry("reachline.cli.center", "Judge lines and publish their weights.", "center"),
    "proxy": Entry("reachline.cli.proxy", "Forward by an Envoy bootstrap.", "proxy"),
    "observatory": Entry("reachline.cli.observatory", "Observe an Xray document, answer as Xray.", "agent"),
    "check": Entry("reachline.cli.check", "Ask the outbounds of an Xray document now.", "agent"),
    "watch": Entry("reachline.cli.watch", "Watch targets live, without any set-up.", "cli"),
    "status": Entry("reachline.cli.status", "The lines of a running center.", "cli"),
    "mesh": Entry("reachline.cli.mesh", "The ways between agents, and which is at fault.", "cli"),
    "xds": Entry("reachline.cli.xds", "Envoys and gRPC clients that follow, what they refused.", "cli"),
    "explain": Entry("reachline.cli.explain", "Why a line stands where it stands.", "center"),
    "drain": Entry("reachline.cli.orders", "Give lines no traffic for a time.", "cli"),
    "undrain": Entry("reachline.cli.orders", "End the draining of lines.", "cli"),
    "weight": Entry("reachline.cli.orders", "Give lines another base weight for a time.", "cli"),
    "standby": Entry("reachline.cli.orders", "Set lines aside as backups for a time.", "cli"),
    "open": Entry("reachline.cli.orders", "Keep breakers open for a time.", "cli"),
    "close": Entry("reachline.cli.orders", "Keep breakers closed for a time.", "cli"),
    "undo": Entry("reachline.cli.orders", "End an order before its time.", "cli"),
    "orders": Entry("reachline.cli.orders", "What operators ordered, until when and why.", "cli"),
    "drill": Entry("reachline.cli.drill", "Play that lines fail or are slow: does traffic move?", "cli"),
    "drills": Entry("reachline.cli.drill", "What became of drills.", "cli"),
    "plan": Entry("reachline.cli.plan", "Who is carried where across regions, also without one.", "cli"),
    "incidents": Entry("reachline.cli.incidents", "Faults, from the first bad verdict to full weight.", "cli"),
    "replay": Entry("reachline.cli.replay", "Recompute every decision of a journal.", "center"),
    "simulate": Entry("reachline.cli.simulate", "What incidents would have come to, here and elsewhere.", "center"),
    "what-if": Entry("reachline.cli.whatif", "Recorded evidence under other settings.", "center"),
    "tune": Entry("reachline.cli.tune", "Search better settings on evidence.", "center"),
    "health": Entry("reachline.cli.health", "Whether a center is well, for scripts.", "cli"),
    "envoy": Entry("reachline.cli.envoy", "Point an Envoy at a center.", "cli"),
    "grpc": Entry("reachline.cli.grpc", "Point a gRPC process at a center.", "cli"),
    "ca": Entry("reachline.cli.ca", "Certificates: an authority, tokens to join by.", "agent"),
    "access": Entry("reachline.cli.access", "People and tokens of a center's HTTP door.", "center"),
    "audit": Entry("reachline.cli.audit", "What people did at a center.", "cli"),
    "config": Entry("reachline.cli.config", "Check, show and describe configuration.", "cli"),
}

INTERRUPTED: Final = 128 + 2
"""What a shell reports for a program ended by SIGINT."""
USAGE: Final = 2
FAILED: Final = 1

_ENVIRONMENT: Final = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM})
"""System errors that an option or a document asked for: usage, not failure."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code: 0 well, 1 not, 2 usage or configuration, 130 interrupted."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return FAILED
    except (ReachlineError, OSError, ImportError, BaseExceptionGroup) as error:
        known = report(error)
        if known is None:
            raise
        return known


def report(error: BaseException) -> int | None:
    """Says on standard error what went wrong, one line a problem; the exit code, or None where it is a bug of ours."""
    leaves = tuple(_leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        return INTERRUPTED
    told = [_told(leaf) for leaf in leaves]
    if not told or None in told:
        return None
    lines = [line for each in told if each for line in each[1]]
    print(*dict.fromkeys(lines), sep="\n", file=sys.stderr)
    return max(each[0] for each in told if each)


def _run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "--version":
        return show_version()
    try:
        from reachline.cli.table import run  # noqa: PLC0415  (needs typer, which a base install lacks)
    except ModuleNotFoundError as error:
        entry = COMMANDS.get(next(iter(arguments), ""))
        raise MissingExtraError(error.name or "typer", entry.extra if entry else "cli") from error
    return run(arguments, COMMANDS)


def show_version() -> int:
    """Prints the release; works in a base install too."""
    print(f"reachline {__version__}")
    return 0


class MissingExtraError(ReachlineError):
    """A command's third-party library is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"this command needs {library.partition('.')[0]}: pip install 'reachline[{extra}]'")


def missing(error: ModuleNotFoundError, extra: str) -> ReachlineError | None:
    """What to install, where the module that was not found is not one of ours."""
    name = error.name or ""
    if name.partition(".")[0] == "reachline" or not name:
        return None
    return MissingExtraError(name, extra)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The single errors inside nested groups: a TaskGroup wraps what its tasks raise."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _told(error: BaseException) -> tuple[int, list[str]] | None:
    """Exit code and lines for one error, or None where only a traceback helps."""
    match error:
        case ConfigError(problems=problems):
            return USAGE, [f"reachline: {problem}" for problem in problems]
        case ReachlineError():
            return USAGE if isinstance(error, MissingExtraError) else FAILED, [f"reachline: {error}"]
        case OSError(filename=str() | bytes() as name, strerror=str(text)):
            return USAGE, [f"reachline: {os.fsdecode(name)}: {text}"]
        case OSError(errno=int(number), strerror=str(text)):
            return USAGE if number in _ENVIRONMENT else FAILED, [f"reachline: {text}"]
        case ImportError(name=None, msg=str(text)):
            return USAGE, [f"reachline: {text}"]  # said by a module of ours, of an extra that only some documents need
        case _:
            return None


def _forget_stdout() -> None:
    """The reader of our output went away; the interpreter must not fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
