"""`access_log` of managers, proxies, listeners and the admin: file and stream logs, their format and their filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reachline.doors.envoy.actions import material
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.formats import parsed, read_format, read_json
from reachline.doors.envoy.logged import AccessLog, Comparison, LogFilter, LogFormat
from reachline.doors.envoy.matches import header, percent
from reachline.doors.envoy.routes import Format

__all__ = ["access_logs"]

_LOGGERS: Final = "envoy.extensions.access_loggers."
_FILE: Final = f"{_LOGGERS}file.v3.FileAccessLog"
_STREAMS: Final = {
    f"{_LOGGERS}stream.v3.StdoutAccessLog": "/dev/stdout",
    f"{_LOGGERS}stream.v3.StderrAccessLog": "/dev/stderr",
}
_OPERATORS: Final = ("EQ", "GE", "LE", "NE")
_FLAGS: Final = frozenset((
    "LH", "UH", "UT", "LR", "UR", "UF", "UC", "UO", "NR", "DI", "FI", "RL", "UAEX", "RLSE", "DC", "URX", "SI", "IH", "DPE", "UMSDR",
    "RFCF", "NFCF", "DT", "UPE", "NC", "OM", "DF", "DO", "DR", "UDO",
))  # fmt: skip
_STATUSES: Final = (
    "OK", "CANCELED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
_FILTERS: Final = (
    "status_code_filter", "duration_filter", "not_health_check_filter", "traceable_filter", "runtime_filter", "and_filter",
    "or_filter", "header_filter", "response_flag_filter", "grpc_status_filter", "extension_filter", "metadata_filter",
    "log_type_filter",
)  # fmt: skip
_FILTERS_UNSUPPORTED: Final = dict.fromkeys(
    ("traceable_filter", "extension_filter", "metadata_filter", "log_type_filter"), ""
)
_DEEPEST: Final = 8
"""Filters in filters."""


def access_logs(block: Block, name: str = "access_log") -> tuple[AccessLog, ...]:
    """The logs of a list."""
    return tuple(each for inner in block.blocks(name) if (each := _log(inner)) is not None)


def _log(block: Block) -> AccessLog | None:
    block.aside("name")
    rule, typed = block.block("filter"), block.typed("typed_config")
    block.done()
    filtered = None if rule is None else _filter(rule, 0)
    if typed is None:
        block.found.refuse(block.at("typed_config"), "is needed", about_key=True)
        return None
    kind, config = typed
    fields: tuple[str, ...] = ("log_format",)
    if kind == _FILE:
        path = config.text("path", needed=True)
        fields = ("format", "json_format", "typed_json_format", "log_format")
    elif kind in _STREAMS:
        path = _STREAMS[kind]
    else:
        config.refuse("@type", "is no log that is supported here", "a file, StdoutAccessLog and StderrAccessLog are")
        return None
    found = _format(config, config.one_of(fields))
    config.done()
    return AccessLog(path=path, format=found, filter=filtered)


def _format(config: Block, kind: str | None) -> LogFormat:
    match kind:
        case "log_format":
            return _substitution(config.block(kind))
        case "format":
            return LogFormat(text=read_format(config, kind) or None)
        case "json_format" | "typed_json_format":
            return LogFormat(json=_object(config, kind))
        case _:
            return LogFormat()


def _substitution(block: Block | None) -> LogFormat:
    """A SubstitutionFormatString."""
    if block is None:
        return LogFormat()
    kinds = ("text_format", "json_format", "text_format_source")
    kind = block.one_of(kinds)
    omit = block.flag("omit_empty_values")
    block.noticed("content_type", why="it is of answers")
    block.aside("json_format_options")
    block.unsupported({"formatters": "only Envoy's own commands are known"})
    found = LogFormat(omit_empty=omit)
    match kind:
        case "text_format":
            found = LogFormat(text=read_format(block, kind, needed=False) or None, omit_empty=omit)
        case "json_format":
            found = LogFormat(json=_object(block, kind), omit_empty=omit)
        case "text_format_source":
            found = LogFormat(text=_from_source(block) or None, omit_empty=omit)
        case _:
            block.found.refuse(block.path, f"must have one of {', '.join(kinds)}", about_key=True)
    block.done()
    return found


def _from_source(block: Block) -> Format:
    source = material(block.block("text_format_source"))
    if source.file:
        block.refuse("text_format_source", "is not supported of a file", "write inline_string")
        return ()
    pieces, rule, hint = parsed(source.inline.decode(errors="replace"))
    if rule:
        block.refuse("text_format_source", rule, hint)
    return pieces


def _object(block: Block, name: str) -> Mapping[str, object] | None:
    found = read_json(block.raw(name), block.at(name), block.found)
    if isinstance(found, dict):
        return found
    block.refuse(name, "must be a block of format strings by key")
    return None


def _filter(block: Block, depth: int) -> LogFilter | None:
    kind = block.one_of(_FILTERS)
    found: LogFilter | None = None
    if depth > _DEEPEST:
        block.found.refuse(block.path, f"is nested deeper than {_DEEPEST} filters")
    elif kind is None:
        block.found.refuse(block.path, f"must have one of {', '.join(_FILTERS)}", about_key=True)
    elif kind not in _FILTERS_UNSUPPORTED:
        inner = block.block(kind)
        found = None if inner is None else _one(kind.removesuffix("_filter"), inner, depth)
    block.unsupported(_FILTERS_UNSUPPORTED)
    block.aside(*_FILTERS)
    block.done()
    return found


def _one(kind: str, block: Block, depth: int) -> LogFilter | None:
    match kind:
        case "status_code" | "duration":
            found = LogFilter(kind=kind.removesuffix("_code"), comparison=_comparison(block))
        case "header":
            inner = block.block("header")
            if inner is None:
                block.found.refuse(block.at("header"), "is needed", about_key=True)
            found = LogFilter(kind=kind, header=None if inner is None else header(inner))
        case "response_flag":
            found = LogFilter(kind=kind, words=_words(block, "flags", _FLAGS))
        case "grpc_status":
            words = frozenset(each.upper() for each in block.texts("statuses"))
            if not words <= set(_STATUSES):
                block.refuse("statuses", f"must be of {', '.join(_STATUSES)}")
            found = LogFilter(kind=kind, words=words, exclude=block.flag("exclude"))
        case "runtime":
            share = block.block("percent_sampled")
            block.text("runtime_key", needed=True)
            block.aside("use_independent_randomness")
            found = LogFilter(kind="fraction", fraction=(0, 100) if share is None else percent(share))
        case "and" | "or":
            inner_blocks = block.blocks("filters")
            if len(inner_blocks) < 2:
                block.refuse("filters", "must be two filters or more")
            made = tuple(each for one in inner_blocks if (each := _filter(one, depth + 1)) is not None)
            found = LogFilter(kind=kind, inner=made)
        case _:
            found = LogFilter(kind=kind)
    block.done()
    return found


def _words(block: Block, name: str, known: frozenset[str]) -> frozenset[str]:
    found = block.texts(name)
    for each in found:
        if each not in known:
            block.refuse(name, f"holds {each}, which is none of {', '.join(sorted(known))}")
    return frozenset(found)


def _comparison(block: Block) -> Comparison:
    inner = block.block("comparison")
    if inner is None:
        block.found.refuse(block.at("comparison"), "is needed", about_key=True)
        return Comparison("GE", 0)
    value = inner.block("value")
    if value is None:
        inner.found.refuse(inner.at("value"), "is needed", about_key=True)
    found = Comparison(inner.word("op", _OPERATORS, "EQ"), 0 if value is None else value.whole("default_value"))
    inner.done()
    if value is not None:
        value.noticed("runtime_key", why="there is no runtime here: the default value counts")
        value.done()
    return found
