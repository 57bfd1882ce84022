"""TLS of connections on either side, made of files or of what stands in the document. Files that change are read again."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import ssl
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from reachline.doors.envoy.routes import TextKind, TextMatch
from reachline.doors.envoy.secured import Certificate, DownstreamTls, Material, TlsParameters, Trusted, UpstreamTls
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.proxy.pool import Secured

__all__ = ["Clients", "Servers", "why_untrusted"]

_log: Final = logging.getLogger("reachline.proxy")
_LOOK: Final[Seconds] = 1.0
"""Between two looks at files: as late as a new certificate may be."""
_VERSIONS: Final = {
    "TLSv1_0": ssl.TLSVersion.TLSv1, "TLSv1_1": ssl.TLSVersion.TLSv1_1, "TLSv1_2": ssl.TLSVersion.TLSv1_2,
    "TLSv1_3": ssl.TLSVersion.TLSv1_3,
}  # fmt: skip


class _Files:
    """Which files a context was made of, and whether they are still the same."""

    __slots__ = ("_looked", "_paths", "_seen")

    def __init__(self, materials: Sequence[Material]) -> None:
        self._paths: Final = tuple(each.file for each in materials if each.file)
        self._seen = self._stamps()
        self._looked = asyncio.get_running_loop().time()

    def changed(self) -> bool:
        """Whether one of them is another now; asked of the disk once a second at most."""
        now = asyncio.get_running_loop().time()
        if not self._paths or now - self._looked < _LOOK:
            return False
        self._looked = now
        stamps, before = self._stamps(), self._seen
        self._seen = stamps
        return stamps != before

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp, self._paths))


class Servers:
    """The contexts of a listener's chain: by what the client asks for, the certificate that fits. ConfigError where there is none."""

    __slots__ = ("_context", "_files", "_place", "_tls", "_without")

    def __init__(self, tls: DownstreamTls, *, place: str, without: Collection[str] = ()) -> None:
        """`without` are protocols that are not agreed to, whatever `tls` says."""
        self._tls: Final = tls
        self._files: Final = _Files(_materials(tls.certificates, tls.trusted))
        self._place: Final = place
        self._without: Final = without
        try:
            self._context = _server(tls, without)
        except (OSError, ValueError) as error:
            raise _refusal(place, error) from error

    def context(self) -> ssl.SSLContext:
        """The one for a new connection. Files that changed and cannot be read leave the last one in force."""
        if self._files.changed():
            try:
                self._context = _server(self._tls, self._without)
            except (OSError, ValueError) as error:
                _not_in_use(self._place, error)
        return self._context


class Clients:
    """Connections to a cluster's endpoints. ConfigError where files cannot be read."""

    __slots__ = ("_alpn", "_context", "_files", "_place", "_tls")

    def __init__(self, tls: UpstreamTls, *, place: str, alpn: tuple[str, ...] = ()) -> None:
        """`alpn` is what is offered; empty: what `tls` says of HTTP/1."""
        self._tls: Final = tls
        self._alpn: Final = alpn
        own = () if tls.certificate is None else (tls.certificate,)
        self._files: Final = _Files(_materials(own, tls.trusted))
        self._place: Final = place
        try:
            self._context = _client(tls, alpn)
        except (OSError, ValueError) as error:
            raise _refusal(place, error) from error

    def of(self, hostname: str, authority: str) -> Secured:
        """TLS of a new connection to an endpoint that was found by `hostname` (empty: by none), for a request to `authority`."""
        if self._files.changed():
            try:
                self._context = _client(self._tls, self._alpn)
            except (OSError, ValueError) as error:
                _not_in_use(self._place, error)
        tls = self._tls
        name = tls.sni
        if tls.auto_host_sni and hostname:
            name = hostname
        elif tls.auto_sni and authority:
            name = authority.rpartition(":")[0] if authority.rpartition(":")[2].isdigit() else authority

        def distrust(shaken: ssl.SSLObject) -> str:
            if tls.auto_san and not _is_for(shaken, name):
                return "CERTIFICATE_VERIFY_FAILED: SAN matcher"
            return why_untrusted(shaken, tls.trusted)

        return Secured(self._context, name, distrust)


def _is_for(shown: ssl.SSLObject, name: str) -> bool:
    """Whether the certificate is one of this name; of one that nobody verified that is not known."""
    names = (shown.getpeercert() or {}).get("subjectAltName", ())
    pairs = [pair for pair in names if isinstance(pair, tuple)]
    return any(_is_of(name.lower(), str(pair[1]).lower()) for pair in pairs if pair[0] in ("DNS", "IP Address"))


def why_untrusted(found: ssl.SSLObject, trusted: Trusted | None) -> str:
    """Why the other end's certificate will not do beyond its issuer; empty: it does."""
    if trusted is None or not (trusted.names or trusted.hashes or trusted.spki):
        return ""
    der = found.getpeercert(binary_form=True)
    if der is None:
        return "no certificate"
    if trusted.hashes and hashlib.sha256(der).hexdigest() not in trusted.hashes:
        return "CERTIFICATE_VERIFY_FAILED: certificate hash"
    if trusted.names:
        told = found.getpeercert() or {}
        names = told.get("subjectAltName", ())
        if not any(_fits(kind, matcher, names) for kind, matcher in trusted.names):
            return "CERTIFICATE_VERIFY_FAILED: SAN matcher"
    return ""


_KINDS: Final = {"DNS": "DNS", "URI": "URI", "EMAIL": "email", "IP_ADDRESS": "IP Address"}


_ANY: Final = "ANY"
"""Of `match_subject_alt_names`, which names no kind."""


