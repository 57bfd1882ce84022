"""The door of a center that has an authority: who comes as whom, how long, who may join, and this center's own certificate.

An agent reports as the one its certificate names, until that ends. Members count for the quorum as agents of the document do.
What `reachline ca` changes meanwhile is in force within seconds.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from reachline.center.roster import Refusal
from reachline.doors.agents import AgentSettings
from reachline.doors.settings import Document, Tls
from reachline.errors import ConfigError, Problem, RemoteProtocolError
from reachline.model import Seconds
from reachline.net.rpc import Call, Conversation, Service, Write
from reachline.store.authority import Authority
from reachline.wire.certificates import RENEW, Identity, certified, make_request, renewed_at

__all__ = ["Admission", "Gate", "Joined"]

log = logging.getLogger("reachline.center.gate")

_OWN_LIFE: Final = timedelta(hours=24)
"""As an agent's: a center renews its own just as well."""
_LOOK: Final[Seconds] = 2.0
"""Between two looks at what operators changed: who was shut out is gone before the next heartbeat."""
_MOST_REFUSED, _SPAN_S = 30, 60.0
"""Refused attempts to join a minute, of all who try; further ones are not looked at. A token has 128 bits: this is for the log's sake."""
_PEM: Final = "own.pem"


class Admission(NamedTuple):
    """Somebody is let in."""

    ends: datetime | None = None
    """When its certificate does; None: it showed none."""


class Joined(NamedTuple):
    """What a new member needs."""

    identity: Identity
    certificate: bytes
    """Its chain…"""
    authority: bytes
    """…and who signed it, PEM."""


