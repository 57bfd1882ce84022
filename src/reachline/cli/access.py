"""`reachline access …`: people and tokens of a center's HTTP door."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from reachline.cli.issuing import moment, now, span, user
from reachline.cli.render import Column, Output, OutputOption, show
from reachline.errors import ConfigError, Problem
from reachline.store.access import Access

__all__ = ["app"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="People and tokens of a center's HTTP door.", context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip

File = Annotated[
    Path,
    typer.Option("--file", envvar="REACHLINE_ACCESS", metavar="FILE", help="What the document's center.access names."),
]
_FILE = Path("access.json")


class May(StrEnum):
    """Each may what those before it may: look; tell of calls, as SDKs do; order and drill; see who did what."""

    VIEWER = "viewer"
    CLIENT = "client"
    OPERATOR = "operator"
    ADMIN = "admin"


RoleOption = Annotated[May, typer.Option("--role", help="What it may.")]


@app.command()
def person(
    name: Annotated[str, typer.Argument(help="Who logs in.")],
    role: RoleOption = May.VIEWER,
    file: File = _FILE,
) -> None:
    """Let a person log in, or give one another password and role: sessions from before are over.

    The password is asked for twice, or read from standard input where that is no terminal.
    """
    Access(file).set_person(name, role.value, _password(), now=now())
    print(f"{name} may log in as {role}")


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Which program it is for.")],
    role: RoleOption = May.CLIENT,
    life: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it holds.")] = "90d",
    file: File = _FILE,
) -> None:
    """Print a token for a program: shown once."""
    lasts = span(life)
    text = Access(file).new_token(name, role.value, life=lasts, by=user(), now=now())
    print(text)
    print(f"{role}, until {now() + lasts:%Y-%m-%d %H:%M} UTC", file=sys.stderr)


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="A person, a program, or a token's id.")],
    file: File = _FILE,
) -> None:
    """Take a person's or a program's access away, from the next request on."""
    if not Access(file).remove(name):
        rule, hint = "nobody is called that", "`reachline access list` names all"
        raise ConfigError(Problem(place=str(file), path="", value=repr(name), rule=rule, hint=hint))
    print(f"{name} is let in no more")


@app.command(name="list")
def listed(file: File = _FILE, output: OutputOption = Output.TABLE) -> None:
    """Who is let in, as what, until when."""
    access = Access(file)
    people = [
        {"name": name, "kind": "person", "role": one.role, "id": "", "until": "", "by": ""}
        for name, one in access.people().items()
    ]
    tokens = [
        {"name": one.name, "kind": "token", "role": one.role, "id": key, "until": moment(one.until), "by": one.by}
        for key, one in access.tokens().items()
    ]
    show(output, people + tokens, _COLUMNS, document={"people": people, "tokens": tokens})


_COLUMNS: Sequence[Column[dict[str, Any]]] = (
    Column(title="name", cell=lambda row: row["name"]),
    Column(title="kind", cell=lambda row: row["kind"]),
    Column(title="role", cell=lambda row: row["role"]),
    Column(title="id", cell=lambda row: row["id"]),
    Column(title="until", cell=lambda row: row["until"]),
    Column(title="given out by", cell=lambda row: row["by"]),
)


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first = getpass.getpass("password: ")
    if getpass.getpass("again: ") != first:
        raise ConfigError(Problem(place="password", path="", value="", rule="the two are not the same"))
    return first
