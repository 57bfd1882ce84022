"""Certificates made and read: a small authority of our own, requests of those who join, and who somebody is by what they show.

An identity is a URI in the certificate, as SPIFFE has it: `spiffe://<trust domain>/<role>/<name>`; whatever else stands in a
request is not taken over. Keys are of P-256: every client speaks it, and a handshake costs half of what RSA costs.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from reachline.errors import RemoteProtocolError
from reachline.model import Seconds

__all__ = [
    "DOMAIN",
    "NAME",
    "RENEW",
    "ROLES",
    "SKEW",
    "Certified",
    "Identity",
    "Pair",
    "Role",
    "authority",
    "certified",
    "domain_of",
    "fingerprint",
    "identity_of",
    "issued",
    "leading",
    "make_request",
    "renewed_at",
]

Role = Literal["agent", "center", "client"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""An agent reports lines, a center is reported to, a client (an SDK, a data plane, a person's tool) asks and tells of its calls."""
NAME: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?")
"""What a document may call an agent, too."""
DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?")
"""A trust domain (SPIFFE-ID §2.1)."""
RENEW: Final = "/reachline.v1.Center/Renew"
"""The method by which a member asks for its next certificate: one request (PEM) in, one chain out; who asks is told by its present one."""
SKEW: Final[Seconds] = 300.0
"""Certificates are valid from so much before they are made: clocks differ, and Kerberos found five minutes to be enough."""
_LARGEST: Final = 64 << 10
"""A request of P-256 has half a kilobyte; a chain of three certificates two."""


class Identity(NamedTuple):
    """Who somebody is, and in which trust domain."""

    domain: str
    role: Role
    name: str

    @property
    def uri(self) -> str:
        """As it stands in a certificate."""
        return f"spiffe://{self.domain}/{self.role}/{self.name}"


class Pair(NamedTuple):
    """A private key and what belongs to it, both in PEM."""

    key: bytes
    shown: bytes
    """A certificate with its chain, or a request for one."""


class Certified(NamedTuple):
    """What a certificate says, once it is read. Nothing is verified by reading."""

    identity: Identity | None
    """None where it names nobody as we do."""
    begins: datetime
    ends: datetime
    serial: str
    """In hexadecimal digits."""


def identity_of(uri: str) -> Identity | None:
    """The identity of `spiffe://domain/role/name`; None where it is none of ours."""
    scheme, _, rest = uri.partition("://")
    domain, _, path = rest.partition("/")
    role, _, name = path.partition("/")
    if scheme != "spiffe" or not DOMAIN.fullmatch(domain) or not NAME.fullmatch(name):
        return None
    return next((Identity(domain, known, name) for known in ROLES if known == role), None)


def authority(domain: str, *, now: datetime, life: timedelta) -> Pair:
    """A new authority's key and its certificate, which signs for nobody but this trust domain's members."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Reachline CA of {domain}"[:64])])
    built = (
        _begun(name, name, key.public_key(), now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://{domain}")]), critical=False
        )
    )
    return Pair(_key_pem(key), _cert_pem(built.sign(key, hashes.SHA256())))


def make_request(name: str) -> Pair:
    """A new key, and a request to certify it, by whoever calls itself `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])] if name else [])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return Pair(_key_pem(key), made.public_bytes(serialization.Encoding.PEM))


def issued(
    signer: Pair, request: bytes, identity: Identity, *, hosts: Sequence[str] = (), now: datetime, life: timedelta
) -> bytes:
    """The chain that certifies the request's key as `identity`'s, PEM, never longer than the authority's own life.

    `hosts` are names and addresses a server is reached by. Of the request only its key is taken; RemoteProtocolError where it
    is none, is not signed by its own key, or has a key that is not of an elliptic curve.
    """
    asked = _request(request)
    parent = x509.load_pem_x509_certificate(signer.shown)
    own = serialization.load_pem_private_key(signer.key, None)
    assert isinstance(own, ec.EllipticCurvePrivateKey)
    until = min(now + life, parent.not_valid_after_utc)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    names = [x509.UniformResourceIdentifier(identity.uri), *map(_host, hosts)]
    built = (
        _begun(subject, parent.subject, asked, now, until - now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own.public_key()), critical=False)
    )
    return _cert_pem(built.sign(own, hashes.SHA256())) + signer.shown


def certified(chain: bytes) -> Certified:
    """What the first certificate of a chain (PEM) says; RemoteProtocolError where there is none to be read."""
    try:
        cert = x509.load_pem_x509_certificate(chain[:_LARGEST])
        uris = _uris(cert)
    except (ValueError, x509.DuplicateExtension, x509.InvalidVersion) as error:
        raise RemoteProtocolError(f"no certificate can be read there ({error})") from error
    # One identity each (X509-SVID §2): who shows two is nobody.
    identity = identity_of(uris[0]) if len(uris) == 1 else None
    return Certified(identity, cert.not_valid_before_utc, cert.not_valid_after_utc, f"{cert.serial_number:x}")


def domain_of(signer: Pair) -> str:
    """The trust domain of an authority; RemoteProtocolError where it is none of ours, or the key is not the certificate's."""
    try:
        cert = x509.load_pem_x509_certificate(signer.shown)
        key = serialization.load_pem_private_key(signer.key, None)
        (uri,) = _uris(cert)
    except (ValueError, TypeError, x509.DuplicateExtension, x509.InvalidVersion) as error:
        raise RemoteProtocolError(f"no authority of a trust domain ({error})") from error
    domain = uri.removeprefix("spiffe://")
    if not DOMAIN.fullmatch(domain):
        raise RemoteProtocolError("the certificate names no trust domain")
    if key.public_key() != cert.public_key():
        raise RemoteProtocolError("the key is another certificate's")
    return domain


def renewed_at(said: Certified) -> datetime:
    """Two thirds of a certificate's life: a third is left to find out why it could not be renewed."""
    return said.begins + (said.ends - said.begins) * 2 / 3


def fingerprint(certificate: bytes) -> str:
    """SHA-256 of a certificate (PEM), hexadecimal."""
    return x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256()).hex()


def leading(certificates: bytes) -> bytes:
    """The first certificate of a PEM file by itself, encoded anew: what else stands there is not taken over. ValueError where there is none."""
    return _cert_pem(x509.load_pem_x509_certificate(certificates))


def _uris(cert: x509.Certificate) -> list[str]:
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def _request(raw: bytes) -> ec.EllipticCurvePublicKey:
    """The key that a request wants certified, once it is shown that the asker has it."""
    if len(raw) > _LARGEST:
        raise RemoteProtocolError(f"a request for a certificate of {len(raw)} bytes, at most {_LARGEST} are read")
    try:
        asked = x509.load_pem_x509_csr(raw)
        key, is_own = asked.public_key(), asked.is_signature_valid
    except (ValueError, TypeError, InvalidSignature, x509.InvalidVersion) as error:
        raise RemoteProtocolError("not a request for a certificate in PEM") from error
    if not is_own:
        raise RemoteProtocolError("the request is not signed by the key that it wants certified")
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise RemoteProtocolError("the request's key must be of an elliptic curve, P-256 as a rule")
    return key


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - timedelta(seconds=SKEW))
        .not_valid_after(now.astimezone(UTC) + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind, encoding = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    return key.private_bytes(encoding, kind, serialization.NoEncryption())


def _cert_pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)
