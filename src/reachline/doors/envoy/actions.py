"""What a route does with a request: sends it on, redirects it, or answers it."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from typing import Final

from reachline.doors.envoy.fields import UINT32, Block
from reachline.doors.envoy.matches import header_name, rewrite
from reachline.doors.envoy.mutating import metadata_match, mutations
from reachline.doors.envoy.retries import hashes, retry
from reachline.doors.envoy.routes import (
    DirectResponse,
    Forward,
    HostRewrite,
    Redirect,
    RegexRewrite,
    Upgrade,
    WeightedCluster,
)
from reachline.doors.envoy.secured import Material

__all__ = ["direct", "forward", "material", "redirect", "upgrades", "weighted"]

_CLUSTERS: Final = (
    "cluster", "cluster_header", "weighted_clusters", "cluster_specifier_plugin", "inline_cluster_specifier_plugin",
)  # fmt: skip
_HOSTS: Final = {
    "host_rewrite_literal": HostRewrite.LITERAL, "auto_host_rewrite": HostRewrite.AUTO,
    "host_rewrite_header": HostRewrite.HEADER, "host_rewrite_path_regex": HostRewrite.PATH_REGEX,
}  # fmt: skip
_NOT_FOUND: Final = {"SERVICE_UNAVAILABLE": 503, "NOT_FOUND": 404, "INTERNAL_SERVER_ERROR": 500}
_REDIRECTS: Final = {
    "MOVED_PERMANENTLY": 301, "FOUND": 302, "SEE_OTHER": 303, "TEMPORARY_REDIRECT": 307, "PERMANENT_REDIRECT": 308,
}  # fmt: skip
_UNSUPPORTED: Final = {
    "cluster_specifier_plugin": "name the cluster", "inline_cluster_specifier_plugin": "name the cluster",
    "path_rewrite_policy": "use regex_rewrite", "path_rewrite": "use regex_rewrite", "host_rewrite": "use host_rewrite_literal",
    "early_data_policy": "there is no early data here", "retry_policy_typed_config": "write retry_policy",
    "request_mirror_policies": "requests are sent to one place here", "cors": "there is no CORS filter here",
    "internal_redirect_policy": "redirects are the client's to follow",
    "internal_redirect_action": "redirects are the client's to follow", "hedge_policy": "requests are not hedged here",
}  # fmt: skip
_BODY_MOST: Final = 4_096
"""Bytes of a direct answer: Envoy's own default."""
_PRIORITIES: Final = ("DEFAULT", "HIGH")
_LINE: Final = re.compile(r"[^\x00\r\n]*")


def forward(block: Block) -> Forward:
    """A RouteAction."""
    kind, shares = block.one_of(_CLUSTERS), block.block("weighted_clusters")
    if kind is None:
        block.found.refuse(block.path, f"must have one of {', '.join(_CLUSTERS[:3])}", about_key=True)
    cluster, by_header = block.text("cluster"), header_name(block, "cluster_header", needed=False)
    for name, value in (("cluster", cluster), ("cluster_header", by_header)):
        if kind == name and not value:
            block.refuse(name, "must not be empty")
    weights, by_hash, header = weighted(shares)
    prefix, regex = _path_rewrite(block)
    host, host_text, host_regex = _host_rewrite(block)
    policies, cookies = hashes(block, "hash_policy")
    durations = block.block("max_stream_duration")
    timeout = block.seconds("timeout", 15.0, least=0)
    found = Forward(
        cluster=cluster,
        cluster_header=by_header,
        weighted=weights,
        weighted_by_hash=by_hash,
        weighted_header=header,
        not_found=_NOT_FOUND[block.word("cluster_not_found_response_code", tuple(_NOT_FOUND), "SERVICE_UNAVAILABLE")],
        metadata_match=metadata_match(block.block("metadata_match")),
        prefix_rewrite=prefix,
        regex_rewrite=regex,
        host_rewrite=host,
        host_text=host_text,
        host_regex=host_regex,
        append_x_forwarded_host=block.flag("append_x_forwarded_host"),
        timeout=(timeout or None) if durations is None else None,
        idle_timeout=block.maybe_seconds("idle_timeout"),
        grpc_timeout_most=block.maybe_seconds("max_grpc_timeout"),
        grpc_timeout_offset=block.seconds("grpc_timeout_offset", 0.0, least=0),
        retry=retry(block.block("retry_policy")),
        high_priority=block.word("priority", _PRIORITIES, "DEFAULT") == "HIGH",
        hash=policies,
        hash_cookies=cookies,
        upgrades=upgrades(block),
    )
    _rest(block)
    return found if durations is None else _by_duration(durations, found)


def _rest(block: Block) -> None:
    block.unsupported(_UNSUPPORTED)
    block.noticed("rate_limits", "include_vh_rate_limits", why="there is no rate limit filter to read it")
    block.noticed("flush_timeout", why="idle_timeout counts")
    block.aside("max_internal_redirects")
    block.done()


