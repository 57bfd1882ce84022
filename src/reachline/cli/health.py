"""`reachline health`: whether a center is well, for scripts, containers and service managers. Exit code 0 or 1, one line."""

from __future__ import annotations

from typing import Annotated

import typer

from reachline.cli.asking import CENTER, CenterOption, Refusal, ask
from reachline.errors import ConfigError, ReachlineError
from reachline.model import Seconds

__all__ = ["command"]


def command(
    center: CenterOption = CENTER,
    alive: Annotated[
        bool, typer.Option("--alive", help="Only whether the process answers, not whether it is ready.")
    ] = False,
    timeout: Annotated[Seconds, typer.Option(min=0.1, max=60.0, help="Seconds to wait for the answer.")] = 2.0,
) -> None:
    """Say in one line whether a center is well: it answers, every cluster has a snapshot, the journal takes records.

    Exit code: 0 well, 1 not, 2 usage.
    """
    try:
        told = ask(center, "/healthz" if alive else "/readyz", patience=timeout)
    except ConfigError:
        raise
    except Refusal as refused:
        print(f"not well: {center} answers {refused}")
        raise typer.Exit(1) from refused
    except ReachlineError as error:
        print(f"not well: {error}")
        raise typer.Exit(1) from error
    print(f"well: {center} is {told['status']}")
