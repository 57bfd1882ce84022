"""`reachline grpc bootstrap`: what a gRPC process needs to dial `xds:///cluster` by a center."""

from __future__ import annotations

import typer

from reachline.cli.bootstraps import grpc
from reachline.cli.pointing import Ca, CenterAt, Certificate, DocumentFile, Key, LocalityOption, Node, Tls, way_of
from reachline.cli.render import write_json

__all__ = ["app", "bootstrap"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="What a gRPC process needs to follow a center.", context_settings={"help_option_names": ["-h", "--help"]},
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
    tls: Tls = False,
    ca: Ca = "",
    cert: Certificate = "",
    key: Key = "",
) -> None:
    """Print the file that GRPC_XDS_BOOTSTRAP names.

    reachline grpc bootstrap reachline.yaml > grpc.json; then dial xds:///CLUSTER.

    A token is taken from REACHLINE_AGENT_TOKEN or REACHLINE_TOKEN, else from the document, and stands in what is printed.
    """
    write_json(
        grpc(way_of(file, node=node, locality=locality, center=center, tls=tls, ca=ca, certificate=cert, key=key))
    )
