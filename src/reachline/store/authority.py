"""The small authority on disk: its key, whom it let in, tokens by which others may join, and a line for each certificate it gave.

One directory, read and written by the center and by `reachline ca` at the same time: each change is made under a lock and put in
place whole. The key's file is for its owner alone; of tokens only hashes are kept. Clocks are the caller's.

    ca.pem  ca.key          the authority
    state.json              tokens, members, who was shut out
    issued.jsonl            each certificate: when, for whom, until when, on whose word
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from reachline.errors import ConfigError, Problem, RemoteProtocolError
from reachline.store.whole import appending, put
from reachline.wire import certificates
from reachline.wire.certificates import Identity, Pair, Role

__all__ = [
    "AGENT_LIFE",
    "AUTHORITY_LIFE",
    "CENTER_LIFE",
    "JOIN_LIFE",
    "Authority",
    "Member",
    "Parsed",
    "Token",
    "parsed",
]

AUTHORITY_LIFE: Final = timedelta(days=3_650)
"""Ten years: changing an authority means telling everybody, and its key stays on one machine."""
AGENT_LIFE: Final = timedelta(hours=24)
"""An agent renews at two thirds, so a center may be away for eight hours. Who stole its key may renew as well, until it is shut out."""
CENTER_LIFE: Final = timedelta(days=90)
"""Given by hand, where no center renews it by itself."""
JOIN_LIFE: Final = timedelta(hours=1)
"""To copy a token to a machine and start an agent there."""
_CERTIFICATE: Final = "ca.pem"
_KEY: Final = "ca.key"
_STATE: Final = "state.json"
_ISSUED: Final = "issued.jsonl"
_LOCK: Final = "lock"
_PREFIX: Final = "rlj1"
"""Of a join token, so that a scanner for leaked secrets knows one."""
_ID, _SECRET, _PRINT = 4, 16, 16
"""Bytes of a token's parts. 128 bits cannot be guessed, so a plain hash of them may lie on disk."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """Who may join by it, until when, how often."""

    digest: str
    role: Role
    name: str
    """Empty: whoever joins says its name, as long as nobody has it."""
    until: float
    """Unix seconds."""
    uses: int
    """Left."""
    by: str
    """Who gave it out."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who was certified."""

    role: Role
    name: str
    joined: float
    until: float
    """When its newest certificate ends, unix seconds."""
    serial: str
    by: str
    """The token it joined by, or who issued it by hand."""
    is_out: bool = False
    """It was shut out: nobody renews it, no center lets it in."""


class _State(msgspec.Struct, kw_only=True):
    tokens: dict[str, Token] = {}
    members: dict[str, Member] = {}


class Parsed(NamedTuple):
    """What a join token's text says."""

    id: str
    secret: str
    fingerprint: str
    """The first 32 digits of its authority's."""


def parsed(text: str) -> Parsed:
    """A token's parts; ConfigError where it is none."""
    prefix, *parts = text.strip().split("-")
    sizes = [2 * _ID, 2 * _SECRET, 2 * _PRINT]
    if prefix != _PREFIX or [len(part) for part in parts] != sizes or not all(map(_is_hex, parts)):
        rule, hint = "is not a token to join by", "take it whole from `reachline ca token`"
        raise ConfigError(Problem(place="token", path="", value=f"{len(text)} characters", rule=rule, hint=hint))
    return Parsed(*parts)


def _is_hex(text: str) -> bool:
    return all(each in "0123456789abcdef" for each in text)


