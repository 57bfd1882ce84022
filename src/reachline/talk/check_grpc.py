"""Active checks by the standard health service of gRPC, one call on a connection of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from reachline.core.checking import Fault, Verdict
from reachline.errors import ConfigError, Problem, RemoteProtocolError
from reachline.talk.asking import GONE, Ask
from reachline.talk.secure import Secure
from reachline.wire import grpc_health
from reachline.wire.request import Request

if TYPE_CHECKING:
    from reachline.wire.http2 import Exchange

__all__ = ["GrpcCheck"]

_KEPT: Final = 2 * grpc_health.MAX_MESSAGE
"""Bytes of a body: one message, and enough to see that there is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcCheck:
    """`grpc_health_check`: `grpc.health.v1.Health/Check` over HTTP/2, which needs the package h2."""

    checker: ClassVar[str] = "GRPC"
    minds_idle_close: ClassVar[bool] = False
    by_connect: ClassVar[bool] = False
    service_name: str = ""
    authority: str = ""
    """Empty: the endpoint's hostname, or the cluster's name."""
    metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_ms: int = 0
    """What the peer is told of our patience; 0: nothing."""
    secure: Secure | None = None

    def __post_init__(self) -> None:
        """ConfigError where the library is missing: better at start than at each check."""
        try:
            from reachline.wire import http2  # noqa: F401, PLC0415  (only checks that ask for it pay for the library)
        except ImportError:
            rule, hint = "needs the package h2", "pip install 'reachline[cli]'"
            raise ConfigError(Problem(place="grpc check", path="", value="", rule=rule, hint=hint)) from None

    def ask(self, authority: str) -> Ask:
        from reachline.wire.http2 import Exchange  # noqa: PLC0415  (as above)

        patience = (("grpc-timeout", f"{self.timeout_ms}m"),) if self.timeout_ms else ()
        own = (("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "grpc-reachline-check"))
        scheme, host = "https" if self.secure else "http", self.authority or authority
        body = grpc_health.request(self.service_name)
        asked = Request("POST", scheme, host, grpc_health.METHOD, (*own, *patience, *self.metadata), body)
        return _Grpc(Exchange(asked, keep=_KEPT))


class _Grpc:
    """One call: SERVING with status OK passes, any other answer fails at once."""

    is_reusable: ClassVar[bool] = False
    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def begin(self) -> bytes:
        return self._exchange.begin()

    def received(self, data: bytes) -> bytes | None:
        reply = self._exchange.heard(data)
        return None if self._exchange.done or self._exchange.size > _KEPT else reply

    def verdict(self, *, closed: bool = False) -> Verdict:
        exchange = self._exchange
        if not exchange.done:
            return Verdict(Fault.NETWORK, note=exchange.broken or (GONE if closed else "no whole answer"))
        code = grpc_health.code_in(exchange.trailers.get("grpc-status") or exchange.headers.get("grpc-status", ""))
        if exchange.status != 200 or code != 0:
            named = "no gRPC status" if code is None else grpc_health.code_name(code)
            return Verdict(Fault.ACTIVE, status=exchange.status, note=f"HTTP {exchange.status}, {named}")
        try:
            serving = grpc_health.decode(bytes(exchange.kept))
        except RemoteProtocolError as error:
            return Verdict(Fault.ACTIVE, status=exchange.status, note=str(error))
        if serving == grpc_health.SERVING:
            return Verdict(status=exchange.status)
        return Verdict(Fault.ACTIVE, status=exchange.status, note=grpc_health.serving_name(serving))
