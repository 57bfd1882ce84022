"""gRPC: the standard health service (grpc.health.v1), asked once over HTTP/2; ok is SERVING and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import unquote

from reachline.errors import LocalProtocolError, RemoteProtocolError, one_line
from reachline.model import Endpoint, Failure
from reachline.talk.http import authority, header_lines, host_name, is_secure
from reachline.talk.options import Options
from reachline.talk.secure import Secure
from reachline.talk.way import Way, needs_port
from reachline.wire import grpc_health
from reachline.wire.request import Request

if TYPE_CHECKING:
    from reachline.wire.http2 import Exchange

__all__ = ["GrpcProbe", "GrpcTalk"]

_NO_HEADERS: Final[tuple[tuple[str, str], ...]] = ()
_MOST: Final = 255
"""Bytes of a service's name: package.Service is some dozens."""
_ROOM: Final = 2 * grpc_health.MAX_MESSAGE
"""Bytes of a body that are kept: one message, and enough to see that there is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcProbe:
    """Options: service, authority, headers, tls; with TLS also sni, alpn, expect_alpn, verify, ca, min_tls."""

    way: ClassVar[Way] = Way.STREAM
    secure: Secure | None = None
    asked: Request = field(repr=False)

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> GrpcProbe:
        needs_port(endpoint, options)
        with_tls = is_secure(endpoint, options)
        at_home = unquote(endpoint.path.strip("/")) if endpoint.scheme in {"grpc", "grpcs"} else ""
        service = options.parsed_or("service", at_home, _service, "", place="to")
        own = (("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "grpc-reachline"))
        asked = Request(
            method="POST",
            scheme="https" if with_tls else "http",
            authority=options.parsed("authority", authority(endpoint, is_secure=with_tls), host_name),
            path=grpc_health.METHOD,
            headers=(*own, *options.parsed("headers", _NO_HEADERS, header_lines)),
            body=grpc_health.request(service),
        )
        _check(asked, options)
        secure = Secure.read(endpoint, options, alpn="h2", must="h2") if with_tls else None
        return cls(secure=secure, asked=asked)

    def where(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    def talk(self, endpoint: Endpoint, nonce: int) -> GrpcTalk:
        del endpoint, nonce
        from reachline.wire.http2 import Exchange  # noqa: PLC0415  (only probes that ask for it pay for the library)

        return GrpcTalk(Exchange(self.asked, keep=_ROOM))


class GrpcTalk:
    """One call and its answer."""

    __slots__ = ("_exchange", "note")

    def __init__(self, exchange: Exchange) -> None:
        self.note = ""
        self._exchange = exchange

    @property
    def answered(self) -> bool:
        return self._exchange.status != 0

    @property
    def status(self) -> int:
        """That of HTTP: gRPC's own code is in the note."""
        return self._exchange.status

    def begin(self) -> bytes:
        return self._exchange.begin()

    def received(self, data: bytes) -> bytes | None:
        reply = self._exchange.heard(data)
        return None if self._exchange.done or self._exchange.size > _ROOM else reply

    def closed(self) -> Failure | None:
        if not self._exchange.started and not self._exchange.broken:
            self.note = "closed without an answer"
            return Failure.RESET
        try:
            failure, self.note = self._verdict()
        except RemoteProtocolError as error:
            failure, self.note = Failure.PROTOCOL, str(error)
        return failure

    def _verdict(self) -> tuple[Failure | None, str]:
        exchange = self._exchange
        if exchange.broken:
            raise RemoteProtocolError(exchange.broken)
        if exchange.status and exchange.status != 200:
            return Failure.STATUS, f"HTTP status {exchange.status}"
        if exchange.size > _ROOM:
            raise RemoteProtocolError(f"gRPC answer of more than {_ROOM} bytes")
        exchange.ended()
        if not exchange.headers.get("content-type", "").startswith("application/grpc"):
            raise RemoteProtocolError("answered by something that is not gRPC")
        code = self._code()
        if code:
            said = one_line(unquote(self._told("grpc-message"))[:120])[:120]
            return Failure.STATUS, f"{grpc_health.code_name(code)}: {said}" if said else grpc_health.code_name(code)
        serving = grpc_health.decode(bytes(exchange.kept))
        return (None, "") if serving == grpc_health.SERVING else (Failure.STATUS, grpc_health.serving_name(serving))

    def _code(self) -> int:
        code = grpc_health.code_in(self._told("grpc-status"))
        if code is None:
            raise RemoteProtocolError("ended without a gRPC status")
        return code

    def _told(self, name: str) -> str:
        """A trailer, or a header where there is nothing but headers."""
        return self._exchange.trailers.get(name) or self._exchange.headers.get(name, "")


def _check(asked: Request, options: Options) -> None:
    """Problems of a call that HTTP/2 cannot carry, or where the library is missing."""
    try:
        from reachline.wire import http2  # noqa: PLC0415  (only probes that ask for it pay for the library)
    except ImportError:
        options.refuse("to", "gRPC needs the package h2", "pip install 'reachline[cli]'")
        return
    try:
        http2.check(asked)
    except LocalProtocolError as error:
        options.refuse("headers", str(error))


def _service(text: str) -> str:
    if not text.isprintable() or len(text.encode()) > _MOST:
        raise ValueError(f"must be a service's name of at most {_MOST} bytes, e.g. shop.v1.Orders")
    return text
