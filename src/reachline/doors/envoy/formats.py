"""Format strings of headers and logs, as `%START_TIME% "%REQ(:METHOD)%"`, into their pieces; an unknown command is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.routes import Command, Format
from reachline.doors.findings import Findings
from reachline.doors.origin import Path
from reachline.doors.wording import nearest

__all__ = ["DEFAULT", "FORMAT_MOST", "OPERATORS", "parsed", "read_format", "read_json"]

FORMAT_MOST: Final = 16_384
"""Characters of a format string: a line of a log is a screen at most."""
_DEEPEST: Final = 8
"""Objects in objects of one line of a log."""
_COMMAND: Final = re.compile(r"%([A-Z0-9_]+)(?:\(([^)]*)\))?(?::([0-9]{1,6}))?%")

PLAIN: Final = frozenset((
    "ACCESS_LOG_TYPE", "BYTES_RECEIVED", "BYTES_RETRANSMITTED", "BYTES_SENT", "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS", "DOWNSTREAM_DETECTED_CLOSE_TYPE", "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_DIRECT_LOCAL_PORT", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_DIRECT_REMOTE_PORT", "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED", "DOWNSTREAM_HEADER_BYTES_SENT", "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_LOCAL_CLOSE_REASON", "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_PORT", "DOWNSTREAM_LOCAL_SUBJECT", "DOWNSTREAM_LOCAL_URI_SAN", "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CERT_V_END", "DOWNSTREAM_PEER_CERT_V_START", "DOWNSTREAM_PEER_DNS_SAN", "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256", "DOWNSTREAM_PEER_ISSUER", "DOWNSTREAM_PEER_SERIAL", "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN", "DOWNSTREAM_REMOTE_ADDRESS", "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER", "DOWNSTREAM_TLS_SESSION_ID", "DOWNSTREAM_TLS_VERSION", "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED", "DOWNSTREAM_WIRE_BYTES_SENT", "DURATION", "FILTER_CHAIN_NAME", "GRPC_STATUS_NUMBER",
    "HOSTNAME", "LOCAL_REPLY_BODY", "PROTOCOL", "REQUESTED_SERVER_NAME", "REQUEST_DURATION", "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION", "RESPONSE_CODE", "RESPONSE_DURATION", "RESPONSE_FLAGS", "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES", "RESPONSE_TRAILERS_BYTES", "RESPONSE_TX_DURATION", "ROUNDTRIP_DURATION", "ROUTE_NAME", "STREAM_ID",
    "TRACE_ID", "UNIQUE_ID", "UPSTREAM_CLUSTER", "UPSTREAM_CLUSTER_RAW", "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION", "UPSTREAM_DETECTED_CLOSE_TYPE", "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT", "UPSTREAM_HOST", "UPSTREAM_HOSTS_ATTEMPTED", "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT", "UPSTREAM_LOCAL_ADDRESS", "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_LOCAL_CLOSE_REASON", "UPSTREAM_LOCAL_PORT", "UPSTREAM_PEER_CERT", "UPSTREAM_PEER_ISSUER", "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PROTOCOL", "UPSTREAM_REMOTE_ADDRESS", "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT", "UPSTREAM_TLS_CIPHER", "UPSTREAM_TLS_SESSION_ID", "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON", "UPSTREAM_WIRE_BYTES_RECEIVED", "UPSTREAM_WIRE_BYTES_SENT", "VIRTUAL_CLUSTER_NAME",
))  # fmt: skip
"""Operators that take nothing."""
_HEADERS: Final = frozenset(("REQ", "RESP", "TRAILER"))
_NEEDING: Final = _HEADERS | {"ENVIRONMENT", "QUERY_PARAM"}
_SHORT: Final = {"REQUEST_HEADER": "REQ", "RESPONSE_HEADER": "RESP", "RESPONSE_TRAILER": "TRAILER"}
"""The same commands by their longer names."""
_OPTIONAL: Final = frozenset(("EMIT_TIME", "GRPC_STATUS", "PATH", "QUERY_PARAMS", "START_TIME", "START_TIME_LOCAL"))
OPERATORS: Final = PLAIN | _NEEDING | _OPTIONAL
"""Every operator that is read here."""
_FOREIGN: Final = frozenset((
    "CEL", "CLUSTER_METADATA", "COMMON_DURATION", "COROUTE", "CUSTOM_FLAGS", "DYNAMIC_METADATA", "EMIT_TIME_LOCAL", "FILTER_STATE",
    "METADATA", "PACKETS_RETRANSMITTED", "TLS_JA3_FINGERPRINT", "TLS_JA4_FINGERPRINT", "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_FILTER_STATE", "UPSTREAM_METADATA",
))  # fmt: skip
"""Envoy's, and not supported here."""


