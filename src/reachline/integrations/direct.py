"""Connections of one line as httpx and httpx2 keep them, without their transport between: the same pool, asked by a URL that was made once.

A transport makes that URL anew for every call, and looks out for exceptions four times on its way: a twentieth of a call. `library` is the one
or the other as a module, so pools, requests and answers are `Any` here.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

__all__ = ["Direct", "core_url", "note"]

_CORES: Final = {"httpx": "httpcore", "httpx2": "httpcore2"}
_CONNECTIONS_MOST, _IDLE_MOST, _IDLE_FOR = 100, 20, 5.0
"""The libraries' own limits of a pool: connections, of them idle, and seconds that one stays so."""
_NAME: Final = "_reachline_core_url"


class Direct:
    """What is asked of a transport: `handle_request` and `close`. For lines that are reached without a proxy."""

    def __init__(self, library: Any, tls: ssl.SSLContext) -> None:
        self._library: Final = library
        self._core: Final = importlib.import_module(_CORES[library.__name__])
        self._pool: Final[Any] = self._core.ConnectionPool(
            ssl_context=tls,
            max_connections=_CONNECTIONS_MOST,
            max_keepalive_connections=_IDLE_MOST,
            keepalive_expiry=_IDLE_FOR,
        )

    def handle_request(self, request: Any) -> Any:
        """The answer; what the pool raises is raised as the library's own."""
        asked = self._core.Request(
            method=request.method,
            url=vars(request).get(_NAME) or core_url(self._library, request.url),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            found = self._pool.handle_request(asked)
        except Exception as error:
            if (own := _named(self._library, error)) is None:
                raise
            raise own from error
        return self._library.Response(
            status_code=found.status,
            headers=found.headers,
            stream=_body_of(self._library)(found.stream),
            extensions=found.extensions,
        )

    def close(self) -> None:
        self._pool.close()


def core_url(library: Any, url: Any) -> Any:
    """A URL of the library's as its pool takes one."""
    core = importlib.import_module(_CORES[library.__name__])
    return core.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def note(request: Any, url: Any) -> None:
    """Note on a request of ours what `Direct` asks its pool by; a transport of the library's own does not look at it."""
    vars(request)[_NAME] = url


@lru_cache(maxsize=2)
def _body_of(library: Any) -> type[Any]:
    class Body(library.SyncByteStream):  # type: ignore[misc]  # of whichever library
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            try:
                yield from self._stream
            except Exception as error:
                if (own := _named(library, error)) is None:
                    raise
                raise own from error

        def close(self) -> None:
            self._stream.close()

    return Body


def _named(library: Any, error: Exception) -> Exception | None:
    """The library's exception of the same name, the most telling first; None: the error is none of the pool's."""
    for kind in type(error).__mro__:
        if kind.__module__.startswith("httpcore") and hasattr(library, kind.__name__):
            found: Exception = getattr(library, kind.__name__)(str(error))
            return found
    return None
