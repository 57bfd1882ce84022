"""The admin's door, with the paths that Envoy's has: what is there, how it is, and a few switches."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Final
from urllib.parse import parse_qsl

from reachline import __version__
from reachline.doors.envoy.chain import Chain, FilterChain, HttpManager, Listener
from reachline.doors.envoy.routes import RouteConfig
from reachline.members import Address
from reachline.proxy import shown
from reachline.proxy.arrival import Peer
from reachline.proxy.clusters import Clusters
from reachline.proxy.doorway import Doorway, Handling
from reachline.proxy.downstream import Downstream
from reachline.proxy.flags import LocalReply
from reachline.proxy.front import Front
from reachline.proxy.listeners import Listeners
from reachline.proxy.message import Request
from reachline.proxy.way import Way

__all__ = ["Admin"]

_TEXT: Final = b"text/plain; charset=UTF-8"
_JSON: Final = b"application/json"
_ASIDE: Final = ((b"cache-control", b"no-cache, max-age=0"), (b"x-content-type-options", b"nosniff"))
_POSTS: Final = frozenset(
    {"/healthcheck/fail", "/healthcheck/ok", "/quitquitquit", "/drain_listeners", "/reset_counters", "/reopen_logs"}
)
Query = Mapping[str, str]


class Admin:
    """Written by whoever asks it. ConfigError where its address cannot be had."""

    def __init__(
        self,
        chain: Chain,
        clusters: Clusters,
        listeners: Listeners,
        *,
        leave: Callable[[], None],
        reopen: Callable[[], None],
        rng: Random,
    ) -> None:
        assert chain.admin is not None
        self.is_live = False
        """Whether connections are taken."""
        self._fails = False
        """Whether it was told to look unwell."""
        self._chain: Final = chain
        self._clusters: Final = clusters
        self._listeners: Final = listeners
        self._leave: Final = leave
        self._reopen: Final = reopen
        self._began: Final = asyncio.get_running_loop().time()
        manager = HttpManager(stat_prefix="admin", routes=RouteConfig())
        self._front: Final = Front(manager, self._answer, counts=Counter(), rng=Random(rng.random()), wall=time.time)
        own = FilterChain(handler=manager)
        listener = Listener(name="admin", address=chain.admin.address, chains=(own,))
        self._doorway: Final = Doorway(listener, ((own, Handling(self._front, lambda: Downstream(self._front))),))
        self._pages: Final[dict[str, Callable[[Query], LocalReply]]] = {
            "/": lambda _: _text(self._help()),
            "/help": lambda _: _text(self._help()),
            "/ready": self._ready,
            "/clusters": self._clusters_page,
            "/listeners": self._listeners_page,
            "/server_info": self._server_info,
            "/config_dump": lambda _: _json(
                shown.config(chain, clusters.backends, listeners.doorways, listeners.routes)
            ),
            "/stats": self._stats,
            "/stats/prometheus": self._prometheus,
            "/healthcheck/fail": lambda _: self._look_unwell(is_so=True),
            "/healthcheck/ok": lambda _: self._look_unwell(is_so=False),
            "/drain_listeners": self._drain,
            "/quitquitquit": self._quit_page,
            "/reset_counters": self._reset,
            "/reopen_logs": self._reopen_page,
            "/memory": lambda _: _json(shown.memory()),
        }

    @property
    def address(self) -> Address:
        """Where it answers."""
        return self._doorway.addresses[0]

    def open(self) -> None:
        """Answer from now on."""
        self._doorway.open()

    def close(self) -> None:
        """Answer no more."""
        self._doorway.close()
        self._front.close()

    def _answer(self, request: Request, _peer: Peer, _internal: bool) -> Way | LocalReply:
        path, _, query = request.path.decode("latin-1").partition("?")
        page = self._pages.get(path)
        if page is None:
            return _text(f"invalid path. {self._help()}", 404)
        if path in _POSTS and request.method != b"POST":
            method = request.method.decode("latin-1")
            return _text(f"Method {method} not allowed, POST required.", 405)
        return page(dict(parse_qsl(query, keep_blank_values=True)))

    def _help(self) -> str:
        lines = (f"  {path}{' (POST)' if path in _POSTS else ''}" for path in sorted(self._pages))
        return "admin commands are:\n" + "\n".join(lines) + "\n"

    @property
    def _state(self) -> str:
        return "DRAINING" if self._fails else "LIVE" if self.is_live else "PRE_INITIALIZING"

    def _ready(self, _: Query) -> LocalReply:
        return _text(f"{self._state}\n", 200 if self._state == "LIVE" else 503)

    def _clusters_page(self, query: Query) -> LocalReply:
        backends = self._clusters.backends
        if query.get("format") == "json":
            return _json(shown.clusters(backends))
        return _text(shown.clusters_text(backends))

    def _listeners_page(self, query: Query) -> LocalReply:
        found = [
            (each.listener.name, address)
            for each in self._listeners.doorways
            if each.is_open
            for address in each.addresses
        ]
        if query.get("format") != "json":
            return _text("".join(f"{name}::{address}\n" for name, address in found))
        places = [
            {
                "name": name,
                "local_address": {"socket_address": {"address": address.host, "port_value": address.port}},
            }
            for name, address in found
        ]
        return _json({"listener_statuses": places})

    def _server_info(self, _: Query) -> LocalReply:
        up = f"{int(asyncio.get_running_loop().time() - self._began)}s"
        node = {"id": self._chain.node.id, "cluster": self._chain.node.cluster, "user_agent_name": "reachline"}
        said = {"version": f"reachline/{__version__}", "state": self._state, "uptime_current_epoch": up}
        return _json({**said, "uptime_all_epochs": up, "node": node})

    def _figures(self) -> dict[str, int]:
        return shown.figures(
            self._clusters.backends, self._listeners.doorways, is_live=self._state == "LIVE", began=self._began
        )

    def _stats(self, query: Query) -> LocalReply:
        found = shown.filtered(self._figures(), query)
        if found is None:
            return _text('Invalid regex: "filter"\n', 400)
        if query.get("format") == "json":
            return _json({"stats": [{"name": name, "value": value} for name, value in found.items()]})
        if query.get("format") == "prometheus":
            return _text(shown.prometheus(found))
        return _text("".join(f"{name}: {value}\n" for name, value in found.items()))

    def _prometheus(self, query: Query) -> LocalReply:
        found = shown.filtered(self._figures(), query)
        return _text('Invalid regex: "filter"\n', 400) if found is None else _text(shown.prometheus(found))

    def _look_unwell(self, *, is_so: bool) -> LocalReply:
        self._fails = is_so
        return _text("OK\n")

    def _drain(self, query: Query) -> LocalReply:
        for doorway in self._listeners.doorways:
            if "skip_exit" not in query:
                doorway.close()
            for handling in doorway.handlings:
                handling.serving.drain()
        return _text("OK\n")

    def _quit_page(self, _: Query) -> LocalReply:
        asyncio.get_running_loop().call_later(0.05, self._leave)  # once this answer is out
        return _text("OK\n")

    def _reset(self, _: Query) -> LocalReply:
        for backend in self._clusters.backends.values():
            backend.counts.clear()
            backend.codes.clear()
        for doorway in self._listeners.doorways:
            doorway.counts.clear()
        return _text("OK\n")

    def _reopen_page(self, _: Query) -> LocalReply:
        self._reopen()
        return _text("OK\n")


def _text(body: str, status: int = 200) -> LocalReply:
    return LocalReply(status, body.encode(), headers=((b"content-type", _TEXT), *_ASIDE))


def _json(value: object) -> LocalReply:
    body = json.dumps(value, indent=1, default=str).encode() + b"\n"
    return LocalReply(200, body, headers=((b"content-type", _JSON), *_ASIDE))
