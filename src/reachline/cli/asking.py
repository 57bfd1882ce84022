"""How the command line asks a running center: one request, one answer or one clear line. Standard library only."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from reachline.errors import ConfigError, Problem, ReachlineError
from reachline.model import Seconds

__all__ = ["CENTER", "CenterOption", "Refusal", "Unreached", "ask"]

CENTER: Final = "http://127.0.0.1:7680"
_PATIENCE: Final[Seconds] = 5.0
"""A center answers in milliseconds; five seconds say that it hangs."""
_MOST: Final = 64 << 20
"""Bytes of an answer: a hundred thousand lines."""
_TOKEN: Final = "REACHLINE_TOKEN"  # noqa: S105  the variable's name

CenterOption = Annotated[
    str,
    typer.Option("--center", envvar="REACHLINE_CENTER", metavar="URL", help="The center to ask.", show_default=CENTER),
]
"""The annotation of a command's `center` parameter; its default is `CENTER`."""


class Unreached(ReachlineError):  # noqa: N818  a state of the network, not a mistake
    """Nobody answers there."""


class Refusal(ReachlineError):  # noqa: N818  an answer, not a failure of ours
    """The center answered with an error; `status` is its HTTP status."""

    def __init__(self, status: int, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.status = status
        self.message = message
        self.hint = hint


def ask(center: str, path: str, *, method: str = "GET", body: object = None, patience: Seconds = _PATIENCE) -> Any:
    """The JSON a center answers at `path`; `body` is sent as JSON. Refusal for an error answer, Unreached where nobody answers, ReachlineError
    where something else does, ConfigError for what is no center's URL.
    """
    parts = urlsplit(center)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        rule, hint = "must be an http or https URL", f"for example {CENTER}"
        raise ConfigError(Problem(place="option", path="--center", value=center, rule=rule, hint=hint))
    headers = {"Authorization": f"Bearer {token}"} if (token := os.environ.get(_TOKEN)) else {}
    content = None if body is None else json.dumps(body).encode()
    if content is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(  # noqa: S310  the scheme was looked at
        center.rstrip("/") + path, headers=headers, data=content, method=method
    )
    try:
        return _within(request, patience)
    except OSError as error:
        reason = "timed out" if isinstance(error, TimeoutError) else getattr(error, "reason", error)
        is_distrusted = isinstance(reason, ssl.SSLCertVerificationError)
        hint = "; whom to trust: SSL_CERT_FILE=ca.pem, the authority's certificate" if is_distrusted else ""
        raise Unreached(f"{center}: no center answers ({reason}){hint}") from error
    except (ValueError, RecursionError, http.client.HTTPException) as error:
        raise ReachlineError(f"{center}: what answers there is no center") from error


def _within(request: urllib.request.Request, patience: Seconds) -> Any:
    """The answer, or the error of asking; TimeoutError after that time, also where bytes drip in, which no socket's timeout ends."""
    asked: Future[Any] = Future()

    def work() -> None:
        try:
            asked.set_result(_exchange(request, patience))
        except (ReachlineError, OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            asked.set_exception(error)

    threading.Thread(target=work, name="ask", daemon=True).start()
    return asked.result(patience)


def _exchange(request: urllib.request.Request, patience: Seconds) -> Any:
    # A center is reached directly: a proxy of the environment is for the world outside.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=patience) as answer:
            return json.loads(answer.read(_MOST))
    except urllib.error.HTTPError as error:
        raise _refusal(error) from error


def _refusal(error: urllib.error.HTTPError) -> Refusal:
    with error:
        try:
            document = json.loads(error.read(_MOST))
        except ValueError:
            document = {}
    told = document.get("error") if isinstance(document, dict) else None
    if not isinstance(told, dict):
        return Refusal(error.code, f"HTTP {error.code} {error.reason}", "")
    hint = f"set {_TOKEN}" if error.code == 401 else str(told.get("hint", ""))
    return Refusal(error.code, str(told.get("message", "")), hint)