class Gate:
    """`authority` None: whoever comes is whom it says it is, unless its certificate says otherwise. Written by its center's loop."""

    def __init__(
        self, authority: Authority | None, *, hosts: Sequence[str] = (), wall: Callable[[], datetime] | None = None
    ) -> None:
        """`hosts` are names and addresses the center is reached by."""
        self.authority = authority
        self._hosts = hosts
        self._wall = wall or _now
        self._out: frozenset[str] = frozenset()
        self._names: frozenset[str] = frozenset()
        self._shut: frozenset[tuple[str, str]] = frozenset()
        """Role and name of everybody who was shut out."""
        self._stays: set[tuple[Identity | None, asyncio.Timeout]] = set()
        """Calls of further services, each until its end."""
        self._complaint = ""
        self._refused: deque[float] = deque()
        self.changed: Callable[[frozenset[str]], None] = lambda _: None
        """Called when members came or went, with the names of those who were shut out."""
        self._follow()

    # -- who comes -----------------------------------------------------------------------------------------------------

    def admitted(self, certificate: bytes, agent: str) -> Admission | Refusal:
        """Whether who shows this certificate (PEM; empty: none was asked for) may report as this agent."""
        if not certificate:
            return Admission()
        try:
            said = certified(certificate)
        except RemoteProtocolError as error:
            return Refusal(str(error))
        who = said.identity
        if who is None:
            return Refusal("its certificate names no agent") if self.authority else Admission(said.ends)
        if who.role != "agent" or who.name != agent:
            return Refusal(f"its certificate is {who.role} {who.name}'s, not agent {agent}'s")
        if self.authority and who.domain != self.authority.domain:
            return Refusal(f"its certificate is of {who.domain}, not of {self.authority.domain}")
        if agent not in self._names:  # certified by hand a moment ago
            self._look()
        return Refusal(f"agent {agent} was shut out") if agent in self._out else Admission(said.ends)

    def left(self, admission: Admission) -> Seconds | None:
        """How long somebody may stay."""
        return None if admission.ends is None else max(0.0, (admission.ends - self._wall()).total_seconds())

    def speaks(self, certificate: bytes, name: str) -> str:
        """Why who shows this certificate may not judge lines as `name` over another service than the agents'; empty: it may."""
        who = certified(certificate).identity if certificate and self.authority else None
        if who is None:
            return ""
        if who.name == name and (who.role == "agent" or (who.role == "client" and name not in self._names)):
            return ""
        return f"its certificate is {who.role} {who.name}'s: it does not judge as {name}"

    def is_certified(self, agent: str) -> bool:
        """Whether an agent of that name has, or had, a certificate: then nobody without it speaks for it."""
        return agent in self._names or agent in self._out

    def guarded(self, services: Mapping[str, Service | Conversation]) -> Mapping[str, Service | Conversation]:
        """The same services, whose calls end when who makes them is shut out, or when its certificate ends."""
        if self.authority is None:
            return services
        return {name: self._guarded(service) for name, service in services.items()}

    def _guarded(self, service: Service | Conversation) -> Service | Conversation:
        if isinstance(service, Conversation):
            hold = service.hold

            async def held(frames: AsyncIterator[bytes], call: Call, write: Write) -> None:
                async with self._let(call):
                    await hold(frames, call, write)

            return Conversation(held)

        async def answers(frames: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
            async with self._let(call), aclosing(service(frames, call)) as given:  # type: ignore[type-var]
                async for answer in given:
                    yield answer

        return answers

    @asynccontextmanager
    async def _let(self, call: Call) -> AsyncIterator[None]:
        """As long as the call may go on; PermissionError says why not, or why no longer."""
        who, left = self._known(call.certificate)
        limit = asyncio.timeout(left)
        stay = (who, limit)
        try:
            async with limit:
                self._stays.add(stay)
                yield
        except TimeoutError:
            if limit.expired():
                raise PermissionError("its certificate has ended, or it was shut out") from None
            raise
        finally:
            self._stays.discard(stay)

    def _known(self, certificate: bytes) -> tuple[Identity | None, Seconds | None]:
        """Who shows it, and how long that holds; PermissionError where that is nobody of ours, or over."""
        assert self.authority is not None
        if not certificate:
            return None, None
        said = certified(certificate)
        left = (said.ends - self._wall()).total_seconds()
        if left <= 0:
            raise PermissionError("its certificate has ended")
        if (who := said.identity) is not None:
            if who.domain != self.authority.domain:
                raise PermissionError(f"its certificate is of {who.domain}, not of {self.authority.domain}")
            if (who.role, who.name) in self._shut:
                raise PermissionError(f"{who.role} {who.name} was shut out")
        return who, left

    def complete(self, document: Document) -> Document:
        """A document that names its agents, with the members as further ones: they count for the quorum.

        One that names none stays so: whoever comes counts, and comes by a certificate or over a Unix socket.
        """
        more = {name: AgentSettings() for name in sorted(self._names) if name not in document.agents}
        if not more or not document.agents:
            return document
        whole = document.model_copy(update={"agents": {**document.agents, **more}})
        return whole.read_from(document.origin)

    # -- who joins -----------------------------------------------------------------------------------------------------

    async def join(self, token: str, name: str, request: bytes) -> Joined:
        """A certificate for who shows a token. PermissionError says why not, RemoteProtocolError what is wrong with the
        request, TimeoutError that too many were refused lately.
        """
        if self.authority is None:
            raise PermissionError("this center has no authority: nobody joins by a token here")
        now = self._wall()
        while self._refused and self._refused[0] <= now.timestamp() - _SPAN_S:
            self._refused.popleft()
        if len(self._refused) >= _MOST_REFUSED:
            raise TimeoutError("too many were refused within a minute; come again after it")
        try:
            chain = await asyncio.to_thread(self.authority.redeem, token, request, name=name, now=now)
        except (PermissionError, RemoteProtocolError):
            self._refused.append(now.timestamp())
            raise
        identity = certified(chain).identity
        assert identity is not None
        log.info("member_joined", extra={"role": identity.role, "member": identity.name})
        self._look()
        return Joined(identity, chain, self.authority.certificate)

    @property
    def services(self) -> Mapping[str, Service]:
        """Renewal, beside the agents' own method."""
        return MappingProxyType({RENEW: self._renew} if self.authority else {})

    async def _renew(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        assert self.authority is not None
        if not call.certificate:
            raise PermissionError("who renews shows the certificate that it has")
        who = certified(call.certificate).identity
        if who is None:
            raise PermissionError("the certificate names no member")
        async for request in requests:
            yield await asyncio.to_thread(self.authority.renew, who, request, now=self._wall())
            log.info("member_renewed", extra={"role": who.role, "member": who.name})
            return

    # -- ourselves -----------------------------------------------------------------------------------------------------

    def tls(self) -> Tls | None:
        """Files with this center's own certificate, made anew: names may have changed since the last start."""
        if self.authority is None:
            return None
        file = self.authority.directory / _PEM
        try:
            self._renew_own(file)
        except OSError as error:
            if not self._is_good(file):
                rule = f"takes no certificate for this center ({error.strerror})"
                place = str(self.authority.directory)
                raise ConfigError(Problem(place=place, path="", value="", rule=rule)) from error
            log.warning("own_certificate_kept", extra={"reason": str(error)})  # for the names of the last start
        return Tls(certificate=str(file), key=str(file), client_ca=str(self.authority.directory / "ca.pem"))

    def _is_good(self, file: Path) -> bool:
        try:
            said = certified(file.read_bytes())
        except (OSError, RemoteProtocolError):
            return False
        return self._wall() < renewed_at(said)

    def _renew_own(self, file: Path) -> None:
        assert self.authority is not None
        asked = make_request("center")
        hosts = tuple(dict.fromkeys((*self._hosts, "localhost", "127.0.0.1", "::1", socket.gethostname())))
        chain = self.authority.issue(
            "center", "center", asked.shown, hosts=hosts, life=_OWN_LIFE, by="this center", now=self._wall()
        )
        self.authority.keep(file.name, asked.key + chain)

    async def run(self) -> None:
        """Renews what is ours and follows what operators change, until cancelled."""
        if self.authority is None:
            return
        while True:
            await asyncio.sleep(_LOOK)
            self._look()
            await self._renewed_in_time()

    async def _renewed_in_time(self) -> None:
        """A disk that takes nothing ends no center: the certificate that is there serves on, and each look tries again."""
        assert self.authority is not None
        file = self.authority.directory / _PEM
        if self._is_good(file):
            return
        try:
            await asyncio.to_thread(self._renew_own, file)
        except (OSError, ConfigError) as error:
            self._complain(str(error))

    def _look(self) -> None:
        """What operators changed; where it cannot be read, what was read before stays in force."""
        try:
            self._follow()
        except ConfigError as error:
            self._complain(str(error))

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            log.warning("authority_unusable", extra={"reason": reason})
        self._complaint = reason

    def _follow(self) -> None:
        if self.authority is None:
            return
        members = self.authority.members()
        self._shut = frozenset((member.role, member.name) for member in members if member.is_out)
        for who, limit in self._stays:
            if who is not None and (who.role, who.name) in self._shut and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
        agents = [member for member in members if member.role == "agent"]
        out = frozenset(member.name for member in agents if member.is_out)
        names = frozenset(member.name for member in agents if not member.is_out)
        if (out, names) != (self._out, self._names):
            new = out - self._out
            self._out, self._names = out, names
            self.changed(new)


def _now() -> datetime:
    return datetime.now(UTC)