def weighted(block: Block | None) -> tuple[tuple[WeightedCluster, ...], bool, str]:
    """The clusters of a share, whether the hash key shares out, and the header that does."""
    if block is None:
        return (), False, ""
    found = []
    for each in block.blocks("clusters"):
        one = WeightedCluster(
            name=each.text("name"),
            weight=each.whole("weight"),
            mutations=mutations(each),
            metadata_match=metadata_match(each.block("metadata_match")),
            host_rewrite=each.text("host_rewrite_literal"),
        )
        each.unsupported(
            {"cluster_header": "name the cluster", "typed_per_filter_config": "there is no filter chain here"}
        )
        each.done()
        if not one.name and not each.has("cluster_header"):
            each.found.refuse(each.at("name"), "is needed and must not be empty", about_key=True)
        found.append(one)
    total = sum(each.weight for each in found)
    if not found:
        block.found.refuse(block.at("clusters"), "is needed and must not be empty", about_key=True)
    elif not 0 < total <= UINT32:
        block.refuse("clusters", f"has weights that sum to {total}: 1 to {UINT32} are wanted")
    block.one_of(("header_name", "use_hash_policy"))
    by_hash, header = block.flag("use_hash_policy"), header_name(block, "header_name", needed=False)
    block.noticed("runtime_key_prefix", why="there is no runtime here: the weights count")
    block.noticed("total_weight", why="the sum of the weights counts")
    block.done()
    return tuple(found), by_hash, header


def _path_rewrite(block: Block) -> tuple[str, RegexRewrite | None]:
    block.one_of(("prefix_rewrite", "regex_rewrite", "path_rewrite_policy"))
    prefix = block.text("prefix_rewrite")
    if not _LINE.fullmatch(prefix):
        block.refuse("prefix_rewrite", "must be a text of one line")
    return prefix, rewrite(block.block("regex_rewrite"))


def _host_rewrite(block: Block) -> tuple[HostRewrite | None, str, RegexRewrite | None]:
    kind = block.one_of(_HOSTS)
    literal, by_auto = block.text("host_rewrite_literal"), block.flag("auto_host_rewrite")
    header = header_name(block, "host_rewrite_header", needed=False)
    regex = rewrite(block.block("host_rewrite_path_regex"))
    if not _LINE.fullmatch(literal):
        block.refuse("host_rewrite_literal", "must be a text of one line")
    if kind is None or not (literal or by_auto or header or regex):
        return None, "", None
    return _HOSTS[kind], literal or header, regex


def _by_duration(block: Block, found: Forward) -> Forward:
    """With the block `max_stream_duration`."""
    found = replace(
        found,
        is_by_duration=True,
        max_stream_duration=block.maybe_seconds("max_stream_duration"),
        grpc_duration_most=block.maybe_seconds("grpc_timeout_header_max"),
        grpc_duration_offset=block.seconds("grpc_timeout_header_offset", 0.0, least=0),
    )
    block.done()
    return found


def upgrades(block: Block) -> tuple[Upgrade, ...]:
    """`upgrade_configs` of a manager or a route."""
    found: dict[str, Upgrade] = {}
    for each in block.blocks("upgrade_configs"):
        kind = each.text("upgrade_type").lower()
        enabled = each.flag("enabled", default=True)
        each.unsupported(
            {"filters": "there is no other filter chain here", "connect_config": "CONNECT is not ended here"}
        )
        each.done()
        if kind in found:
            each.refuse("upgrade_type", "stands here a second time")
        if kind not in ("websocket", ""):
            each.refuse("upgrade_type", "is not supported here", "websocket is")
        found[kind] = Upgrade(kind, enabled)
    return tuple(found.values())


def redirect(block: Block) -> Redirect:
    """A RedirectAction."""
    block.one_of(("https_redirect", "scheme_redirect"))
    block.one_of(("path_redirect", "prefix_rewrite", "regex_rewrite"))
    texts = {name: block.text(name) for name in ("scheme_redirect", "host_redirect", "path_redirect", "prefix_rewrite")}
    for name, value in texts.items():
        if not _LINE.fullmatch(value):
            block.refuse(name, "must be a text of one line")
    found = Redirect(
        scheme="https" if block.flag("https_redirect") else texts["scheme_redirect"],
        host=texts["host_redirect"],
        port=block.whole("port_redirect", most=65_535),
        path=texts["path_redirect"],
        prefix_rewrite=texts["prefix_rewrite"],
        regex_rewrite=rewrite(block.block("regex_rewrite")),
        status=_REDIRECTS[block.word("response_code", tuple(_REDIRECTS), "MOVED_PERMANENTLY")],
        strip_query=block.flag("strip_query"),
    )
    block.done()
    return found


def direct(block: Block, *, most: int = _BODY_MOST) -> DirectResponse:
    """A DirectResponseAction."""
    status = block.whole("status", 0)
    if not 200 <= status < 600:
        block.found.refuse(block.at("status"), "must be a status from 200 to 599", about_key=not block.has("status"))
    body = material(block.block("body"))
    block.unsupported({"body_format": "write body"})
    block.done()
    if len(body.inline) > most:
        block.refuse(
            "body", f"has {len(body.inline)} bytes, at most {most}", "raise max_direct_response_body_size_bytes"
        )
    return DirectResponse(status=status, body=body.inline, file=body.file)


def material(block: Block | None) -> Material:
    """A DataSource."""
    if block is None:
        return Material()
    kinds = ("filename", "inline_bytes", "inline_string", "environment_variable")
    kind = block.one_of(kinds)
    file, text, coded = block.text("filename"), block.text("inline_string"), block.text("inline_bytes")
    block.unsupported({"environment_variable": "write a file"})
    block.noticed("watched_directory", why="the file itself is watched")
    block.done()
    if kind is None:
        block.found.refuse(block.path, f"must have one of {', '.join(kinds[:3])}", about_key=True)
    elif kind == "filename" and not file:
        block.refuse(kind, "must not be empty")
    try:
        return Material(base64.b64decode(coded, validate=True) if coded else text.encode(), file)
    except (ValueError, binascii.Error):
        block.refuse("inline_bytes", "must be base64")
        return Material()
