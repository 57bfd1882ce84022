"""What each probe kind says and expects: pure, no waiting, no clock, no randomness of its own.

One literal `TABLE`; a kind is one module with its settings (a frozen dataclass of plain values, read from a plan's options)
and its talk. Adding a kind: one file, one line here, one test, one heading in the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, Self

from reachline.abc import Talk
from reachline.errors import ConfigError, Problem
from reachline.model import Endpoint, Kind
from reachline.talk.dns import DnsProbe
from reachline.talk.grpc import GrpcProbe
from reachline.talk.http import HttpProbe
from reachline.talk.icmp import IcmpProbe
from reachline.talk.options import Options
from reachline.talk.redis import RedisProbe
from reachline.talk.secure import Secure
from reachline.talk.tcp import TcpProbe
from reachline.talk.tls import TlsProbe
from reachline.talk.udp import UdpProbe
from reachline.talk.way import Way

__all__ = ["TABLE", "Conversation", "Probe", "build"]


class Conversation(Talk, Protocol):
    """A talk that also tells people and counters what came of it."""

    @property
    def answered(self) -> bool:
        """Whether what came so far holds a byte of the answer; a banner or settings that came by themselves do not."""

    @property
    def status(self) -> int:
        """HTTP status, DNS rcode; 0 where there is none."""

    @property
    def note(self) -> str:
        """The failure in words once `closed` was asked, else empty."""


class Probe(Protocol):
    """One kind's settings, ready to be used many times."""

    @property
    def way(self) -> Way:
        """How its bytes travel."""

    @property
    def secure(self) -> Secure | None:
        """The TLS to speak first, if any."""

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> Self:
        """The settings in `options`; mistakes are left there."""

    def where(self, endpoint: Endpoint) -> Endpoint:
        """Who is asked about `endpoint`; an empty host is the agent's own name server."""

    def talk(self, endpoint: Endpoint, nonce: int) -> Conversation | None:
        """A new conversation; None: reaching the endpoint is the whole probe. `nonce` is 64 unguessable bits."""


TABLE: Final[dict[Kind, type[Probe]]] = {
    Kind.TCP: TcpProbe,
    Kind.HTTP: HttpProbe,
    Kind.TLS: TlsProbe,
    Kind.DNS: DnsProbe,
    Kind.ICMP: IcmpProbe,
    Kind.GRPC: GrpcProbe,
    Kind.REDIS: RedisProbe,
    Kind.UDP: UdpProbe,
}


def build(kind: Kind, endpoint: Endpoint, options: Mapping[str, str | int | bool]) -> Probe:
    """The probe of `kind` for `endpoint`; ConfigError names every option that is unknown or wrong."""
    reader = Options(kind.value, options)
    if kind not in TABLE:
        raise ConfigError(Problem(place=f"{kind.value} probe", path="kind", value="", rule="sends nothing"))
    probe = TABLE[kind].read(endpoint, reader)
    reader.finish()
    return probe
