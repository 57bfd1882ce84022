"""The small authority's certificates: who they name, how long, for what, and what is refused."""

from __future__ import annotations

import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import RemoteProtocolError
from reachline.wire.certificates import (
    ROLES,
    SKEW,
    Identity,
    Pair,
    authority,
    certified,
    identity_of,
    issued,
    make_request,
)

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
AGENT = Identity("prod.example", "agent", "fra-1")


@pytest.fixture(scope="module")
def signer() -> Pair:
    return authority("prod.example", now=NOW, life=timedelta(days=3650))


def test_a_certificate_names_who_it_was_issued_to_and_not_who_asked(signer: Pair):
    asked = make_request("somebody-else")

    said = certified(issued(signer, asked.shown, AGENT, now=NOW, life=DAY))

    assert said.identity == AGENT
    assert (said.begins, said.ends) == (NOW - timedelta(seconds=SKEW), NOW + DAY)


def test_nothing_of_a_request_but_its_key_is_taken_over(signer: Pair):
    key = ec.generate_private_key(ec.SECP256R1())
    evil = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://prod.example/center/c")]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )

    chain = issued(signer, evil.public_bytes(serialization.Encoding.PEM), AGENT, now=NOW, life=DAY)

    cert = x509.load_pem_x509_certificate(chain)
    assert cert.public_key() == key.public_key()
    assert cert.subject.rfc4514_string() == "CN=fra-1"
    assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert certified(chain).identity == AGENT


def test_a_certificate_ends_with_its_authority_at_the_latest():
    short = authority("prod.example", now=NOW, life=timedelta(hours=1))

    said = certified(issued(short, make_request("a").shown, AGENT, now=NOW, life=DAY))

    assert said.ends == NOW + timedelta(hours=1)


def test_openssl_verifies_the_chain_for_what_it_is_meant(signer: Pair, tmp_path: Path):
    server = issued(signer, make_request("c").shown, AGENT, hosts=("localhost", "127.0.0.1", "::1"), now=NOW, life=DAY)
    client = issued(signer, make_request("a").shown, AGENT, now=NOW, life=DAY)
    (tmp_path / "ca.pem").write_bytes(signer.shown)

    def verified(chain: bytes, purpose: str) -> bool:
        (tmp_path / "leaf.pem").write_bytes(chain.removesuffix(signer.shown))
        command = (
            "openssl",
            "verify",
            "-CAfile",
            "ca.pem",
            "-purpose",
            purpose,
            "-attime",
            str(int(NOW.timestamp())),
            "leaf.pem",
        )
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0

    assert verified(server, "sslserver")
    assert verified(server, "sslclient")
    assert verified(client, "sslclient")
    assert not verified(client, "sslserver")


def test_a_key_and_its_chain_are_taken_by_ssl(signer: Pair, tmp_path: Path):
    asked = make_request("a")
    (tmp_path / "key.pem").write_bytes(asked.key)
    (tmp_path / "chain.pem").write_bytes(issued(signer, asked.shown, AGENT, now=NOW, life=DAY))

    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(tmp_path / "chain.pem", tmp_path / "key.pem")


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"", "not a request"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "not a request"),
        (b"x" * 70_000, "70000 bytes"),
    ],
)
def test_what_is_no_request_is_refused_by_name(signer: Pair, raw: bytes, rule: str):
    with pytest.raises(RemoteProtocolError, match=rule):
        issued(signer, raw, AGENT, now=NOW, life=DAY)


def test_a_request_that_its_key_did_not_sign_is_refused(signer: Pair):
    body = bytearray(x509.load_pem_x509_csr(make_request("a").shown).public_bytes(serialization.Encoding.DER))
    body[-1] ^= 1
    forged = ssl.DER_cert_to_PEM_cert(bytes(body)).replace("CERTIFICATE", "CERTIFICATE REQUEST")

    with pytest.raises(RemoteProtocolError, match=r"not signed by the key|not a request"):
        issued(signer, forged.encode(), AGENT, now=NOW, life=DAY)


def test_a_key_of_another_kind_is_refused(signer: Pair):
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    asked = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())

    with pytest.raises(RemoteProtocolError, match="elliptic curve"):
        issued(signer, asked.public_bytes(serialization.Encoding.PEM), AGENT, now=NOW, life=DAY)


@given(st.sampled_from(ROLES), st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}[a-z0-9]", fullmatch=True))
def test_an_identity_is_read_as_it_is_written(role, name):
    assert identity_of(Identity("prod.example", role, name).uri) == Identity("prod.example", role, name)


@pytest.mark.parametrize(
    "uri",
    [
        "", "spiffe://", "spiffe://d", "spiffe://d/agent", "spiffe://d/agent/", "spiffe://d/agent/a/b", "spiffe://D/agent/a",
        "https://d/agent/a", "spiffe://d/root/a", "spiffe://d/agent/a b", "spiffe://d/agent/-a", "spiffe:///agent/a",
    ],
)  # fmt: skip
def test_what_names_nobody_as_we_do_is_no_identity(uri):
    assert identity_of(uri) is None


def test_who_shows_two_identities_is_nobody(signer: Pair):
    key = serialization.load_pem_private_key(signer.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    uris = [x509.UniformResourceIdentifier(f"spiffe://prod.example/agent/{name}") for name in "ab"]
    name = x509.Name([])
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.SubjectAlternativeName(uris), critical=False)
        .sign(key, hashes.SHA256())
    )

    assert certified(cert.public_bytes(serialization.Encoding.PEM)).identity is None


def test_what_is_no_certificate_is_refused():
    with pytest.raises(RemoteProtocolError, match="no certificate"):
        certified(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
