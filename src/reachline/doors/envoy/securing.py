"""`transport_socket` of filter chains and clusters: plain text, or TLS with its certificates and what the other end must show."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from reachline.doors.envoy.actions import material
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.matches import text
from reachline.doors.envoy.routes import TextMatch
from reachline.doors.envoy.secured import Certificate, DownstreamTls, TlsParameters, Trusted, UpstreamTls

__all__ = ["Secret", "downstream", "secrets", "upstream"]

_SOCKETS: Final = "envoy.extensions.transport_sockets."
_RAW: Final = f"{_SOCKETS}raw_buffer.v3.RawBuffer"
_DOWNSTREAM: Final = f"{_SOCKETS}tls.v3.DownstreamTlsContext"
_UPSTREAM: Final = f"{_SOCKETS}tls.v3.UpstreamTlsContext"
_VERSIONS: Final = ("TLS_AUTO", "TLSv1_0", "TLSv1_1", "TLSv1_2", "TLSv1_3")
_NAMES: Final = ("SAN_TYPE_UNSPECIFIED", "EMAIL", "DNS", "URI", "IP_ADDRESS", "OTHER_NAME")
_TRUSTS: Final = ("VERIFY_TRUST_CHAIN", "ACCEPT_UNTRUSTED")
_STAPLES: Final = ("LENIENT_STAPLING", "STRICT_STAPLING", "MUST_STAPLE")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_SNI_MOST: Final = 255
_DIGEST: Final = 32
"""Bytes of SHA-256."""
_COMMON_UNSUPPORTED: Final = {
    "tls_certificate_provider_instance": "write tls_certificates", "custom_tls_certificate_selector": "",
    "tls_certificate_certificate_provider": "write tls_certificates",
    "tls_certificate_certificate_provider_instance": "write tls_certificates",
    "validation_context_certificate_provider": "write validation_context",
    "validation_context_certificate_provider_instance": "write validation_context", "custom_handshaker": "",
    "key_log": "keys are not written down here",
}  # fmt: skip


class Secret(NamedTuple):
    """One of `static_resources.secrets`."""

    certificate: Certificate | None = None
    trusted: Trusted | None = None


class _Common(NamedTuple):
    certificates: tuple[Certificate, ...]
    trusted: Trusted | None
    alpn: tuple[str, ...]
    parameters: TlsParameters


def secrets(blocks: tuple[Block, ...]) -> dict[str, Secret]:
    """Secrets by name."""
    found: dict[str, Secret] = {}
    for block in blocks:
        name = block.text("name", needed=True)
        kind = block.one_of(("tls_certificate", "validation_context", "session_ticket_keys", "generic_secret"))
        own, trusted = block.block("tls_certificate"), block.block("validation_context")
        block.noticed("session_ticket_keys", "generic_secret", why="nothing here uses it")
        block.done()
        if kind is None:
            block.found.refuse(block.path, "must have tls_certificate or validation_context", about_key=True)
        if name in found:
            block.refuse("name", "stands here a second time")
        found[name] = Secret(None if own is None else _certificate(own), None if trusted is None else _trusted(trusted))
    return found


def downstream(block: Block | None, known: Mapping[str, Secret]) -> DownstreamTls | None:
    """A filter chain's; None: plain text."""
    config = _config(block, _DOWNSTREAM)
    if config is None:
        return None
    common = _common(config, known)
    found = DownstreamTls(
        certificates=common.certificates,
        trusted=common.trusted,
        require_client_certificate=config.flag("require_client_certificate"),
        alpn=common.alpn,
        parameters=common.parameters,
        session_tickets=not config.flag("disable_stateless_session_resumption"),
    )
    if not found.certificates:
        config.found.refuse(config.at("common_tls_context"), "must have tls_certificates", about_key=True)
    if config.word("ocsp_staple_policy", _STAPLES, "LENIENT_STAPLING") != "LENIENT_STAPLING":
        config.refuse("ocsp_staple_policy", "is not supported here", "answers are not stapled")
    config.noticed(
        "session_ticket_keys", "session_timeout", "disable_stateful_session_resumption", "prefer_client_ciphers",
        why="sessions are kept by this process alone",
    )  # fmt: skip
    config.noticed("full_scan_certs_on_sni_mismatch", why="the first certificate counts where none fits")
    config.unsupported(
        {
            "session_ticket_keys_sds_secret_config": "sessions are kept by this process alone",
            "require_sni": "match server_names",
        }
    )
    config.done()
    return found


