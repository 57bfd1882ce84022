"""`reachline envoy bootstrap`: what an Envoy is started with to follow a center."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
import yaml

from reachline.cli.bootstraps import envoy
from reachline.cli.pointing import Ca, CenterAt, Certificate, DocumentFile, Key, LocalityOption, Node, Tls, way_of
from reachline.cli.render import Output, OutputOption, write_json

__all__ = ["app", "bootstrap"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="What an Envoy needs to follow a center.", context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.callback()
def _group() -> None:
    """A group also while it has one command."""


@app.command("bootstrap")
def bootstrap(
    file: DocumentFile = None,
    node: Node = "",
    locality: LocalityOption = "",
    center: CenterAt = "",
    delta: Annotated[
        bool, typer.Option("--delta", help="Be told changes only, where there are many clusters.")
    ] = False,
    admin: Annotated[
        str, typer.Option("--admin", metavar="ADDR", help="Where Envoy's admin page is; none: nowhere.")
    ] = "127.0.0.1:9901",
    hds: Annotated[bool, typer.Option("--hds", help="Probe lines for the center: this Envoy is a vantage.")] = False,
    lrs: Annotated[bool, typer.Option("--lrs", help="Report how calls went, summed by endpoint.")] = False,
    als: Annotated[bool, typer.Option("--als", help="Report every attempt at a line, with its time.")] = False,
    tls: Tls = False,
    ca: Ca = "",
    cert: Certificate = "",
    key: Key = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what an Envoy is started with.

    reachline envoy bootstrap reachline.yaml > envoy.yaml; envoy -c envoy.yaml.

    A token is taken from REACHLINE_AGENT_TOKEN or REACHLINE_TOKEN, else from the document, and stands in what is printed.
    """
    way = way_of(file, node=node, locality=locality, center=center, tls=tls, ca=ca, certificate=cert, key=key)
    found = envoy(way, admin="" if admin == "none" else admin, delta=delta, hds=hds, lrs=lrs, als=als)
    if output is Output.JSON:
        write_json(found)
        return
    yaml.safe_dump(found, sys.stdout, sort_keys=False, default_flow_style=False, width=120)
