"""`health_checks` of a cluster: when endpoints are asked, and what."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Final

from reachline.core.checking_rules import CheckRules
from reachline.doors.envoy.fields import UINT64, Block
from reachline.doors.envoy.values import CheckSettings
from reachline.errors import ConfigError
from reachline.talk.asking import Asked
from reachline.talk.checked import GrpcCheck, HttpCheck, RedisCheck, TcpCheck

__all__ = ["check"]

_KINDS: Final = ("http_health_check", "tcp_health_check", "grpc_health_check", "custom_health_check")
_NEEDED: Final = ("timeout", "interval", "unhealthy_threshold", "healthy_threshold")
_METHODS: Final = (
    "METHOD_UNSPECIFIED", "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
)  # fmt: skip
_CODECS: Final = ("HTTP1", "HTTP2", "HTTP3")
_REDIS: Final = "envoy.health_checkers.redis"
_REDIS_TYPE: Final = "type.googleapis.com/envoy.extensions.health_checkers.redis.v3.Redis"
_FILE_SINK: Final = "type.googleapis.com/envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink"
_APPENDS: Final = (
    "APPEND_IF_EXISTS_OR_ADD", "ADD_IF_ABSENT", "OVERWRITE_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS",
)  # fmt: skip
_ADDS: Final = _APPENDS[:3]
_UNSUPPORTED: Final = {
    "alt_port": "use health_check_config.port_value of the endpoint",
    "event_service": "use event_logger with a file sink",
}
_TLS: Final = {
    "transport_socket_match_criteria": "checks speak plain text here", "tls_options": "checks speak plain text here",
}  # fmt: skip
"""By who leaves it to others how endpoints are spoken to."""
_HEADER: Final = re.compile(r"[^\x00\r\n]*")


def check(cluster: Block, *, http2: bool, is_whole: bool = False) -> CheckSettings | None:
    """The cluster's check; None where there is none. `http2`: whether its endpoints speak HTTP/2.

    `is_whole`: whoever checks knows the cluster's transport sockets.
    """
    blocks = cluster.blocks("health_checks")
    if not blocks:
        return None
    for each in blocks[1:]:
        each.found.refuse(each.path, "is a second check of the cluster", "Envoy takes one a cluster", about_key=True)
    block = blocks[0]
    rules = _rules(block)
    asked = _asked(block, http2=http2)
    log = _log_of(block)
    block.unsupported(_UNSUPPORTED if is_whole else _UNSUPPORTED | _TLS)
    socket, alpn = _socket(block) if is_whole else (None, ())
    block.done()
    if rules is None or asked is None:
        return None
    return CheckSettings(rules=rules, asked=asked, event_log=log, socket=socket, alpn=alpn)


def _socket(block: Block) -> tuple[Mapping[str, object] | None, tuple[str, ...]]:
    """What stands for an endpoint's metadata when its transport socket is chosen for checks, and the protocols that are offered there."""
    criteria, options = block.raw("transport_socket_match_criteria"), block.block("tls_options")
    if criteria is not None and not isinstance(criteria, Mapping):
        block.refuse("transport_socket_match_criteria", "must be a block, as in transport_socket_matches")
        criteria = None
    alpn: tuple[str, ...] = ()
    if options is not None:
        alpn = options.texts("alpn_protocols")
        options.done()
    return criteria, alpn


def _rules(block: Block) -> CheckRules | None:
    timeout, interval = block.ms("timeout"), block.ms("interval")
    unhealthy, healthy = _threshold(block, "unhealthy_threshold"), _threshold(block, "healthy_threshold")
    for name in _NEEDED:
        if not block.has(name):
            block.found.refuse(block.at(name), "is needed", about_key=True)
    rules = CheckRules(
        timeout or 1,
        interval or 1,
        unhealthy or 1,
        healthy or 1,
        initial_jitter_ms=block.ms("initial_jitter", 0, least=0) or 0,
        interval_jitter_ms=block.ms("interval_jitter", 0, least=0) or 0,
        interval_jitter_percent=block.whole("interval_jitter_percent"),
        reuse_connection=block.flag("reuse_connection", default=True),
        no_traffic_interval_ms=block.ms("no_traffic_interval", 60_000) or 60_000,
        no_traffic_healthy_interval_ms=block.ms("no_traffic_healthy_interval"),
        unhealthy_interval_ms=block.ms("unhealthy_interval"),
        unhealthy_edge_interval_ms=block.ms("unhealthy_edge_interval"),
        healthy_edge_interval_ms=block.ms("healthy_edge_interval"),
        always_log_health_check_failures=block.flag("always_log_health_check_failures"),
        always_log_health_check_success=block.flag("always_log_health_check_success"),
    )
    return rules if timeout and interval and unhealthy and healthy else None


def _threshold(block: Block, name: str) -> int | None:
    count = block.maybe(name)
    if count == 0 and block.has(name):
        block.refuse(name, "must be 1 or more", "Envoy takes 0, and never reaches it")
    return count


def _asked(block: Block, *, http2: bool) -> Asked | None:
    kind = block.one_of(_KINDS)
    inner = {name: block.block(name) for name in _KINDS}
    if kind is None:
        block.found.refuse(block.path, f"must have one of {', '.join(_KINDS)}", about_key=True)
        return None
    own = inner[kind]
    assert own is not None
    match kind:
        case "http_health_check":
            return _http(own)
        case "tcp_health_check":
            return _tcp(own)
        case "grpc_health_check":
            if not http2:
                rule = "needs a cluster that speaks HTTP/2"
                hint = "set explicit_http_config.http2_protocol_options in its HttpProtocolOptions"
                block.found.refuse(own.path, rule, hint, about_key=True)
            return _grpc(own)
        case _:
            return _custom(own)


