"""Connections of one line as httpx and httpx2 keep them, without their transport between: the same pool, asked by a URL that was made once.

A transport makes that URL anew for every call, and looks out for exceptions four times on its way: a twentieth of a call. `library` is the one
or the other as a module, so pools, requests and answers are `Any` here.
"""

from __future__ import annotations

import importlib
import ssl
from functools import lru_cache
from typing import Any, Final

__all__ = ["AwaitedDirect", "Direct", "core_url", "named"]

_CORES: Final = {"httpx": "httpcore", "httpx2": "httpcore2"}
_LIMITS: Final[dict[str, Any]] = {"max_connections": 100, "max_keepalive_connections": 20, "keepalive_expiry": 5.0}
"""The libraries' own of a pool: connections, of them idle, and seconds that one stays so."""
_TARGET: Final = "target"


class Direct:
    """For lines that are reached without a proxy. Bodies come as the pool makes them: who reads one calls `named` with what it raises."""

    def __init__(self, library: Any, tls: ssl.SSLContext) -> None:
        self._library: Final = library
        self._pool: Final[Any] = _core(library).ConnectionPool(ssl_context=tls, **_LIMITS)

    def ask(self, request: Any, url: Any, headers: list[tuple[bytes, bytes]], extensions: Any) -> Any:
        """The pool's answer to the caller's request, at this `core_url`; what the pool raises is raised as the library's own."""
        asked = _asked(self._library, request, url, headers, extensions)
        try:
            return self._pool.handle_request(asked)
        except Exception as error:
            if (own := named(self._library, error)) is None:
                raise
            raise own from error

    def close(self) -> None:
        """All connections."""
        self._pool.close()


class AwaitedDirect:
    """`Direct`, awaited under asyncio or trio."""

    def __init__(self, library: Any, tls: ssl.SSLContext) -> None:
        self._library: Final = library
        self._pool: Final[Any] = _core(library).AsyncConnectionPool(ssl_context=tls, **_LIMITS)

    async def ask(self, request: Any, url: Any, headers: list[tuple[bytes, bytes]], extensions: Any) -> Any:
        """As `Direct.ask`."""
        asked = _asked(self._library, request, url, headers, extensions)
        try:
            return await self._pool.handle_async_request(asked)
        except Exception as error:
            if (own := named(self._library, error)) is None:
                raise
            raise own from error

    async def aclose(self) -> None:
        """All connections."""
        await self._pool.aclose()


def core_url(library: Any, url: Any) -> Any:
    """A URL of the library's as its pool takes one."""
    return _core(library).URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _asked(library: Any, request: Any, url: Any, headers: list[tuple[bytes, bytes]], extensions: Any) -> Any:
    """The pool's request."""
    if _TARGET in extensions:
        # The caller's own, e.g. `*`, as both libraries take one.
        url = type(url)(scheme=url.scheme, host=url.host, port=url.port, target=extensions[_TARGET])
    # All of it is as the pool wants it already: to have that looked at again, header by header, takes longer than a pick.
    kind = _core(library).Request
    asked = kind.__new__(kind)
    asked.method, asked.url, asked.headers = request.method.encode("ascii"), url, headers
    asked.stream, asked.extensions = request.stream, extensions
    return asked


@lru_cache(maxsize=2)
def _core(library: Any) -> Any:
    return importlib.import_module(_CORES[library.__name__])


def named(library: Any, error: Exception) -> Exception | None:
    """The library's exception of the same name, the most telling first; None: the error is none of the pool's."""
    for kind in type(error).__mro__:
        if kind.__module__.startswith("httpcore") and hasattr(library, kind.__name__):
            found: Exception = getattr(library, kind.__name__)(str(error))
            return found
    return None
