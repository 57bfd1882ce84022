"""Why an address cannot be listened at, in the words of whoever has to mend it. Knows no server and no protocol."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Final

from reachline.errors import Problem

__all__ = ["refused", "why_refused"]

_UNIX: Final = "unix:"


def refused(error: OSError, address: str, *, path: str, place: str) -> Problem:
    """Why an address cannot be taken, in one line."""
    hint = ""
    match error:
        case socket.gaierror():
            rule = f"the name does not resolve ({error.strerror})"
        case OSError(errno=errno.EADDRINUSE):
            rule, hint = "the address is in use", "stop who listens there (`ss -ltnp` names it) or choose another port"
        case OSError(errno=errno.EACCES | errno.EPERM):
            rule, hint = "no permission to bind it", "ports below 1024 need privileges"
        case OSError(errno=errno.EADDRNOTAVAIL):
            rule = "no interface of this machine has this address"
        case OSError(errno=int(number)):
            rule = os.strerror(number)
        case _:
            rule = f"cannot listen here ({error})"
    return Problem(place=place, path=path, value=address, rule=rule, hint=hint)


def why_refused(address: str) -> OSError | None:
    """What the kernel says to listening at `host:port` or `unix:/path`, for servers that keep it to themselves.

    None where nothing speaks against it now. Leaves nothing behind.
    """
    try:
        if address.startswith(_UNIX):
            _try_path(Path(address.removeprefix(_UNIX)))
        else:
            _try_port(address)
    except OSError as error:
        return error
    return None


def _try_path(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as trial:
        trial.bind(str(path))
    path.unlink()


def _try_port(address: str) -> None:
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, proto, _, where in found:
        with socket.socket(family, kind, proto) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(where)
            # Two sockets that listen at nothing yet may share a port; one that listens shows only here.
            trial.listen(1)
