"""Agents in the document: who is expected, from where, and how they measure the ways between each other."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from reachline.doors.addresses import Bind, OptionalName, Sources
from reachline.doors.probe import Settings
from reachline.doors.units import Duration, refuse

__all__ = ["WILD", "AgentSettings", "Listened", "LocalitySettings", "MeshSettings", "Reached"]

_MOST_RATE: Final = 1_000
"""Probes a second that one agent sends at most: a tenth of a core, and a megabit a second each way."""


WILD: Final = frozenset(("0.0.0.0", "::"))
"""All addresses of a machine."""


def _as_list(value: object) -> object:
    """One address for a list of one."""
    return [value] if isinstance(value, str) else value


def _udp(text: object) -> object:
    if isinstance(text, str) and (text.startswith("unix:") or ":" not in text):
        raise refuse("must be host:port: agents ask each other over UDP", "10.0.0.3:7601")
    return text


def _reached(text: str) -> str:
    if text.rpartition(":")[2] == "0":
        raise refuse("must have a port of 1…65535: the others ask there", "10.0.0.3:7601")
    if text.rpartition(":")[0].strip("[]") in WILD:
        raise refuse("must be an address that the others can ask, not all of its own", "10.0.0.3:7601")
    return text


def _listened(text: str) -> str:
    host = text.rpartition(":")[0].strip("[]")
    if not (":" in host or host.replace(".", "").isdigit()):
        raise refuse(
            "must be an address of this machine", "0.0.0.0:7601 listens at all of them, 127.0.0.1:0 at loopback"
        )
    return text


Reached = Annotated[Bind, BeforeValidator(_udp), AfterValidator(_reached)]
"""Where an agent is reached by others."""
Listened = Annotated[Bind, BeforeValidator(_udp), AfterValidator(_listened)]
"""Where an agent answers others."""


class LocalitySettings(Settings):
    """Where an agent stands."""

    region: OptionalName = Field("", description="Region, if you have several.")
    zone: OptionalName = Field("", description="Zone: the origin of lines that say `from`.")
    sub_zone: OptionalName = Field("", description="Anything finer.")


class AgentSettings(Settings):
    """One vantage that is expected to report."""

    locality: LocalitySettings = Field(LocalitySettings(), description="Where it stands.")
    sources: Annotated[
        Sources, Field(strict=False), BeforeValidator(_as_list, json_schema_input_type=str | list[str])
    ] = Field(
        (),
        description="Its source addresses, bound in turn: two or more cover more of the paths that traffic takes. `auto`, as unset: those "
        "of the network and interface that the route to a target takes; `route`: the one it takes, alone. An agent's own `--source` wins.",
    )
    mesh: Reached | None = Field(
        None,
        description="host:port (UDP) where other agents reach it; it answers there. Unset: where `--mesh` says, or nowhere.",
    )
    token: SecretStr | None = Field(None, description="What it must show to the center. Write ${env:X} or ${file:/…}.")


class MeshSettings(Settings):
    """Agents measure the ways between each other, so that a fault is told by its direction. Who is not reached is not asked."""

    enabled: bool = Field(True, description="False: agents neither ask nor answer each other.")
    every: Annotated[Duration, Field(ge=0.02, le=60)] = Field(
        0.2,
        description="One probe to each other agent: at five a second 2 % of loss are named in two minutes, at one a second in ten. Of n agents n² are asked.",
    )
    peers: int = Field(
        100,
        ge=2,
        le=256,
        description="Others that one agent asks at most (and no more than 1000 a second): beyond it each asks its nearest by name, and the cost grows with n, not n².",
    )

    @property
    def most(self) -> int:
        """Others that one agent asks, so that it sends no more than a thousand probes a second."""
        return max(2, min(self.peers, int(_MOST_RATE * self.every)))
