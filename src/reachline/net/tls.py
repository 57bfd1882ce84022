"""TLS on memory: contexts by profile, one handshake, no reuse of connections or sessions. Never touches a socket."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from reachline.errors import RemoteProtocolError
from reachline.talk.secure import Secure
from reachline.wire.x509 import expires

__all__ = ["Contexts", "Tls", "words_of"]

_CHUNK: Final = 65_536


class Contexts:
    """SSL contexts by profile. A bare one is 1.4 times faster than one that holds the system's roots, so only lines
    that verify pay for them. Written by the engine's thread only.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[tuple[tuple[str, ...], bool, str, int], ssl.SSLContext] = {}

    def of(self, profile: Secure, *, verify: bool) -> ssl.SSLContext:
        """The context; OSError (or SSLError) where the CA file cannot be read. A CA file that changes is read again."""
        changed = Path(profile.ca).stat().st_mtime_ns if verify and profile.ca else 0
        key = (profile.alpn, verify, profile.ca, changed)
        if (made := self._made.get(key)) is None:
            made = self._made[key] = _make(profile, verify=verify)
        return made


def _make(profile: Secure, *, verify: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif profile.ca:
        context.load_verify_locations(cafile=profile.ca)
    else:
        context.load_default_certs()
    if profile.alpn:
        context.set_alpn_protocols(list(profile.alpn))
    return context


class Tls:
    """One connection's layer. Bytes from the peer go in by `feed`, bytes for it come out by `outgoing`."""

    __slots__ = ("_in", "_object", "_out")

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=server_name or None)

    def shake(self) -> bool:
        """One step of the handshake, True once it is over. SSLError where it fails."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, data: bytes) -> None:
        """Take what the peer sent; empty: it closed."""
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()

    def outgoing(self) -> bytes:
        """What must be sent now."""
        return self._out.read()

    def wrap(self, data: bytes) -> bytes:
        """`data` as it goes to the peer."""
        self._object.write(data)
        return self._out.read()

    def unwrap(self) -> bytes | None:
        """The next piece of plain data; empty: the peer ended it; None: nothing more for now. SSLError where it is broken."""
        try:
            return self._object.read(_CHUNK)
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def expires(self) -> int | None:
        """When the peer's certificate ends, unix seconds; None where it cannot be read."""
        der = self._object.getpeercert(True)
        try:
            return expires(der) if der else None
        except RemoteProtocolError:
            return None


def words_of(error: ssl.SSLError) -> str:
    """An error of TLS for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "closed during the TLS handshake"
    reason = error.reason or "broken"
    return f"TLS: {reason.lower().replace('_', ' ')}"
