"""Who may ask a center for what: people with passwords, programs with tokens. One file, of which hashes alone can be read.

Read and written by the center and by `reachline access` at the same time: each change is made under a lock and put in place whole.
Passwords are hashed by argon2id, for people choose them; tokens by SHA-256, for 128 bits of chance cannot be guessed.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from reachline.errors import ConfigError, Problem
from reachline.store.whole import appending, put

__all__ = ["ROLES", "Access", "Bearer", "Person", "Role", "Who", "may"]

log = logging.getLogger("reachline.store.access")

Role = Literal["viewer", "client", "operator", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""Each may what those before it may: look; tell of calls, as SDKs do; order, drill, drain; see who did what."""
NAME: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._@-]{0,61}[a-zA-Z0-9])?")
_SHORTEST: Final = 12
"""Characters of a password: below it, a list of leaked ones is tried in an afternoon."""
_LONGEST: Final = 1_000
_PREFIX: Final = "rlt1"
"""Of a token, so that a scanner for leaked secrets knows one."""
_ID, _SECRET = 4, 16
"""Bytes of a token's parts."""
_HASHER: Final = PasswordHasher()
"""RFC 9106's second choice: 64 MiB, three passes; 50 to 250 ms of a core, by machine."""
_NOBODY: Final = "$argon2id$v=19$m=65536,t=3,p=4$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
"""What the password of a person that does not exist is held against, so that an answer takes as long as for one that does."""


class Who(NamedTuple):
    """Somebody who asks."""

    name: str
    role: Role


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody with a password."""

    role: Role
    hash: str
    since: float
    """When the password was set, unix seconds: sessions from before are over."""


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """A token's row."""

    name: str
    role: Role
    digest: str
    until: float
    """Unix seconds."""
    by: str
    """Who gave it out."""


class _State(msgspec.Struct, kw_only=True):
    people: dict[str, Person] = {}
    tokens: dict[str, Bearer] = {}


def may(role: Role, needed: Role) -> bool:
    """Whether a role is enough."""
    return ROLES.index(role) >= ROLES.index(needed)


class Access:
    """One file. Any number of processes may have it open; it is read anew when it changed."""

    def __init__(self, path: Path) -> None:
        """ConfigError where the file is damaged. One that is not there lets nobody in."""
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._state = _State()
        self._fresh()

    def people(self) -> dict[str, Person]:
        """By name."""
        return dict(sorted(self._fresh().people.items()))

    def tokens(self) -> dict[str, Bearer]:
        """By id."""
        return dict(self._fresh().tokens)

    def person(self, name: str, password: str) -> Who | None:
        """Who logs in so; None where nobody does. Takes as long, whoever is named."""
        known = self._fresh().people.get(name)
        try:
            _HASHER.verify(known.hash if known else _NOBODY, password[:_LONGEST])
        except (VerificationError, InvalidHashError):
            return None
        return Who(name, known.role) if known else None

    def bearer(self, text: str, now: datetime) -> Who | None:
        """Who shows this token; None where it is nobody's, or over."""
        prefix, _, rest = text.partition("-")
        token_id, _, secret = rest.partition("-")
        known = self._fresh().tokens.get(token_id)
        if prefix != _PREFIX or known is None or not hmac.compare_digest(known.digest, _digest(secret)):
            return None
        return Who(known.name, known.role) if now.timestamp() < known.until else None

    def set_person(self, name: str, role: Role, password: str, *, now: datetime) -> None:
        """A new person, or another password or role. ConfigError for a name or password that will not do."""
        _check(name, "a person")
        if not _SHORTEST <= len(password) <= _LONGEST:
            rule = f"a password has {_SHORTEST} to {_LONGEST} characters"
            raise ConfigError(Problem(place="password", path="", value=f"{len(password)} characters", rule=rule))
        with self._changed() as state:
            state.people[name] = Person(role=role, hash=_HASHER.hash(password), since=now.timestamp())

    def new_token(self, name: str, role: Role, *, life: timedelta, by: str, now: datetime) -> str:
        """A token's text: nobody can read it again. Those that are over are forgotten."""
        _check(name, "a token")
        token_id, secret = secrets.token_hex(_ID), secrets.token_hex(_SECRET)
        made = Bearer(name=name, role=role, digest=_digest(secret), until=(now + life).timestamp(), by=by)
        with self._changed() as state:
            state.tokens = {kept: one for kept, one in state.tokens.items() if now.timestamp() < one.until}
            state.tokens[token_id] = made
        return f"{_PREFIX}-{token_id}-{secret}"

    def remove(self, name: str) -> int:
        """A person and all tokens of that name or id; how many there were."""
        with self._changed() as state:
            gone = [token_id for token_id, one in state.tokens.items() if name in (token_id, one.name)]
            for token_id in gone:
                del state.tokens[token_id]
            return len(gone) + (state.people.pop(name, None) is not None)

    # -- ours ---------------------------------------------------------------------------------------------------------

    def _fresh(self) -> _State:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._stamp, self._state = None, _State()
            return self._state
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp != self._stamp:
            try:
                self._state = self._read()
            except ConfigError as error:
                if self._stamp is None:
                    raise
                log.warning("access_refused", extra={"reason": str(error)})  # whoever was let in still is
            self._stamp = stamp
        return self._state

    def _read(self) -> _State:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_State)
        except FileNotFoundError:
            return _State()
        except OSError as error:
            rule = f"cannot be read: {error.strerror}"
            raise ConfigError(Problem(place=str(self._path), path="", value="", rule=rule)) from error
        except msgspec.MsgspecError as error:
            raise ConfigError(Problem(place=str(self._path), path="", value="", rule=f"is damaged: {error}")) from error

    @contextmanager
    def _changed(self) -> Iterator[_State]:
        """The state, put in place whole where the block ends well; nobody else changes it meanwhile."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        like = self._path if self._path.exists() else self._path.parent
        with appending(self._path.with_name(f"{self._path.name}.lock"), like=like) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self._read()
            yield state
            put(self._path, msgspec.json.encode(state), mode=0o600, like=like)


def _check(name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        rule, hint = f"is no name for {what}", "letters, digits, dots, dashes, @, 63 at most"
        raise ConfigError(Problem(place="name", path="", value=repr(name), rule=rule, hint=hint))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
