"""TLS on memory: contexts by profile, one handshake, no reuse of connections or sessions. Never touches a socket."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from reachline.errors import RemoteProtocolError
from reachline.talk.secure import Secure
from reachline.wire.x509 import expires

__all__ = ["Contexts", "Tls", "words_of"]

_CHUNK: Final = 65_536
_FRAME: Final = re.compile(r"^\[[^\]]*\] *| *\(_ssl\.c:\d+\)$")
"""What Python puts around OpenSSL's words."""


class Contexts:
    """SSL contexts by profile. A bare one is 1.4 times faster than one that holds the system's roots, so only lines
    that verify pay for them. Written by the engine's thread only.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[tuple[tuple[str, ...], bool, str, str], tuple[int, ssl.SSLContext]] = {}
        """With each, when its CA file was written."""

    def of(self, profile: Secure, *, verify: bool) -> ssl.SSLContext:
        """The context; OSError (or SSLError) where the CA file cannot be read. A CA file that changes is read again."""
        changed = Path(profile.ca).stat().st_mtime_ns if verify and profile.ca else 0
        key = (profile.alpn, verify, profile.ca if verify else "", profile.min_tls)
        made = self._made.get(key)
        if made is None or made[0] != changed:
            made = self._made[key] = changed, _make(profile, verify=verify)
        return made[1]


def _make(profile: Secure, *, verify: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif profile.ca:
        context.load_verify_locations(cafile=profile.ca)
    else:
        context.load_default_certs()
    if profile.min_tls:
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if profile.min_tls == "1.3" else ssl.TLSVersion.TLSv1_2
    if profile.alpn:
        context.set_alpn_protocols(list(profile.alpn))
    return context


class Tls:
    """One layer of a connection. Bytes from the peer go in by `feed`, bytes for it come out by `outgoing`.

    A layer may lie inside another (`outer`): TLS with a target inside the TLS with its proxy. Where the outer one breaks, that
    is a `RemoteProtocolError`; an `SSLError` is always of this layer.
    """

    __slots__ = ("_in", "_object", "_out", "_outer")

    def __init__(self, context: ssl.SSLContext, server_name: str, outer: Tls | None = None) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=server_name or None)
        self._outer = outer

    def shake(self) -> bool:
        """One step of the handshake, True once it is over. SSLError where it fails."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, data: bytes) -> None:
        """Take what came over the wire; empty: it is closed."""
        if self._outer is not None:
            self._outer.feed(data)
            self._draw(self._outer)
        elif data:
            self._in.write(data)
        else:
            self._in.write_eof()

    def put(self, data: bytes) -> None:
        """Take what the layer around this one has deciphered already, and all else that it holds."""
        self._in.write(data)
        if self._outer is not None:
            self._draw(self._outer)

    def outgoing(self) -> bytes:
        """What must be sent now."""
        return self._enclosed(self._out.read())

    def wrap(self, data: bytes) -> bytes:
        """`data` as it goes over the wire."""
        self._object.write(data)
        return self._enclosed(self._out.read())

    def unwrap(self) -> bytes | None:
        """The next piece of plain data; empty: the peer ended it; None: nothing more for now. SSLError where it is broken."""
        try:
            return self._object.read(_CHUNK)
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def _draw(self, outer: Tls) -> None:
        """Take all that the outer layer has for us."""
        try:
            while (data := outer.unwrap()) is not None:
                if not data:
                    self._in.write_eof()
                    return
                self._in.write(data)
        except ssl.SSLError as error:
            raise RemoteProtocolError(words_of(error)) from error

    def _enclosed(self, data: bytes) -> bytes:
        """Our bytes as the outer layer sends them, with what it has to say itself."""
        outer = self._outer
        if outer is None:
            return data
        try:
            return outer.wrap(data) if data else outer.outgoing()
        except ssl.SSLError as error:
            raise RemoteProtocolError(words_of(error)) from error

    def alpn(self) -> str:
        """The protocol that was agreed on once the handshake is over; empty: none."""
        return self._object.selected_alpn_protocol() or ""

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
    # Newer reasons have no name yet in this Python, only OpenSSL's words: "[SSL] tlsv1 alert no application protocol (_ssl.c:…)".
    reason = error.reason or _FRAME.sub("", str(error.args[-1] if error.args else "")) or "broken"
    return f"TLS: {reason.lower().replace('_', ' ')}"
