"""Who asks, and whether that is enough: tokens of programs, sessions of people, and what each request needs."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from reachline.center.api.refused import RefusedError
from reachline.center.owner import LOCAL, Principal
from reachline.model import Seconds
from reachline.store.access import Access, Role, Who, may

__all__ = ["COOKIE", "OPEN", "SESSION", "TOLD", "Entry", "needed", "principal_of"]

COOKIE: Final = "reachline_session"
SESSION: Final[Seconds] = 12 * 3_600.0
"""A shift. Whoever works longer logs in again."""
OPEN: Final = frozenset(
    {
        "/healthz",
        "/readyz",
        "/login.html",
        "/login.js",
        "/style.css",
        "/icon.svg",
        "/api/v1/session",
        "/api/v1/ca",
        "/api/v1/join",
    }
)
"""What somebody needs to get in, and health checks, which have no token and learn nothing but yes or no."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
TOLD: Final = frozenset({"/api/v1/outcomes", "/api/v1/heartbeats"})
"""What programs tell."""
_SHOWN_TO_ADMINS: Final = frozenset({"/api/v1/audit"})
_TRIES, _OF_ALL, _SPAN = 5, 50, 60.0
"""Failed log-ins a minute, of one name and of all: people mistype twice, and a list of leaked passwords would take years."""
_SESSIONS: Final = 1_000
"""At once; the oldest goes."""


class _Session(NamedTuple):
    name: str
    begun: float
    """Unix seconds."""


def needed(method: str, path: str) -> Role:
    """The role that a request needs; a WebSocket's method is GET."""
    if path in _SHOWN_TO_ADMINS:
        return "admin"
    if method in _READING:
        return "viewer"
    return "client" if path in TOLD else "operator"


def principal_of(request: Request) -> Principal:
    """Who asks, for the record."""
    return str(getattr(request.state, "principal", "") or LOCAL)


class Entry:
    """Sessions live in memory: a restart of the center ends them. Written by its loop."""

    def __init__(self, access: Access, *, wall: Callable[[], float] = time.time) -> None:
        self._access, self._wall = access, wall
        self._sessions: dict[str, _Session] = {}
        self._failed: dict[str, deque[float]] = {}
        self._hashing = asyncio.Semaphore(2)
        """A password costs 64 MiB and up to a quarter of a second: no more than two at once."""

    def who(self, headers: Headers) -> Who | None:
        """Who asks, by token or by session."""
        kind, _, shown = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._access.bearer(shown.strip(), datetime.fromtimestamp(self._wall(), UTC))
        return self._by_session(_cookie(headers))

    def refused(self, scope: Scope, headers: Headers) -> tuple[int, str, str] | None:
        """Status, code and message of a refusal; None lets it pass, under `scope["state"]["principal"]`."""
        path = scope["path"]
        method = scope.get("method", "GET")
        who = self.who(headers)
        if who is not None:
            scope.setdefault("state", {})["principal"] = who.name
        if path in OPEN:
            return None
        if who is None:
            return 401, "unauthorized", "log in, or show a token: Authorization: Bearer …"
        role = needed(method, path)
        if not may(who.role, role):
            return 403, "not_allowed", f"{who.name} is {who.role}; this takes {role}"
        return None

    async def log_in(self, name: str, password: str) -> tuple[str, Who]:
        """A session's secret. RefusedError: 401 where name or password are wrong, 429 where too many were."""
        self._check_tries(name)
        # Before the password is looked at: one that is changed meanwhile ends this session too.
        begun = self._wall()
        async with self._hashing:
            self._check_tries(name)  # those who waited with this one may have failed
            who = await asyncio.to_thread(self._access.person, name, password)
        if who is None:
            for key in (name, ""):
                self._failed.setdefault(key, deque(maxlen=_OF_ALL)).append(self._wall())
            raise RefusedError(401, "wrong_password", "name or password are wrong")
        self._failed.pop(name, None)
        secret = secrets.token_urlsafe(32)
        while len(self._sessions) >= _SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_kept(secret)] = _Session(name, begun)
        return secret, who

    def log_out(self, headers: Headers) -> None:
        """Ends the session that is shown."""
        self._sessions.pop(_kept(_cookie(headers)), None)

    def _by_session(self, secret: str) -> Who | None:
        """Its person as the file knows it now: who was removed, or has another password since, is out."""
        session = self._sessions.get(_kept(secret)) if secret else None
        if session is None:
            return None
        person = self._access.people().get(session.name)
        if person is None or person.since > session.begun or self._wall() >= session.begun + SESSION:
            del self._sessions[_kept(secret)]
            return None
        return Who(session.name, person.role)

    def _check_tries(self, name: str) -> None:
        since = self._wall() - _SPAN
        for key in [key for key, times in self._failed.items() if times[-1] <= since]:
            del self._failed[key]
        for key, most in ((name, _TRIES), ("", _OF_ALL)):
            if sum(at > since for at in self._failed.get(key, ())) >= most:
                raise RefusedError(429, "too_many", "too many failed attempts", "wait a minute")


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _kept(secret: str) -> str:
    """What memory holds of a session: a dump of it lets nobody in."""
    return hashlib.sha256(secret.encode()).hexdigest()
