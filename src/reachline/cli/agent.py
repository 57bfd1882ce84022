"""`reachline agent --id ID --center ADDR`: probe what a center asks for, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from reachline.agent.member import Member, join, member_in
from reachline.agent.pace import Close
from reachline.agent.run import run
from reachline.agent.settings import AgentRun, checked
from reachline.cli.ending import stopped_by_signals
from reachline.cli.logs import LogFormat, LogFormatOption, LogLevelOption, start_logging
from reachline.errors import ConfigError, Problem

__all__ = ["TOKEN", "command"]

TOKEN: Final = "REACHLINE_AGENT_TOKEN"  # noqa: S105  the variable's name
"""A token belongs in the environment: a command line is seen by everybody on the machine."""


Name = Annotated[str, typer.Option("--id", help="This vantage's name; it has one vote.")]
Centers = Annotated[
    list[str], typer.Option("--center", metavar="ADDR", help="host:port or unix:/path; several are tried in turn.")
]
Zone = Annotated[str, typer.Option(help="Where it is, where the center's document does not say.")]
Region = Annotated[str, typer.Option(help="The zone's region.")]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="IP",
        help="Own address that probes leave from; several alternate. `auto`: those beside the route's own; `route`: that alone.",
    ),
]
Mesh = Annotated[
    str,
    typer.Option(
        metavar="ADDR",
        help="Answer other agents here (UDP, host:port), in place of what the document says; port 0: any.",
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="TARGET",
        help="Target near this agent that always answers; while all fail, we are cut off.",
    ),
]
Connectivity = Annotated[
    str,
    typer.Option(
        metavar="URL", help="Page that always answers; while it does not, what we measure counts for nothing."
    ),
]
Tls = Annotated[bool, typer.Option("--tls", help="Speak TLS to the center; the system's roots say whom to trust.")]
Ca = Annotated[
    str, typer.Option("--ca", metavar="FILE", help="PEM that signed the center's certificate (means --tls).")
]
Cert = Annotated[str, typer.Option("--cert", metavar="FILE", help="PEM, this agent's own certificate.")]
Key = Annotated[str, typer.Option("--key", metavar="FILE", help="PEM, its key.")]
Join = Annotated[
    str,
    typer.Option(
        "--join", metavar="TOKEN", envvar="REACHLINE_JOIN", help="Become a member by this token, unless it is one."
    ),
]
JoinAt = Annotated[
    str,
    typer.Option(
        "--join-at", metavar="URL", help="Where to join.", show_default="https, port 7680 of the first center"
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        envvar="STATE_DIRECTORY",
        metavar="DIR",
        help="Where a member keeps its certificate.",
        show_default="~/.local/state/reachline/ID",
    ),
]
Rate = Annotated[float | None, typer.Option(help="Attempts a second at most; beyond it all intervals stretch alike.")]
NetworkRate = Annotated[
    float | None,
    typer.Option(help="Attempts a second to one /24 or /48 at most; beyond it rounds wait or are skipped."),
]
SourceRate = Annotated[
    float | None, typer.Option(help="Attempts a second from one own address at most; beyond it likewise.")
]
Attempts = Annotated[int | None, typer.Option(help="Attempts under way at most; unset: as many as descriptors allow.")]
CloseOption = Annotated[
    Close | None,
    typer.Option(help="How probes close; auto: by FIN unless that would use up the ports to a target."),
]
Seed = Annotated[int | None, typer.Option(help="Of all chance (jitter, back-off), so that a run repeats.")]


def command(
    name: Name,
    center: Centers,
    zone: Zone = "",
    region: Region = "",
    source: Sources = None,
    mesh: Mesh = "",
    reference: References = None,
    connectivity: Connectivity = "",
    tls: Tls = False,
    ca: Ca = "",
    cert: Cert = "",
    key: Key = "",
    token: Join = "",
    join_at: JoinAt = "",
    state: State = None,
    rate: Rate = None,
    network_rate: NetworkRate = None,
    source_rate: SourceRate = None,
    attempts: Attempts = None,
    close: CloseOption = None,
    seed: Seed = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = "info",
) -> None:
    """Run an agent: it probes the lines that a center's plan names and reports what it sees; the center judges.

    It waits for a center that is away, and keeps its reports. Ends cleanly on SIGINT and SIGTERM. A token is read from
    REACHLINE_AGENT_TOKEN. With --join it becomes a member of the center's trust domain, keeps its certificate in --state and renews
    it; started again, it needs neither the token nor --join. --tls, --ca and --cert say otherwise.
    """
    start_logging(log_format, log_level)
    # Who says which certificate to show, or whom to trust, means that one.
    files = None if tls or ca or cert else _member(name, center, token, join_at, state)
    if files is not None:
        ca, cert, key = str(files.ca), str(files.certificate), str(files.certificate)
    given: dict[str, object] = {
        "rate": rate,
        "network_rate": network_rate,
        "source_rate": source_rate,
        "attempts": attempts,
        "close": close,
        "seed": seed,
    }
    settings = checked(
        id=name,
        centers=tuple(center),
        zone=zone,
        region=region,
        sources=tuple(source or ()),
        references=tuple(reference or ()),
        connectivity=connectivity,
        mesh=mesh or None,
        tls=tls,
        ca=ca,
        certificate=cert,
        key=key,
        state=str(files.directory) if files else "",
        token=os.environ.get(TOKEN, ""),
        **{key: value for key, value in given.items() if value is not None},
    )
    asyncio.run(_until_signalled(settings))


def _member(name: str, centers: Sequence[str], token: str, at: str, state: Path | None) -> Member | None:
    """The files of an agent that is a member, or becomes one; None where it is none."""
    home = state or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "reachline" / name
    if known := member_in(home, name, now=datetime.now(UTC)):
        return known
    if not token:
        return None
    if not at and centers[0].startswith("unix:"):
        rule, hint = "a Unix socket does not say where to join", "--join-at https://center.example:7680"
        raise ConfigError(Problem(place="--join", path="", value="", rule=rule, hint=hint))
    joined = join(at or f"https://{centers[0].rpartition(':')[0]}:7680", token, name, home)
    logging.getLogger("reachline.agent").info("member_joined", extra={"identity": joined.uri, "state": str(home)})
    return Member(home)


async def _until_signalled(settings: AgentRun) -> None:
    with stopped_by_signals(signal.SIGINT, signal.SIGTERM) as stop:
        await run(settings, stop=stop)
