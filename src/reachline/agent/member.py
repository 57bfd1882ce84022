"""An agent as a member: it joins by a token, keeps its key and certificate in a directory of its own, and renews them in time.

member.pem      its key and its chain, in one file, so that no reader finds one without the other
ca.pem          whom it trusts to be a center
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from reachline.errors import ConfigError, Problem, RemoteProtocolError
from reachline.model import Seconds
from reachline.net.rpc import attach, client_credentials
from reachline.store.authority import parsed
from reachline.store.whole import put
from reachline.wire.certificates import RENEW, Identity, certified, fingerprint, leading, make_request, renewed_at

__all__ = ["Member", "join", "member_in", "renewing"]

log = logging.getLogger("reachline.agent.member")

_PATIENCE: Final[Seconds] = 10.0
"""For a center to answer: it signs in a millisecond, and may be asked by a hundred agents at once."""
_MOST: Final = 256 << 10
"""Bytes of an answer; a chain has two thousand."""
_LOOK: Final[Seconds] = 60.0
"""Between two looks at the time, for a machine that slept; and between two tries to renew: a third of a day has 480."""


class Member(NamedTuple):
    """Where its files are."""

    directory: Path

    @property
    def certificate(self) -> Path:
        """Key and chain."""
        return self.directory / "member.pem"

    @property
    def ca(self) -> Path:
        """Whom it trusts."""
        return self.directory / "ca.pem"

    def keep(self, key: bytes, chain: bytes, ca: bytes | None = None) -> None:
        """Both files, each put in place whole; the key is for its owner alone."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if ca is not None:
            put(self.ca, ca, mode=0o644)
        put(self.certificate, key + chain, mode=0o600)


def member_in(directory: Path, name: str, *, now: datetime) -> Member | None:
    """Who joined before and whose certificate still holds; ConfigError where it is somebody else's."""
    member = Member(directory)
    try:
        said = certified(member.certificate.read_bytes())
    except (FileNotFoundError, RemoteProtocolError):
        return None
    if said.identity and said.identity.name != name:
        rule, hint = f"belongs to {said.identity.name}, not to {name}", "one directory for each agent: --state DIR"
        raise ConfigError(Problem(place=str(member.certificate), path="", value="", rule=rule, hint=hint))
    return member if now < said.ends else None


def join(at: str, token: str, name: str, directory: Path) -> Identity:
    """Become a member by a token, at the center's URL. ConfigError says why not; nothing is kept then.

    Whom to trust is told by the token: it holds the fingerprint of the authority that the center must show.
    """
    host, port = _address(at)
    wanted = parsed(token).fingerprint
    told = _asked(host, port, "/api/v1/ca", context=_unverified()).encode()
    try:
        # The one that the token vouches for, alone: an impostor could add its own behind it.
        ca = leading(told)
        shown = fingerprint(ca)
    except ValueError as error:
        raise _refused(at, "does not say who its authority is") from error
    if not shown.startswith(wanted):
        rule = "is not the center of this token: its authority has another fingerprint"
        raise _refused(at, rule, "take the token from the authority that this center uses")
    trusting = ssl.create_default_context(cadata=ca.decode())
    asked = make_request(name)
    body = {"token": token.strip(), "name": name, "request": asked.shown.decode()}
    answer = _asked(host, port, "/api/v1/join", context=trusting, body=body)
    try:
        chain = str(json.loads(answer)["certificate"]).encode()
        identity = certified(chain).identity
    except (ValueError, KeyError, TypeError, RemoteProtocolError) as error:
        raise _refused(at, "answers no certificate") from error
    if identity is None:
        raise _refused(at, "certified nobody")
    Member(directory).keep(asked.key, chain, ca)
    return identity


async def renewing(
    member: Member,
    centers: tuple[str, ...],
    *,
    rng: Random,
    sleep: Callable[[Seconds], Awaitable[object]] = asyncio.sleep,
    wall: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Renews the certificate at two thirds of its life, until cancelled. What fails is tried again each minute: also a disk that
    takes or gives nothing ends no agent.
    """
    complaint, serial, chance = "", "", 0.0
    while True:
        try:
            said = certified(await asyncio.to_thread(member.certificate.read_bytes))
            if said.serial != serial:
                # A part by chance: agents that joined together should not come back together.
                serial, chance = said.serial, rng.uniform(0.0, 0.05)
            left = (renewed_at(said) + (said.ends - said.begins) * chance - wall()).total_seconds()
            if left > 0:
                await sleep(min(left, _LOOK))
                continue
            reason = await _renewed_by_one(member, centers)
        except (OSError, RemoteProtocolError) as error:
            reason = str(error)
        if reason and reason != complaint:
            log.warning("certificate_not_renewed", extra={"reason": reason})
        complaint = reason
        if reason:
            await sleep(_LOOK)


async def _renewed_by_one(member: Member, centers: tuple[str, ...]) -> str:
    """Why none of them renewed it (the first one's reason), or empty text."""
    first = ""
    for center in centers:
        if not (reason := await _renewed(member, center)):
            return ""
        first = first or reason
    return first


async def _renewed(member: Member, center: str) -> str:
    """Why not, or empty text where it was."""
    name = certified(member.certificate.read_bytes()).identity
    asked = make_request(name.name if name else "")
    try:
        own = str(member.certificate)
        credentials = client_credentials(ca=str(member.ca), certificate=own, key=own)
        stream = await attach(center, timeout=_PATIENCE, credentials=credentials, method=RENEW)
        try:
            await stream.send(asked.shown, _PATIENCE)
            async with asyncio.timeout(_PATIENCE):
                chain = await anext(stream.frames(), b"")
        finally:
            await stream.close()
        until = certified(chain).ends
    except (ConnectionError, TimeoutError, RemoteProtocolError, OSError) as error:
        return str(error) or "it does not answer in time"
    member.keep(asked.key, chain)
    log.info("certificate_renewed", extra={"until": until.isoformat()})
    return ""


def _address(at: str) -> tuple[str, int]:
    parts = urlsplit(at)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme != "https" or not host:
        rule, hint = "must be the center's https URL", "https://center.example:7680"
        raise ConfigError(Problem(place="--join-at", path="", value=repr(at), rule=rule, hint=hint))
    return host, port or 443


def _unverified() -> ssl.SSLContext:
    """For the authority's certificate alone, which is then held against the token."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _asked(host: str, port: int, path: str, *, context: ssl.SSLContext, body: object = None) -> str:
    connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)
    at = f"https://{host}:{port}"
    try:
        headers = {"content-type": "application/json"} if body else {}
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        text = answer.read(_MOST).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise _refused(at, f"cannot be reached ({error})") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise _refused(at, f"does not let this agent in: {_reason(text) or answer.reason}")
    return text


def _reason(text: str) -> str:
    try:
        document: Any = json.loads(text)
        return str(document["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _refused(at: str, rule: str, hint: str = "") -> ConfigError:
    return ConfigError(Problem(place=at, path="", value="", rule=rule, hint=hint))
