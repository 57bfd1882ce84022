"""What a connection manager makes of a request before it is routed: who asks, by what id, and which headers are believed. Pure.

As Envoy 1.40 does it: measured, for its manual tells less.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from reachline.doors.envoy.chain import HttpManager, Network
from reachline.proxy.message import Headers, Request, joined

__all__ = ["Arrivals", "Peer"]

_EXTERNAL: Final = frozenset(
    b"x-envoy-" + name
    for name in (
        b"retry-on", b"retry-grpc-on", b"max-retries", b"upstream-alt-stat-name", b"upstream-rq-timeout-ms",
        b"upstream-rq-per-try-timeout-ms", b"upstream-rq-timeout-alt-response", b"expected-rq-timeout-ms", b"force-trace",
        b"ip-tags", b"original-url", b"hedge-on-per-try-timeout", b"retriable-status-codes", b"retriable-header-names",
        b"internal", b"is-timeout-retry",
    )
)  # fmt: skip
"""Only believed of internal requests."""
_EDGE: Final = frozenset(
    b"x-envoy-" + name
    for name in (b"decorator-operation", b"downstream-service-cluster", b"downstream-service-node", b"original-path")
)
"""And these are not even passed on by the first proxy that the request meets."""
_SLASHES: Final = re.compile(rb"/{2,}")
_ESCAPED_SLASH: Final = re.compile(rb"%2f|%5c", re.IGNORECASE)


class Peer(NamedTuple):
    """The client's end of a connection, and ours."""

    address: str
    port: int
    local_port: int = 0
    is_tls: bool = False
    local_address: str = ""
    server_name: str = ""
    is_certified: bool = False
    """Whether it showed a certificate that was found right."""


class Arrivals:
    """One manager's way to take requests. Its settings never change."""

    __slots__ = ("_draw", "_is_plain", "_manager", "_networks")

    def __init__(self, manager: HttpManager, draw: Callable[[int], int]) -> None:
        """`draw(bits)` is a random number of so many bits."""
        self._manager: Final = manager
        self._draw: Final = draw
        self._is_plain: Final = not (
            manager.use_remote_address
            or manager.append_x_forwarded_port
            or manager.via
            or manager.strip_port != "NONE"
            or manager.strip_trailing_dot
        )
        self._networks: Final = tuple(_network(each) for each in manager.internal_networks)

    def take(self, request: Request, peer: Peer) -> bool:
        """Make the request what routes see; whether it came from inside. Its path may be refused afterwards: `path_of`."""
        headers = request.headers
        known = dict(headers)
        forwarded = joined(headers, b"x-forwarded-for") if b"x-forwarded-for" in known else None
        internal = bool(self._networks) and self._is_internal(forwarded, peer)
        is_edge = self._manager.use_remote_address and not internal
        if not internal and any(name.startswith(b"x-envoy-") for name in known):
            gone = _EXTERNAL | _EDGE if is_edge else _EXTERNAL
            headers[:] = [each for each in headers if each[0] not in gone]
        if not self._is_plain:
            self._tell_more(request, known, forwarded, peer, internal=internal)
        if b"x-forwarded-proto" not in known:
            headers.append((b"x-forwarded-proto", b"https" if peer.is_tls else b"http"))
        if internal:
            headers.append((b"x-envoy-internal", b"true"))
        if b"x-request-id" not in known or is_edge:
            self._identify(headers, known, is_edge=is_edge)
        if b"x-forwarded-client-cert" in known and self._must_sanitize(peer):
            _remove(headers, b"x-forwarded-client-cert")
        return internal

    def _must_sanitize(self, peer: Peer) -> bool:
        """Whether what others say of a client's certificate is not believed."""
        mode = self._manager.client_certificate
        return mode == "SANITIZE" or (mode == "FORWARD_ONLY" and not peer.is_certified)

    def path_of(self, request: Request) -> bytes | None:
        """The path as the manager normalises it; None where it must be refused."""
        manager, path = self._manager, request.path
        if manager.escaped_slashes != "KEEP_UNCHANGED" and _ESCAPED_SLASH.search(path.partition(b"?")[0]):
            if manager.escaped_slashes == "REJECT_REQUEST":
                return None
            head, mark, query = path.partition(b"?")
            path = _ESCAPED_SLASH.sub(b"/", head) + mark + query
        if manager.normalize_path:
            if b"%00" in path.partition(b"?")[0]:
                return None
            path = _normal(path)
        if manager.merge_slashes and b"//" in path:
            head, mark, query = path.partition(b"?")
            path = _SLASHES.sub(b"/", head) + mark + query
        return path

    def _is_internal(self, forwarded: bytes | None, peer: Peer) -> bool:
        """Only where the way here is known: the connection itself, or one hop before it that says so."""
        if self._manager.use_remote_address:
            return forwarded is None and _within(peer.address, self._networks)
        return forwarded is not None and b"," not in forwarded and _within(forwarded.decode("latin-1"), self._networks)

    def _tell_more(
        self, request: Request, known: dict[bytes, bytes], forwarded: bytes | None, peer: Peer, *, internal: bool
    ) -> None:
        """What only some managers are set to do."""
        manager, headers = self._manager, request.headers
        if manager.use_remote_address:
            if not manager.skip_xff_append:
                self._tell_address(headers, forwarded, peer)
            _remove(headers, b"x-forwarded-proto")
            known.pop(b"x-forwarded-proto", None)
            if not internal:
                _set(headers, b"x-envoy-external-address", peer.address.encode())
        if manager.append_x_forwarded_port and b"x-forwarded-port" not in known:
            headers.append((b"x-forwarded-port", b"%d" % peer.local_port))
        if manager.via:
            _append(headers, b"via", manager.via.encode())
        if manager.strip_port != "NONE" or manager.strip_trailing_dot:
            request.authority = self._bare_authority(request.authority, peer)

    def _tell_address(self, headers: Headers, forwarded: bytes | None, peer: Peer) -> None:
        address = peer.address.encode()
        if forwarded is None:
            headers.append((b"x-forwarded-for", address))
        else:
            _set(headers, b"x-forwarded-for", forwarded + b"," + address)

    def _identify(self, headers: Headers, known: dict[bytes, bytes], *, is_edge: bool) -> None:
        manager = self._manager
        if not manager.generate_request_id:
            return
        if b"x-request-id" not in known:
            headers.append((b"x-request-id", self._uuid()))
        elif is_edge and not manager.preserve_request_id:
            _set(headers, b"x-request-id", self._uuid())

    def _uuid(self) -> bytes:
        """A random UUID, version 4."""
        text = b"%032x" % self._draw(128)
        return b"%b-%b-4%b-%b%b-%b" % (text[:8], text[8:12], text[13:16], _VARIANT[text[16]], text[17:20], text[20:])

    def _bare_authority(self, authority: bytes, peer: Peer) -> bytes:
        manager = self._manager
        host, colon, port = authority.rpartition(b":")
        if colon and port.isdigit() and not host.endswith(b":"):
            own = manager.strip_port == "MATCHING" and port.lstrip(b"0") == b"%d" % peer.local_port
            if own or manager.strip_port == "ANY":
                authority = host
        return authority[:-1] if manager.strip_trailing_dot and authority.endswith(b".") else authority


