"""`request_headers_to_add` and its three neighbours, which routes, virtual hosts, route configurations and clusters of a share hold."""

from __future__ import annotations

import re
from typing import Final

from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.formats import parsed
from reachline.doors.envoy.matches import header_name
from reachline.doors.envoy.routes import Append, HeaderAdd, Mutations

__all__ = ["additions", "metadata_match", "mutations"]

_APPENDS: Final = tuple(each.value for each in Append)
_VALUE: Final = re.compile(r"[^\x00\r\n]*")
_ADDED_MOST: Final = 1_000
"""Envoy's own limit."""
_LB: Final = "envoy.lb"


def mutations(block: Block) -> Mutations:
    """What one level changes."""
    return Mutations(
        request_add=additions(block, "request_headers_to_add"),
        request_remove=_removed(block, "request_headers_to_remove"),
        response_add=additions(block, "response_headers_to_add"),
        response_remove=_removed(block, "response_headers_to_remove", is_request=False),
    )


def additions(block: Block, name: str) -> tuple[HeaderAdd, ...]:
    """A list of HeaderValueOptions."""
    found = tuple(each for inner in block.blocks(name) if (each := _added(inner)) is not None)
    if len(found) > _ADDED_MOST:
        block.refuse(name, f"must have at most {_ADDED_MOST} headers")
    return found


def _added(block: Block) -> HeaderAdd | None:
    header, append = block.block("header"), _append(block)
    keep_empty = block.flag("keep_empty_value")
    block.done()
    if header is None:
        block.found.refuse(block.at("header"), "is needed", about_key=True)
        return None
    name = header_name(header, "key")
    if name == "host" or (name.startswith(":") and append is Append.APPEND):
        header.refuse("key", "must not be host or begin with ':'", "rewrite the host by the route's action")
    value = header.text("value")
    header.unsupported({"raw_value": "use value"})
    header.done()
    pieces, rule, hint = parsed(value)
    if rule:
        header.refuse("value", rule, hint)
    elif not _VALUE.fullmatch(value):
        header.refuse("value", "must be a text of one line")
    return HeaderAdd(name=name, value=pieces, append=append, keep_empty=keep_empty)


def _append(block: Block) -> Append:
    """By `append_action`, or by the older `append`."""
    found = Append(block.word("append_action", _APPENDS, _APPENDS[0]))
    if not block.has("append"):
        block.aside("append")
        return found
    if block.has("append_action"):
        block.refuse("append", "excludes append_action, which stands here too", "keep append_action")
    return Append.APPEND if block.flag("append", default=True) else Append.OVERWRITE_OR_ADD


def _removed(block: Block, name: str, *, is_request: bool = True) -> tuple[str, ...]:
    found = tuple(each.lower() for each in block.texts(name))
    for each in found:
        if not each or not _VALUE.fullmatch(each):
            block.refuse(name, "must name headers")
        elif is_request and (each == "host" or each.startswith(":")):
            block.refuse(name, f"must not name {each}: a request has it in any case")
    return found


def metadata_match(block: Block | None) -> dict[str, str]:
    """Of the subset whose endpoints are wanted: texts by key, under `envoy.lb`."""
    if block is None:
        return {}
    block.unsupported({"typed_filter_metadata": "write filter_metadata"})
    filters = block.block("filter_metadata")
    block.done()
    value = None if filters is None else filters.raw(_LB)
    if value is None:
        return {}
    assert filters is not None
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        filters.refuse(_LB, "must be texts by key: metadata here is texts")
        return {}
    return dict(value)
