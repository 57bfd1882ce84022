"""What both `envoy bootstrap` and `grpc bootstrap` ask for: who comes, and how the center is reached."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from reachline.cli.bootstraps import Way, locality_of, split
from reachline.cli.documents import document_in
from reachline.doors.settings import Document
from reachline.errors import ConfigError, Problem
from reachline.net.reload import text_of

__all__ = [
    "Ca", "CenterAt", "Certificate", "DocumentFile", "Key", "LocalityOption", "Node", "Tls", "way_of",
]  # fmt: skip

_CENTER: Final = "127.0.0.1:7600"
_TOKENS: Final = ("REACHLINE_AGENT_TOKEN", "REACHLINE_TOKEN")
"""One's own as an agent, or the center's."""
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}

DocumentFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="The center's document: its address, whether it speaks TLS, and the token are taken from there.",
    ),
]
Node = Annotated[str, typer.Option("--node", metavar="ID", help="Its name at the center. Unset: this host's.")]
LocalityOption = Annotated[
    str,
    typer.Option(
        "--locality",
        metavar="WHERE",
        help="zone, region/zone or region/zone/sub-zone: it is told the lines seen from its zone.",
    ),
]
CenterAt = Annotated[
    str,
    typer.Option(
        "--center", metavar="ADDR", help="host:port or unix:/path where agents come in, too.", show_default=_CENTER
    ),
]
Tls = Annotated[bool, typer.Option("--tls", help="Speak TLS to the center.")]
Ca = Annotated[
    str, typer.Option("--ca", metavar="FILE", help="PEM that signed the center's certificate (means --tls).")
]
Certificate = Annotated[str, typer.Option("--cert", metavar="FILE", help="PEM, its own certificate (means --tls).")]
Key = Annotated[str, typer.Option("--key", metavar="FILE", help="PEM, its key.")]


def way_of(file: Path | None, *, environ: Mapping[str, str] = os.environ, **said: Any) -> Way:
    """Options first, then the document, then defaults; ConfigError for what cannot be."""
    document = None if file is None else document_in(text_of(file), str(file), environ=environ)
    node = said["node"] or socket.gethostname()
    center = said["center"] or _center(document)
    if not center.startswith("unix:"):
        split(center)
    if bool(said["certificate"]) != bool(said["key"]):
        problem = Problem(
            place="option", path="--cert", value="", rule="goes with --key", hint="name both PEM files, or none"
        )
        raise ConfigError(problem)
    has_tls = document is not None and document.center.tls is not None and not center.startswith("unix:")
    return Way(
        node=node,
        center=center,
        locality=locality_of(said["locality"]),
        token=_token(document, node, environ),
        tls=bool(said["tls"] or said["ca"] or said["certificate"]) or has_tls,
        ca=said["ca"],
        certificate=said["certificate"],
        key=said["key"],
    )


def _center(document: Document | None) -> str:
    """Where a document's center listens, as a process on the same machine reaches it."""
    if document is None:
        return _CENTER
    at = document.center.grpc
    host, _, port = at.rpartition(":")
    other = _EVERYWHERE.get(host.strip("[]"))
    return at if other is None else f"{f'[{other}]' if ':' in other else other}:{port}"


def _token(document: Document | None, node: str, environ: Mapping[str, str]) -> str:
    given = next((environ[name] for name in _TOKENS if environ.get(name)), "")
    if given or document is None:
        return given
    own = document.agents.get(node)
    secret = own.token if own is not None and own.token is not None else document.center.token
    return secret.get_secret_value() if secret is not None else ""
