"""`reachline config relay FILE…`: what Xray is given beside its document, so that outbounds which only it speaks are reached through it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reachline.cli.documents import texts
from reachline.cli.render import write_json

__all__ = ["relay"]


def relay(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Xray documents, merged in this order, or a directory.")
    ],
    remarks: Annotated[str, typer.Option(help="Of a list of documents, the one of this name.")] = "",
) -> None:
    """Print what lets Xray relay outbounds that only it speaks.

    A document for it: a SOCKS inbound with an account for each of them, at the address of
    `reachline.core`. Saved as the last file of Xray's -confdir. Holds the password of that block.
    """
    from reachline.doors.observatory import Source  # noqa: PLC0415  (a door of its own, for its own documents)
    from reachline.doors.observatory.relaying import relayed  # noqa: PLC0415  (as above)

    write_json(relayed([Source(*each) for file in files for each in texts(file)], remarks=remarks or None))