def upstream(block: Block | None, known: Mapping[str, Secret]) -> UpstreamTls | None:
    """A cluster's; None: plain text."""
    config = _config(block, _UPSTREAM)
    if config is None:
        return None
    common = _common(config, known)
    sni = config.text("sni")
    if len(sni.encode()) > _SNI_MOST:
        config.refuse("sni", f"must have at most {_SNI_MOST} bytes")
    if len(common.certificates) > 1:
        config.refuse("common_tls_context", "must have at most one certificate")
    found = UpstreamTls(
        sni=sni,
        auto_host_sni=config.flag("auto_host_sni"),
        auto_san=config.flag("auto_sni_san_validation"),
        certificate=common.certificates[0] if common.certificates else None,
        trusted=common.trusted,
        alpn=common.alpn,
        parameters=common.parameters,
    )
    if found.trusted is None:
        rule = "verifies no certificate: whoever answers is believed"
        config.found.notice(config.path, rule, "give validation_context.trusted_ca")
    config.noticed("max_session_keys", "enforce_rsa_key_usage", why="sessions are not resumed here")
    config.unsupported({"allow_renegotiation": "TLS is not renegotiated here"})
    config.done()
    return found


def _config(block: Block | None, wanted: str) -> Block | None:
    if block is None:
        return None
    block.text("name", needed=True)
    typed = block.typed("typed_config")
    block.done()
    if typed is None:
        return None
    kind, config = typed
    if kind == _RAW:
        config.done()
        return None
    if kind != wanted:
        rule = f"is not supported here: {kind or 'it has no @type'}"
        block.found.refuse(block.path, rule, f"raw_buffer and {wanted.rpartition('.')[2]} are", about_key=True)
        return None
    return config


def _common(config: Block, known: Mapping[str, Secret]) -> _Common:
    common = config.block("common_tls_context")
    if common is None:
        return _Common((), None, (), TlsParameters())
    common.one_of(("validation_context", "validation_context_sds_secret_config", "combined_validation_context"))
    certificates = [_certificate(each) for each in common.blocks("tls_certificates")]
    for each in common.blocks("tls_certificate_sds_secret_configs"):
        secret = _named(each, known, "tls_certificate")
        if secret.certificate is not None:
            certificates.append(secret.certificate)
    plain = common.block("validation_context")
    trusted = None if plain is None else _trusted(plain)
    by_name = common.block("validation_context_sds_secret_config")
    if by_name is not None:
        trusted = _named(by_name, known, "validation_context").trusted
    combined = common.block("combined_validation_context")
    if combined is not None:
        trusted = _combined(combined, known)
    found = _Common(tuple(certificates), trusted, _alpn(common), _parameters(common.block("tls_params")))
    common.unsupported(_COMMON_UNSUPPORTED)
    common.done()
    return found


def _alpn(common: Block) -> tuple[str, ...]:
    """Names of protocols; Envoy takes them joined by commas as well."""
    return tuple(name for each in common.texts("alpn_protocols") for name in each.split(",") if name)


def _named(block: Block, known: Mapping[str, Secret], kind: str) -> Secret:
    """The secret of an SdsSecretConfig, of those in the document."""
    name = block.text("name", needed=True)
    block.unsupported({"sds_config": "secrets come from static_resources.secrets, and their files are watched"})
    block.done()
    secret = known.get(name, Secret())
    if name and not block.has("sds_config") and (secret.certificate, secret.trusted)[kind != "tls_certificate"] is None:
        block.refuse("name", f"names no {kind} of static_resources.secrets")
    return secret


def _combined(block: Block, known: Mapping[str, Secret]) -> Trusted:
    """What the named one says wins over the default, field by field."""
    plain, by_name = block.block("default_validation_context"), block.block("validation_context_sds_secret_config")
    for name, inner in (("default_validation_context", plain), ("validation_context_sds_secret_config", by_name)):
        if inner is None:
            block.found.refuse(block.at(name), "is needed", about_key=True)
    block.unsupported(
        {"validation_context_certificate_provider": "", "validation_context_certificate_provider_instance": ""}
    )
    block.done()
    base = Trusted() if plain is None else _trusted(plain)
    over = None if by_name is None else _named(by_name, known, "validation_context").trusted
    if over is None:
        return base
    return Trusted(
        authorities=over.authorities or base.authorities,
        names=base.names + over.names,
        spki=base.spki + over.spki,
        hashes=base.hashes + over.hashes,
        accept_untrusted=base.accept_untrusted or over.accept_untrusted,
        system=base.system or over.system,
    )