class Authority:
    """One directory. Any number of processes may have it open."""

    def __init__(self, directory: Path, signer: Pair, domain: str) -> None:
        self.directory, self._signer, self.domain = directory, signer, domain

    @classmethod
    def create(cls, directory: Path, domain: str, *, now: datetime, life: timedelta = AUTHORITY_LIFE) -> Authority:
        """A new one; ConfigError where there is one already: its key is never written over."""
        if not certificates.DOMAIN.fullmatch(domain):
            rule, hint = "is no trust domain", "lower-case letters, digits, dots, dashes: prod.example"
            raise ConfigError(Problem(place="--domain", path="", value=repr(domain), rule=rule, hint=hint))
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (directory / _KEY).exists() or (directory / _CERTIFICATE).exists():
            rule, hint = "holds an authority already", "name another directory; a key is never written over"
            raise ConfigError(Problem(place=str(directory), path="", value="", rule=rule, hint=hint))
        signer = certificates.authority(domain, now=now, life=life)
        put(directory / _KEY, signer.key, mode=0o600)
        put(directory / _CERTIFICATE, signer.shown, mode=0o644)
        return cls(directory, signer, domain)

    @classmethod
    def open(cls, directory: Path) -> Authority:
        """An existing one; ConfigError where there is none, or its key may be read by others."""
        key, certificate = directory / _KEY, directory / _CERTIFICATE
        try:
            signer = Pair(key.read_bytes(), certificate.read_bytes())
            domain = certificates.domain_of(signer)
        except FileNotFoundError as error:
            rule, hint = "holds no authority", "make one with `reachline ca init`"
            raise ConfigError(Problem(place=str(directory), path="", value="", rule=rule, hint=hint)) from error
        except (OSError, ValueError, RemoteProtocolError) as error:
            raise ConfigError(
                Problem(place=str(directory), path="", value="", rule=f"cannot be used: {error}")
            ) from error
        if stat.S_IMODE(key.stat().st_mode) & 0o077:
            rule, hint = "may be read by others", f"chmod 600 {key}"
            raise ConfigError(Problem(place=str(key), path="", value="", rule=rule, hint=hint))
        return cls(directory, signer, domain)

    @property
    def certificate(self) -> bytes:
        """What others must trust, PEM."""
        return self._signer.shown

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate."""
        return certificates.fingerprint(self._signer.shown)

    def members(self) -> list[Member]:
        """All who were certified, by role and name."""
        return [member for _, member in sorted(self._read().members.items())]

    def tokens(self, now: datetime) -> list[tuple[str, Token]]:
        """Those by which somebody may still join."""
        return [(name, token) for name, token in self._read().tokens.items() if _is_alive(token, now)]

    def token(
        self, *, role: Role, name: str = "", uses: int = 1, life: timedelta = JOIN_LIFE, by: str, now: datetime
    ) -> str:
        """A new token, as text: nobody can read it again. With a name it lets in that one alone."""
        if name:
            self._check(role, name)
        token_id, secret = secrets.token_hex(_ID), secrets.token_hex(_SECRET)
        made = Token(digest=_digest(secret), role=role, name=name, until=(now + life).timestamp(), uses=uses, by=by)
        with self._changed() as state:
            state.tokens = {kept: token for kept, token in state.tokens.items() if _is_alive(token, now)}
            state.tokens[token_id] = made
        return "-".join((_PREFIX, token_id, secret, self.fingerprint[: 2 * _PRINT]))

    def redeem(self, text: str, request: bytes, *, name: str, now: datetime, life: timedelta = AGENT_LIFE) -> bytes:
        """The chain for who shows a token, which is used up by it.

        PermissionError where the token is unknown, over, used up, for somebody else, or for a name that somebody has;
        RemoteProtocolError where the request is none. Then it is not used up.
        """
        try:
            asked = parsed(text)
        except ConfigError as error:
            raise PermissionError("that is not a token to join by") from error
        with self._changed() as state:
            token = state.tokens.get(asked.id)
            if token is None or not hmac.compare_digest(token.digest, _digest(asked.secret)):
                raise PermissionError("nobody knows this token: it was never given out here, or is used up")
            if not _is_alive(token, now):
                raise PermissionError("this token is over: ask for a new one")
            identity = self._named(token, name, state)
            chain = certificates.issued(self._signer, request, identity, now=now, life=life)
            if token.uses > 1:
                state.tokens[asked.id] = msgspec.structs.replace(token, uses=token.uses - 1)
            else:
                del state.tokens[asked.id]
            self._note(state, identity, chain, by=f"token {asked.id} of {token.by}", now=now)
        return chain

    def renew(self, identity: Identity, request: bytes, *, now: datetime, life: timedelta = AGENT_LIFE) -> bytes:
        """Another chain for somebody who has one. PermissionError where it was shut out, or is nobody of ours."""
        with self._changed() as state:
            known = state.members.get(_name(identity))
            if identity.domain != self.domain or known is None:
                raise PermissionError(f"{identity.uri} is not a member here")
            if known.is_out:
                raise PermissionError(f"{identity.role} {identity.name} was shut out")
            chain = certificates.issued(self._signer, request, identity, now=now, life=life)
            self._note(state, identity, chain, by="renewal", now=now)
        return chain

    def issue(
        self,
        role: Role,
        name: str,
        request: bytes,
        *,
        hosts: Sequence[str] = (),
        life: timedelta,
        by: str,
        now: datetime,
    ) -> bytes:
        """A chain on an operator's word. ConfigError for a name that cannot be."""
        self._check(role, name)
        identity = Identity(self.domain, role, name)
        with self._changed() as state:
            chain = certificates.issued(self._signer, request, identity, hosts=hosts, now=now, life=life)
            self._note(state, identity, chain, by=by, now=now)
        return chain

    def keep(self, name: str, data: bytes) -> None:
        """A file of the center's own in the directory, for its owner alone, put in place whole."""
        put(self.directory / name, data, mode=0o600, like=self.directory)

    def shut_out(self, role: Role, name: str, *, is_out: bool = True) -> Member:
        """From now on no center lets it in (or does again); ConfigError where nobody is called that."""
        with self._changed() as state:
            key = f"{role}/{name}"
            if (known := state.members.get(key)) is None:
                rule, hint = f"no {role} is called that", "`reachline ca list` names all"
                raise ConfigError(Problem(place=str(self.directory), path="", value=repr(name), rule=rule, hint=hint))
            changed = state.members[key] = msgspec.structs.replace(known, is_out=is_out)
        return changed

    # -- ours ---------------------------------------------------------------------------------------------------------

    def _named(self, token: Token, name: str, state: _State) -> Identity:
        """Whom the token lets in under this name."""
        if token.name and name and name != token.name:
            raise PermissionError(f"this token lets in {token.name}, not {name}")
        name = token.name or name
        if not certificates.NAME.fullmatch(name):
            raise PermissionError("who joins must say a name: letters, digits, dots, dashes, 63 at most")
        identity = Identity(self.domain, token.role, name)
        known = state.members.get(_name(identity))
        if known is not None and known.is_out:
            raise PermissionError(f"{identity.role} {name} was shut out")
        if known is not None and not token.name:
            raise PermissionError(f"{name} is a member already; a token made for that name lets it in again")
        return identity

    def _check(self, role: Role, name: str) -> None:
        if not certificates.NAME.fullmatch(name):
            rule = f"is no name for a member ({role})"
            hint = "letters, digits, dots, dashes, 63 at most"
            raise ConfigError(Problem(place="name", path="", value=repr(name), rule=rule, hint=hint))

    def _note(self, state: _State, identity: Identity, chain: bytes, *, by: str, now: datetime) -> None:
        said = certificates.certified(chain)
        old = state.members.get(_name(identity))
        state.members[_name(identity)] = Member(
            role=identity.role,
            name=identity.name,
            joined=old.joined if old else now.timestamp(),
            until=said.ends.timestamp(),
            serial=said.serial,
            by=old.by if old and by == "renewal" else by,
            is_out=old.is_out if old else False,
        )
        line = {
            "at": now.isoformat(),
            "identity": identity.uri,
            "serial": said.serial,
            "until": said.ends.isoformat(),
            "by": by,
        }
        with appending(self.directory / _ISSUED, like=self.directory) as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def _read(self) -> _State:
        try:
            return msgspec.json.decode((self.directory / _STATE).read_bytes(), type=_State)
        except FileNotFoundError:
            return _State()
        except OSError as error:
            place = str(self.directory / _STATE)
            raise ConfigError(
                Problem(place=place, path="", value="", rule=f"cannot be read: {error.strerror}")
            ) from error
        except msgspec.MsgspecError as error:
            place = str(self.directory / _STATE)
            raise ConfigError(Problem(place=place, path="", value="", rule=f"is damaged: {error}")) from error

    @contextmanager
    def _changed(self) -> Iterator[_State]:
        """The state, put in place whole where the block ends well; nobody else changes it meanwhile."""
        with appending(self.directory / _LOCK, like=self.directory) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self._read()
            yield state
            put(self.directory / _STATE, msgspec.json.encode(state), mode=0o600, like=self.directory)


def _name(identity: Identity) -> str:
    return f"{identity.role}/{identity.name}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _is_alive(token: Token, now: datetime) -> bool:
    return token.uses > 0 and now.timestamp() < token.until
