"""Access logs: which exchanges are told, in which words, into which file. Lines wait in memory a moment, as in Envoy."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from reachline.doors.envoy.fitting import value_fits
from reachline.doors.envoy.formats import DEFAULT
from reachline.doors.envoy.logged import AccessLog, LogFilter
from reachline.doors.envoy.routes import Command
from reachline.errors import ConfigError, Problem
from reachline.proxy.grpc import status_of
from reachline.proxy.message import joined
from reachline.proxy.telling import UNSAID, filled, ready, say, text_of

if TYPE_CHECKING:
    from reachline.proxy.exchange import Exchange

__all__ = ["File", "Logged"]

_log: Final = logging.getLogger("reachline.proxy")
_HELD: Final = 1 << 16
"""Bytes that wait at most; then they are written at once…"""
_HELD_MOST: Final = 1 << 20
"""…and beyond this, where the file takes none, they are lost and counted."""
_NUMBERS: Final = frozenset(
    {"RESPONSE_CODE", "BYTES_RECEIVED", "BYTES_SENT", "DURATION", "REQUEST_DURATION", "UPSTREAM_REQUEST_ATTEMPT_COUNT"}
)
"""What stands in JSON as a number."""


class File:
    """One file that lines are added to. ConfigError where it cannot be opened."""

    __slots__ = ("_descriptor", "_held", "_size", "lost", "path")

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self.lost = 0
        """Lines that could not be written."""
        self._held: list[bytes] = []
        self._size = 0
        self._descriptor = self._opened()

    def add(self, line: bytes) -> None:
        """One line, with its end."""
        if self._size > _HELD_MOST:
            self.lost += 1
            return
        self._held.append(line)
        self._size += len(line)
        if self._size >= _HELD:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        data = b"".join(self._held)
        while data:
            try:
                written = os.write(self._descriptor, data)
            except BlockingIOError:
                break
            except OSError as error:
                _log.warning("access_log_failed", extra={"path": self.path, "reason": error.strerror})
                self.lost += len(self._held)
                data = b""
                break
            data = data[written:]
        self._held, self._size = [data] if data else [], len(data)

    def reopen(self) -> None:
        """The file was moved away: begin another."""
        self.flush()
        before, self._descriptor = self._descriptor, self._opened()
        os.close(before)

    def close(self) -> None:
        """Write what waits, and let go."""
        self.flush()
        os.close(self._descriptor)

    def _opened(self) -> int:
        try:
            # What stands behind a pipe and does not read must hold no request up.
            return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        except OSError as error:
            raise ConfigError(
                Problem(place=self.path, path="access_log", value="", rule=f"cannot be written: {error.strerror}")
            ) from error


class Logged:
    """One access log of one manager. Called with each exchange that is over."""

    __slots__ = ("_file", "_log", "_rng", "_text")

    def __init__(self, log: AccessLog, file: File, rng: Random) -> None:
        self._log: Final = log
        self._file: Final = file
        self._rng: Final = rng
        self._text: Final = ready(log.format.text if log.format.text is not None else DEFAULT)

    def __call__(self, exchange: Exchange) -> None:
        log = self._log
        if log.filter is not None and not _passes(log.filter, exchange, self._rng):
            return
        if log.format.json is not None:
            shown = _shown(log.format.json, exchange, omits=log.format.omit_empty)
            line = json.dumps(shown, separators=(",", ":")) + "\n"
        else:
            line = filled(self._text, exchange, unsaid="" if log.format.omit_empty else UNSAID)
        self._file.add(line.encode("latin-1", "replace"))


def _shown(form: object, exchange: Exchange, *, omits: bool) -> object:
    if isinstance(form, Mapping):
        found = {key: _shown(each, exchange, omits=omits) for key, each in form.items()}
        return {key: each for key, each in found.items() if each is not None} if omits else found
    if isinstance(form, tuple):
        if len(form) == 1 and isinstance(form[0], Command):
            said = say(form[0])(exchange)
            return int(said) if said is not None and form[0].operator in _NUMBERS else _readable(said)
        return _readable(text_of(form, exchange, unsaid="" if omits else UNSAID))
    if isinstance(form, Sequence) and not isinstance(form, str):
        return [_shown(each, exchange, omits=omits) for each in form]
    return form


def _readable(said: str | None) -> str | None:
    """The text that these bytes are; where they are none, a character for each, as in Envoy."""
    if said is None or said.isascii():
        return said
    try:
        return said.encode("latin-1", "replace").decode()
    except UnicodeDecodeError:
        return said


def _passes(rule: LogFilter, exchange: Exchange, rng: Random) -> bool:
    match rule.kind:
        case "and":
            return all(_passes(each, exchange, rng) for each in rule.inner)
        case "or":
            return any(_passes(each, exchange, rng) for each in rule.inner)
        case "status":
            return _compares(rule, exchange.code)
        case "duration":
            return _compares(rule, round((exchange.front.now() - exchange.request.began) * 1_000))
        case "response_flag":
            flags = set(exchange.flag.split(",")) - {""}
            return bool(flags & rule.words if rule.words else flags)
        case "header" if rule.header is not None:
            value = joined(exchange.request.headers, rule.header.name.encode())
            return value_fits(rule.header, None if value is None else value.decode("latin-1"))
        case "fraction" if rule.fraction is not None:
            return rng.randrange(rule.fraction[1]) < rule.fraction[0]
        case "grpc_status":
            status = status_of(exchange.headers_out, exchange.trailers, exchange.code)
            name = "" if status is None else _GRPC.get(b"%d" % status, "")
            return (name in rule.words) is not rule.exclude
        case _:
            return True


_GRPC: Final = {
    b"%d" % number: name
    for number, name in enumerate(
        re.findall(
            r"\w+",
            "OK CANCELED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
            "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED",
        )
    )
}


def _compares(rule: LogFilter, number: int) -> bool:
    if rule.comparison is None:
        return True
    operator, value = rule.comparison
    return {"EQ": number == value, "GE": number >= value, "LE": number <= value, "NE": number != value}[operator]
