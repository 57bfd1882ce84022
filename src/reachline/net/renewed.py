"""Certificate files that are replaced while they are in use: read anew once one of them has changed, and only if what is there fits.

Whoever renews a certificate writes key and chain one after the other; between the two they do not fit, and the last good ones stay.
"""

from __future__ import annotations

import errno
import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["Files", "Read", "authorities", "pair", "proven", "renewing"]

log = logging.getLogger("reachline.net.tls")


class Read(NamedTuple):
    """What the files hold, PEM."""

    certificate: bytes
    key: bytes
    roots: bytes | None
    """Who may sign for those who come; None: they are asked for nothing."""


class Files:
    """A server's certificate, its key, and the authorities of its clients. May be asked by any thread."""

    def __init__(self, certificate: str, key: str, client_ca: str = "") -> None:
        """OSError names a file that cannot be read, or is not what it should be."""
        self.certificate, self.key = certificate, key
        self._names = (certificate, key, *([client_ca] if client_ca else []))
        self._seen = self._stamps()
        self.read = proven(certificate, key, client_ca)
        self.refused = 0
        """Times a change did not fit and was passed over."""

    def changed(self) -> bool:
        """Whether `read` is another one than at the last call."""
        try:
            stamps = self._stamps()
        except OSError:  # one is being replaced
            return False
        if stamps == self._seen:
            return False
        try:
            read = proven(*self._names)
        except OSError as error:
            self.refused += 1
            self._seen = stamps
            log.warning("certificate_refused", extra={"file": error.filename, "reason": error.strerror})
            return False
        self._seen = stamps
        if read == self.read:
            return False
        self.read = read
        log.info("certificate_renewed", extra={"file": self._names[0]})
        return True

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        found = [Path(name).stat() for name in self._names]
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)


def proven(certificate: str, key: str, client_ca: str = "") -> Read:
    """The files' bytes, once they are found to fit each other; OSError names one that does not."""
    roots = authorities(client_ca) if client_ca else None
    private, chain = pair(certificate, key)
    return Read(chain, private, roots)


def authorities(ca: str) -> bytes:
    """The file's bytes, once a certificate is found in it: gRPC would take anything, and then reach nobody."""
    text = Path(ca).read_bytes()
    with _said_of(ca, "no certificate in PEM can be read there"):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=ca)
    return text


def pair(certificate: str, key: str) -> tuple[bytes, bytes]:
    """Key and certificate, once they are found to fit each other."""
    found = Path(key).read_bytes(), Path(certificate).read_bytes()
    with _said_of(certificate, f"is no certificate in PEM that fits the key in {key} (one without a password)"):
        # An empty password, or OpenSSL would ask the terminal for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    return found


def renewing(first: ssl.SSLContext, files: Files) -> None:
    """From now on each handshake of `first` shows what the files hold then. Connections that are there go on."""
    current = first

    def pick(handshake: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        nonlocal current
        if files.changed():
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            made.load_cert_chain(files.certificate, files.key, password="")
            current = made
        if current is not first:
            handshake.context = current

    first.sni_callback = pick


@contextmanager
def _said_of(file: str, rule: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise OSError(errno.EINVAL, rule, file) from error
