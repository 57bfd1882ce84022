"""`reachline ca …`: a small authority for agents, centers and clients: made, asked for tokens and certificates, looked at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from reachline.cli.issuing import moment, now, span, user
from reachline.cli.render import Column, Output, OutputOption, show
from reachline.store.authority import AGENT_LIFE, CENTER_LIFE, Authority, Member
from reachline.store.whole import put
from reachline.wire.certificates import Role, make_request

__all__ = ["app"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Certificates for agents, centers and clients.", context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip

Directory = Annotated[
    Path, typer.Option("--ca", envvar="REACHLINE_CA", metavar="DIR", help="The authority's directory.")
]
_HOME = Path("ca")


class Who(StrEnum):
    """Roles that certificates name."""

    AGENT = "agent"
    CENTER = "center"
    CLIENT = "client"


RoleOption = Annotated[Who, typer.Option("--role", help="What it is let in as.")]


@app.command()
def init(
    domain: Annotated[str, typer.Option("--domain", help="The trust domain, e.g. prod.example.")],
    directory: Directory = _HOME,
) -> None:
    """Make an authority. Its key stays in the directory, which the center reads (`center.ca`)."""
    made = Authority.create(directory, domain, now=now())
    print(f"authority of {domain} in {directory}/ (key: {directory}/ca.key, for nobody else's eyes)")
    print(f"fingerprint {made.fingerprint}")
    print(f"next: `center: {{ca: {directory}}}` in the center's document, then `reachline ca token --ca {directory}`")


@app.command()
def token(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Who may join by it; nobody said: who comes first.")
    ] = "",
    role: RoleOption = Who.AGENT,
    uses: Annotated[int, typer.Option(min=1, max=10_000, help="How many may join by it.")] = 1,
    life: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it may be used.")] = "1h",
    directory: Directory = _HOME,
) -> None:
    """Print a token by which an agent joins: shown once, used up by joining."""
    until = span(life)
    text = Authority.open(directory).token(role=_role(role), name=name, uses=uses, life=until, by=user(), now=now())
    print(text)
    print(f"for {name or 'any new name'}, {uses} use{'s' * (uses != 1)}, {life}", file=sys.stderr)


@app.command()
def issue(
    name: Annotated[str, typer.Argument(help="Whom the certificate names.")],
    role: RoleOption = Who.CLIENT,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="A name or address a server is reached by; several may be given.")
    ] = None,
    life: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long it holds.", show_default="1d; centers 90d")
    ] = "",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Key and chain, in one file.")] = Path(
        "member.pem"
    ),
    directory: Directory = _HOME,
) -> None:
    """Make a key and certify it, for who cannot join by itself. The file is for its owner alone."""
    asked = make_request(name)
    lasts = span(life) if life else (CENTER_LIFE if role is Who.CENTER else AGENT_LIFE)
    chain = Authority.open(directory).issue(
        _role(role), name, asked.shown, hosts=tuple(host or ()), life=lasts, by=user(), now=now()
    )
    put(out, asked.key + chain, mode=0o600)
    print(f"{out}: {role} {name}, until {(now() + lasts):%Y-%m-%d %H:%M} UTC")


@app.command(name="list")
def listed(directory: Directory = _HOME, output: OutputOption = Output.TABLE) -> None:
    """Who was let in, until when, and on whose word; tokens that may still be used."""
    authority = Authority.open(directory)
    rows = [_row(member) for member in authority.members()]
    tokens = [
        {"token": name, "role": one.role, "name": one.name, "uses": one.uses, "until": moment(one.until), "by": one.by}
        for name, one in authority.tokens(now())
    ]
    document = {"domain": authority.domain, "fingerprint": authority.fingerprint, "members": rows, "tokens": tokens}
    show(output, rows, _COLUMNS, document=document)
    if output is Output.TABLE and tokens:
        show(output, tokens, _TOKENS, document=document)


@app.command()
def revoke(name: str, role: RoleOption = Who.AGENT, directory: Directory = _HOME) -> None:
    """Shut a member out: the center ends its stream within seconds and renews it no more."""
    Authority.open(directory).shut_out(_role(role), name)
    print(f"{role} {name} is shut out; `reachline ca readmit {name}` takes that back")


@app.command()
def readmit(name: str, role: RoleOption = Who.AGENT, directory: Directory = _HOME) -> None:
    """Let in again who was shut out."""
    Authority.open(directory).shut_out(_role(role), name, is_out=False)
    print(f"{role} {name} may come again, with its certificate while that holds, else by a token made for its name")


_COLUMNS: Sequence[Column[dict[str, Any]]] = (
    Column(title="member", cell=lambda row: row["member"]),
    Column(title="role", cell=lambda row: row["role"]),
    Column(title="state", cell=lambda row: row["state"]),
    Column(title="certificate until", cell=lambda row: row["until"]),
    Column(title="let in", cell=lambda row: row["by"]),
)
_TOKENS: Sequence[Column[dict[str, Any]]] = (
    Column(title="token", cell=lambda row: row["token"]),
    Column(title="for", cell=lambda row: row["name"] or "any new name"),
    Column(title="uses", cell=lambda row: str(row["uses"])),
    Column(title="until", cell=lambda row: row["until"]),
    Column(title="given out by", cell=lambda row: row["by"]),
)


def _row(member: Member) -> dict[str, Any]:
    is_over = member.until <= now().timestamp()
    state = "shut out" if member.is_out else "certificate over" if is_over else "in"
    return {
        "member": member.name, "role": member.role, "state": state, "joined": moment(member.joined),
        "until": moment(member.until), "serial": member.serial, "by": member.by,
    }  # fmt: skip


def _role(who: Who) -> Role:
    return who.value
