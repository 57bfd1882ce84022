"""How one agent is started. What it must do comes from the center's plan."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from reachline.agent.pace import Close
from reachline.doors.addresses import AUTO, ROUTE, Bind, Name, OptionalName, Sources, Target, parse_target
from reachline.doors.agents import Listened
from reachline.doors.units import refuse
from reachline.errors import ConfigError, Problem
from reachline.model import Locality, Seconds

__all__ = ["AgentRun", "checked"]


def _page(text: str) -> str:
    if text and parse_target(text).scheme not in ("http", "https"):
        raise refuse("must be a page", "write https://a.example/204")
    return text


_Page = Annotated[str, AfterValidator(_page)]


class AgentRun(BaseModel):
    """One agent's start: who it is, where it is, whom it reports to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name = Field(description="The vantage's name: one vote, however many sources it has.")
    centers: tuple[Bind, ...] = Field(min_length=1, description="Tried in turn: host:port or unix:/path.")
    region: OptionalName = ""
    zone: OptionalName = ""
    sources: Sources = Field(
        (),
        description="Own addresses that bursts alternate over, `auto` or `route`; empty: as the document says, else auto.",
    )
    mesh: Listened | None = Field(
        None,
        description="Where it answers other agents, host:port (UDP), port 0 any. Unset: where the document says, or nowhere.",
    )
    token: SecretStr = Field(SecretStr(""), description="What the document's agents.<id>.token says.")
    seed: int | None = Field(
        None, description="Of all chance here (jitter, back-off), so that a run repeats; unset: drawn."
    )
    rate: Annotated[float, Field(gt=0)] = Field(
        5_000,
        description="Attempts a second at most; beyond it all intervals stretch alike. A core carries 28 000 bare connects.",
    )
    network_rate: Annotated[float, Field(gt=0)] = Field(
        1_000,
        description="Attempts a second to one /24 or /48 at most: a network full of lines, all in doubt, asks for 635.",
    )
    source_rate: Annotated[float, Field(gt=0)] = Field(
        5_000,
        description="Attempts a second from one own address at most. As the rate; a firewall that counts them wants less.",
    )
    attempts: Annotated[int | None, Field(ge=1)] = Field(
        None, description="Attempts under way at most; unset: as many as descriptors allow, 256 left for all else."
    )
    close: Close = Field(
        Close.AUTO,
        description="How probes close: fin, rst, or auto: by FIN, unless that used up 60 % of the ports toward a target.",
    )
    backlog: Annotated[int, Field(ge=0)] = Field(
        8 << 20, description="Bytes of reports kept while no center answers: half an hour of 500 lines with five kinds."
    )
    references: tuple[Target, ...] = Field(
        (),
        description="Targets near this agent that always answer. While all fail, our own end is broken and results are void.",
    )
    connectivity: _Page = Field(
        "", description="A page that always answers, e.g. https://a.example/204. While it does not, results are void."
    )
    tls: bool = Field(
        False, description="Speak TLS to centers reached over TCP; a Unix socket is guarded by its rights."
    )
    ca: str = Field(
        "", description="PEM file that signed the center's certificate; empty: the system's roots. Means TLS."
    )
    certificate: str = Field(
        "", description="PEM file, this agent's own chain, where the center asks for one. Means TLS."
    )
    key: str = Field("", description="PEM file, its key.")
    state: str = Field(
        "", description="Directory in which a member keeps its certificate; it is renewed there. Empty: none is."
    )
    attach_timeout: Seconds = Field(
        5.0, gt=0, description="To connect and be welcomed; a center answers in milliseconds."
    )
    send_timeout: Seconds = Field(
        10.0, gt=0, description="A center that takes no frame for a default heartbeat is stuck."
    )

    @model_validator(mode="after")
    def _pair(self) -> AgentRun:
        if bool(self.certificate) != bool(self.key):
            raise refuse("a certificate and its key belong together", "give --cert and --key")
        return self

    @property
    def speaks_tls(self) -> bool:
        """Whether any option asks for TLS."""
        return bool(self.tls or self.ca or self.certificate)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The sources that are addresses."""
        return tuple(source for source in self.sources if source not in (AUTO, ROUTE))

    @property
    def locality(self) -> Locality:
        """Where its samples are taken."""
        return Locality(region=self.region, zone=self.zone)


def checked(**options: object) -> AgentRun:
    """The settings of these options; ConfigError names every one that is wrong, as an option of the command line."""
    try:
        return AgentRun.model_validate(options)
    except ValidationError as error:
        found = error.errors()
        # A tuple with a wrong item is also "too short": one mistake, one line.
        inner = {each["loc"][0] for each in found if len(each["loc"]) > 1}
        told = (each for each in found if len(each["loc"]) > 1 or not inner.intersection(each["loc"]))
        raise ConfigError(*(_problem(each["loc"], each["msg"], each["input"]) for each in told)) from None


_OPTIONS = {
    "": "--cert",
    "centers": "--center",
    "sources": "--source",
    "references": "--reference",
    "network_rate": "--network-rate",
    "source_rate": "--source-rate",
    "certificate": "--cert",
}


def _problem(place: tuple[int | str, ...], message: str, value: object) -> Problem:
    name = str(place[0]) if place else ""
    shown = "" if name == "token" or isinstance(value, (dict, tuple)) else repr(value)
    return Problem(
        place=_OPTIONS.get(name, f"--{name}"), path="", value=shown, rule=message.removeprefix("Value error, ")
    )