def _certificate(block: Block) -> Certificate:
    found = Certificate(
        material(block.block("certificate_chain")),
        material(block.block("private_key")),
        material(block.block("password")),
    )
    for name in ("certificate_chain", "private_key"):
        if not block.has(name) and not block.has("pkcs12") and not block.has("private_key_provider"):
            block.found.refuse(block.at(name), "is needed", about_key=True)
    block.unsupported(
        {
            "pkcs12": "write certificate_chain and private_key in PEM", "private_key_provider": "write private_key",
            "ocsp_staple": "answers are not stapled", "signed_certificate_timestamp": "",
        }
    )  # fmt: skip
    block.noticed("watched_directory", why="the files themselves are watched")
    block.done()
    return found


def _trusted(block: Block) -> Trusted:
    names = [_alternative(each) for each in block.blocks("match_typed_subject_alt_names")]
    names += [("ANY", each) for one in block.blocks("match_subject_alt_names") if (each := text(one)) is not None]
    system = block.block("system_root_certs")
    if system is not None:
        system.done()
    found = Trusted(
        authorities=material(block.block("trusted_ca")),
        names=tuple(each for each in names if each is not None),
        spki=_digests(block, "verify_certificate_spki"),
        hashes=_hashes(block),
        accept_untrusted=block.word("trust_chain_verification", _TRUSTS, _TRUSTS[0]) == "ACCEPT_UNTRUSTED",
        system=system is not None,
    )
    if found.names and not (found.authorities or found.system):
        field = "match_typed_subject_alt_names"
        block.refuse(
            field if block.has(field) else "match_subject_alt_names", "needs trusted_ca: a name alone proves nothing"
        )
    block.unsupported(
        {
            "crl": "revocation is not looked up here", "only_verify_leaf_cert_crl": "", "max_verify_depth": "",
            "require_signed_certificate_timestamp": "", "allow_expired_certificate": "certificates that ran out are refused",
            "custom_validator_config": "", "ca_certificate_provider_instance": "write trusted_ca",
        }
    )  # fmt: skip
    block.noticed("watched_directory", why="the files themselves are watched")
    block.done()
    return found


def _alternative(block: Block) -> tuple[str, TextMatch] | None:
    kind, matcher = block.word("san_type", _NAMES, _NAMES[0]), text(block.block("matcher"))
    if not block.has("matcher"):
        block.found.refuse(block.at("matcher"), "is needed", about_key=True)
    if kind in ("SAN_TYPE_UNSPECIFIED", "OTHER_NAME"):
        block.found.refuse(block.at("san_type"), "must be EMAIL, DNS, URI or IP_ADDRESS", about_key=True)
    block.unsupported({"oid": ""})
    block.done()
    return None if matcher is None else (kind, matcher)


def _digests(block: Block, name: str) -> tuple[str, ...]:
    found = block.texts(name)
    for each in found:
        try:
            is_right = len(base64.b64decode(each, validate=True)) == _DIGEST
        except (ValueError, binascii.Error):
            is_right = False
        if not is_right:
            block.refuse(name, "must be base64 of SHA-256, 44 characters")
    return found


def _hashes(block: Block) -> tuple[str, ...]:
    found = tuple(each.replace(":", "").lower() for each in block.texts("verify_certificate_hash"))
    if not all(_HASH.fullmatch(each) for each in found):
        block.refuse("verify_certificate_hash", "must be SHA-256 in hex digits")
    return found


def _parameters(block: Block | None) -> TlsParameters:
    if block is None:
        return TlsParameters()
    least, most = (_version(block, name) for name in ("tls_minimum_protocol_version", "tls_maximum_protocol_version"))
    found = TlsParameters(least, most, block.texts("cipher_suites"))
    if least and most and least > most:
        block.refuse("tls_maximum_protocol_version", "must not be below tls_minimum_protocol_version")
    block.noticed("ecdh_curves", "signature_algorithms", why="the machine's own are used")
    block.unsupported({"compliance_policies": ""})
    block.done()
    return found


def _version(block: Block, name: str) -> str:
    value = block.raw(name)
    known = {each.upper(): each for each in _VERSIONS}
    if isinstance(value, str) and value.upper() in known:
        found = known[value.upper()]
    else:
        found = block.word(name, _VERSIONS, _VERSIONS[0])
    return "" if found == "TLS_AUTO" else found