def _fits(kind: str, matcher: TextMatch, names: object) -> bool:
    if not isinstance(names, tuple):
        return False
    return any((kind == _ANY or pair[0] == _KINDS.get(kind)) and _matches(matcher, str(pair[1])) for pair in names)


def _matches(matcher: TextMatch, name: str) -> bool:
    text = name.lower() if matcher.ignore_case else name
    match matcher.kind:
        case TextKind.EXACT:
            return text == matcher.text
        case TextKind.PREFIX:
            return text.startswith(matcher.text)
        case TextKind.SUFFIX:
            return text.endswith(matcher.text)
        case TextKind.CONTAINS:
            return matcher.text in text
        case TextKind.REGEX:
            return matcher.pattern is not None and matcher.pattern.fits(text)


def _server(tls: DownstreamTls, without: Collection[str]) -> ssl.SSLContext:
    contexts = [_one_server(tls, certificate, without) for certificate in tls.certificates]
    if not contexts:
        raise ValueError("no certificate")
    if len(contexts) > 1:
        named = [
            (context, _names(certificate)) for context, certificate in zip(contexts, tls.certificates, strict=True)
        ]

        def choose(shaken: ssl.SSLObject, asked: str | None, _: ssl.SSLContext) -> None:
            for context, names in named:
                if asked is not None and any(_is_of(asked.lower(), name) for name in names):
                    shaken.context = context
                    return

        contexts[0].sni_callback = choose
    return contexts[0]


def _one_server(tls: DownstreamTls, certificate: Certificate, without: Collection[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, certificate)
    _limit(context, tls.parameters, least="TLSv1_2", most="TLSv1_3")
    if tls.trusted is not None and tls.trusted.authorities:
        context.load_verify_locations(cadata=_text(tls.trusted.authorities))
        is_needed = tls.require_client_certificate and not tls.trusted.accept_untrusted
        context.verify_mode = ssl.CERT_REQUIRED if is_needed else ssl.CERT_OPTIONAL
        if tls.trusted.accept_untrusted:
            context.verify_mode = ssl.CERT_NONE
    elif tls.require_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    if offered := [each for each in tls.alpn if each not in without]:
        context.set_alpn_protocols(offered)
    if not tls.session_tickets:
        context.options |= ssl.OP_NO_TICKET
    return context


def _client(tls: UpstreamTls, alpn: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    trusted = tls.trusted
    if trusted is None or trusted.accept_untrusted or not (trusted.authorities or trusted.system):
        context.verify_mode = ssl.CERT_NONE
    elif trusted.authorities:
        context.load_verify_locations(cadata=_text(trusted.authorities))
    else:
        context.load_default_certs()
    if tls.certificate is not None:
        _load(context, tls.certificate)
    _limit(context, tls.parameters, least="TLSv1_2", most="TLSv1_3")
    if alpn:
        context.set_alpn_protocols(list(alpn))
    elif tls.alpn:
        context.set_alpn_protocols([each for each in tls.alpn if each != "h2"] or ["http/1.1"])
    return context


def _limit(context: ssl.SSLContext, parameters: TlsParameters, *, least: str, most: str) -> None:
    context.minimum_version = _VERSIONS[parameters.least or least]
    context.maximum_version = _VERSIONS[parameters.most or most]
    if parameters.ciphers:
        context.set_ciphers(":".join(parameters.ciphers))


def _load(context: ssl.SSLContext, certificate: Certificate) -> None:
    """From files, or from memory by way of files that have no name."""
    password = _bytes(certificate.password) if certificate.password else b""
    with ExitStack() as stack:
        chain, key = (_path(each, stack) for each in (certificate.chain, certificate.key))
        context.load_cert_chain(chain, key, password=password or None)


def _path(material: Material, stack: ExitStack) -> str:
    if material.file:
        return material.file
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    os.write(descriptor, material.inline)
    return f"/proc/self/fd/{descriptor}"


def _bytes(material: Material) -> bytes:
    return Path(material.file).read_bytes() if material.file else material.inline


def _text(material: Material) -> str:
    return _bytes(material).decode("ascii", "replace")


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _materials(certificates: Sequence[Certificate], trusted: Trusted | None) -> list[Material]:
    found = [material for each in certificates for material in (each.chain, each.key, each.password)]
    return found if trusted is None else [*found, trusted.authorities]


def _names(certificate: Certificate) -> tuple[str, ...]:
    """DNS names a certificate is for, by a handshake in memory; none where it cannot be read, or is over."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        _load(server, certificate)
        client.load_verify_locations(cadata=_text(certificate.chain))
        ends = (client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
        for end in ends * 2:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        told = ends[0].getpeercert() or {}
    except (OSError, ValueError):
        return ()
    names = told.get("subjectAltName", ())
    return tuple(str(pair[1]).lower() for pair in names if isinstance(pair, tuple) and pair[0] == "DNS")


def _is_of(asked: str, name: str) -> bool:
    return asked == name or (name.startswith("*.") and asked.partition(".")[2] == name[2:])


def _not_in_use(place: str, error: Exception) -> None:
    """Changed files that are none: those of before stay in force, until they run out unless somebody hears of it."""
    _log.warning("certificates_refused", extra={"reason": str(_refusal(place, error).problems[0])})


def _refusal(place: str, error: Exception) -> ConfigError:
    file = str(error.filename or "") if isinstance(error, OSError) else ""
    rule = f"TLS cannot be set up: {getattr(error, 'reason', None) or getattr(error, 'strerror', None) or error}"
    return ConfigError(Problem(place=place, path="transport_socket", value=file, rule=rule))