def _made(block: Block, make: Callable[[], Asked]) -> Asked | None:
    """The check, unless a rule of its own is broken: then that is told at its field."""
    before = len(block.found)
    try:
        return make()
    except ConfigError as error:
        for each in error.problems if len(block.found) == before else ():
            name = _FIELDS.get(each.path.partition("[")[0], each.path)
            block.found.refuse(block.at(name), each.rule, each.hint)
        return None


_FIELDS: Final = {"headers": "request_headers_to_add", "version": "codec_client_type"}


def _http(block: Block) -> Asked | None:
    path = block.text("path", needed=True)
    host = block.text("host")
    method = block.word("method", _METHODS, "GET")
    send = _payload(block.block("send"), is_hex=True)
    receive = tuple(_payload(each, is_hex=True) for each in block.blocks("receive"))
    buffer = block.whole("response_buffer_size", 1_024, most=UINT64)
    headers = _headers(block, "request_headers_to_add")
    expected = _ranges(block, "expected_statuses") or ((200, 201),)
    retriable = _ranges(block, "retriable_statuses")
    codec = block.word("codec_client_type", _CODECS, "HTTP1")
    if codec == "HTTP3":
        block.refuse("codec_client_type", "HTTP3 is not supported here", "HTTP1 and HTTP2 are")
    block.unsupported(
        {
            "service_name_matcher": "it needs the runtime key health_check.verify_cluster",
            "request_headers_to_remove": "checks send no header beside those added",
        }
    )
    block.done()
    return _made(
        block,
        lambda: HttpCheck(
            path=path or "/",
            method="GET" if method == "METHOD_UNSPECIFIED" else method,
            host=host,
            headers=headers,
            send=send,
            expected_statuses=expected,
            retriable_statuses=retriable,
            receive=receive,
            response_buffer_size=buffer,
            version="2" if codec == "HTTP2" else "1.1",
        ),
    )


def _tcp(block: Block) -> Asked | None:
    send = _payload(block.block("send"), is_hex=True)
    receive = tuple(_payload(each, is_hex=True) for each in block.blocks("receive"))
    block.unsupported({"proxy_protocol_config": "checks send no PROXY header"})
    block.done()
    return _made(block, lambda: TcpCheck(send=send, receive=receive))


def _grpc(block: Block) -> Asked | None:
    service, authority = block.text("service_name"), block.text("authority")
    metadata = _headers(block, "initial_metadata")
    block.done()
    return _made(block, lambda: GrpcCheck(service_name=service, authority=authority, metadata=metadata))


def _custom(block: Block) -> Asked | None:
    block.text("name", needed=True)
    config = block.block("typed_config")
    type_url = "" if config is None else config.text("@type")
    # As in Envoy the type decides, whatever the name says.
    if config is None or type_url != _REDIS_TYPE:
        block.found.refuse(
            block.path, f"only {_REDIS} is supported of custom checks, with its typed_config", about_key=True
        )
        block.aside("typed_config")
        return None
    key = config.text("key")
    config.unsupported({"aws_iam": "checks send no credentials"})
    config.done()
    block.done()
    return _made(block, lambda: RedisCheck(key=key))


def _payload(block: Block | None, *, is_hex: bool) -> bytes:
    """`text` in hex digits, or `binary` in base64."""
    if block is None:
        return b""
    kind = block.one_of(("text", "binary"))
    text, binary = block.text("text"), block.text("binary")
    block.done()
    if kind is None or not (text or binary):
        block.found.refuse(block.path, "must have text (hex digits) or binary (base64)", about_key=True)
        return b""
    try:
        return bytes.fromhex(text) if kind == "text" and is_hex else base64.b64decode(binary, validate=True)
    except (ValueError, binascii.Error):
        block.refuse(kind, "must be pairs of hex digits" if kind == "text" else "must be base64")
        return b""


def _ranges(block: Block, name: str) -> tuple[tuple[int, int], ...]:
    """Half-open ranges of statuses."""
    found = []
    for each in block.blocks(name):
        start, end = (each.whole(key, least=-(2**63), most=2**63 - 1) for key in ("start", "end"))
        each.done()
        if not 100 <= start < end <= 600:
            each.found.refuse(each.path, "must be a half-open range of statuses, 100 to 600, start below end")
        else:
            found.append((start, end))
    return tuple(found)


def _headers(block: Block, name: str) -> tuple[tuple[str, str], ...]:
    found = []
    for each in block.blocks(name):
        header = each.block("header")
        if each.word("append_action", _APPENDS, _APPENDS[0]) not in _ADDS:
            each.refuse("append_action", f"only {', '.join(_ADDS)} are supported")
        each.aside("append")
        each.unsupported({"keep_empty_value": "a header without a value is not sent"})
        each.done()
        if header is None:
            each.found.refuse(each.path, "must have a header", about_key=True)
            continue
        key, value = header.text("key", needed=True), header.text("value")
        header.unsupported({"raw_value": "use value"})
        header.done()
        if "%" in value or not _HEADER.fullmatch(value):
            header.refuse("value", "must be a plain text of one line", "formatters such as %START_TIME% are not read")
        elif key and value:
            found.append((key, value))
    return tuple(found)


def _log_of(block: Block) -> str:
    """The file of events."""
    path = block.text("event_log_path")
    for each in block.blocks("event_logger"):
        each.aside("name")
        config = each.block("typed_config")
        each.done()
        if config is None or config.text("@type") != _FILE_SINK:
            each.found.refuse(each.path, "only the file sink of check events is supported", about_key=True)
            continue
        path = config.text("event_log_path", needed=True)
        config.done()
    return path