_VARIANT: Final = {ord(f"{digit:x}"): b"%x" % (8 | digit & 3) for digit in range(16)}
"""By a random hex digit: the one that says RFC 9562."""


def _set(headers: Headers, name: bytes, value: bytes) -> None:
    _remove(headers, name)
    headers.append((name, value))


def _append(headers: Headers, name: bytes, value: bytes) -> None:
    before = joined(headers, name)
    _set(headers, name, value if before is None else before + b", " + value)


def _remove(headers: Headers, name: bytes) -> None:
    headers[:] = [each for each in headers if each[0] != name]


def _network(network: Network) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(f"{network.prefix}/{network.bits}", strict=False)


@lru_cache(maxsize=4_096)
def _within(text: str, networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]) -> bool:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return False
    return any(address in each for each in networks)


def _normal(path: bytes) -> bytes:
    """RFC 3986, 5.2.4 and 6.2.2: dots taken out, a backslash is `/`, unreserved characters not escaped."""
    head, mark, query = path.partition(b"?")
    head = _UNRESERVED.sub(_unescaped, head.replace(b"\\", b"/"))
    kept: list[bytes] = []
    parts = head.split(b"/")[1:]
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        if part == b"..":
            if kept:
                kept.pop()
            if is_last:
                kept.append(b"")
        elif part != b"." or is_last:
            kept.append(b"" if part == b"." else part)
    return b"/" + b"/".join(kept) + mark + query


_UNRESERVED: Final = re.compile(rb"%[0-9A-Fa-f]{2}")
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def _unescaped(match: re.Match[bytes]) -> bytes:
    number = int(match[0][1:], 16)
    return bytes((number,)) if number in _PLAIN else match[0]