def parsed(text: str) -> tuple[Format, str, str]:
    """The pieces, and why they are none as (rule, hint): empty texts where nothing is wrong."""
    pieces: list[str | Command] = []
    at = 0
    if len(text) > FORMAT_MOST:
        return (), f"has more than {FORMAT_MOST} characters", ""
    while at < len(text):
        sign = text.find("%", at)
        if sign != at:
            _literal(pieces, text[at:] if sign < 0 else text[at:sign])
            at = len(text) if sign < 0 else sign
        elif text.startswith("%%", at):
            _literal(pieces, "%")
            at += 2
        else:
            found = _COMMAND.match(text, at)
            if found is None:
                return (), f"holds no command at character {at + 1}", "write %% for a percent sign"
            rule, hint = _fault(found)
            if rule:
                return (), rule, hint
            most = None if found[3] is None else int(found[3])
            pieces.append(Command(_SHORT.get(found[1], found[1]), found[2] or "", most))
            at = found.end()
    return tuple(pieces), "", ""


def _literal(pieces: list[str | Command], text: str) -> None:
    if pieces and isinstance(pieces[-1], str):
        pieces[-1] += text
    else:
        pieces.append(text)


def _fault(found: re.Match[str]) -> tuple[str, str]:
    operator, argument = _SHORT.get(found[1], found[1]), found[2]
    if operator in _FOREIGN:
        return f"holds %{operator}%, which is not supported here", ""
    if operator not in OPERATORS:
        close = nearest(operator, sorted(OPERATORS))
        return f"holds the unknown command %{operator}%", f"did you mean %{close}%?" if close else ""
    if operator in PLAIN and (argument is not None or found[3] is not None):
        return f"holds %{operator}% with an argument or a length: it takes neither", ""
    if operator in _NEEDING and not argument:
        return f"holds %{operator}% without an argument: it needs one", f"as in %{operator}(name)%"
    if operator in _HEADERS and argument and argument.count("?") > 1:
        return f"holds %{operator}% with more than one alternative header", "one `?` is allowed"
    if operator == "QUERY_PARAMS" and argument not in (None, "ORIG", "DECODED"):
        return "holds %QUERY_PARAMS% with an option that is neither ORIG nor DECODED", ""
    return "", ""


def read_format(block: Block, name: str, *, needed: bool = False) -> Format:
    """The format string of a field; empty where it does not stand there or is wrong."""
    text = block.text(name, needed=needed)
    pieces, rule, hint = parsed(text)
    if rule:
        block.refuse(name, rule, hint)
    return pieces


def read_json(value: object, path: Path, found: Findings, depth: int = 0) -> object:
    """A format object: its texts are format strings, its other values stand as they are."""
    if depth > _DEEPEST:
        found.refuse(path, f"is nested deeper than {_DEEPEST} blocks")
        return None
    if isinstance(value, str):
        pieces, rule, hint = parsed(value)
        if rule:
            found.refuse(path, rule, hint)
        return pieces
    if isinstance(value, Mapping):
        return {str(key): read_json(each, (*path, str(key)), found, depth + 1) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [read_json(each, (*path, at), found, depth + 1) for at, each in enumerate(value)]
    return value


DEFAULT: Final = parsed(
    '[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" '
    "%RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% "
    '%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" '
    '"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"\n'
)[0]
"""Envoy's default line."""
