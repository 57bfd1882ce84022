"""`match` of a route, and the matchers of headers, query parameters and texts that other blocks hold as well."""

from __future__ import annotations

import re
from typing import Final

from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.regexes import Expression, compiled, substitution
from reachline.doors.envoy.routes import (
    HeaderMatch,
    ParameterMatch,
    PathKind,
    PathMatch,
    RegexRewrite,
    RouteMatch,
    TextKind,
    TextMatch,
)

__all__ = ["fraction", "header", "header_name", "headers", "match", "regex", "rewrite", "text"]

_INT64: Final = 2**63
_DENOMINATORS: Final = {"HUNDRED": 100, "TEN_THOUSAND": 10_000, "MILLION": 1_000_000}
_PATHS: Final = ("prefix", "path", "safe_regex", "connect_matcher", "path_separated_prefix", "path_match_policy")
_SEPARATED: Final = re.compile(r"[^?#]+[^?#/]")
_TEXTS: Final = tuple(kind.value for kind in TextKind)
_HEADERS: Final = (
    "exact_match", "safe_regex_match", "range_match", "present_match", "prefix_match", "suffix_match", "contains_match",
    "string_match",
)  # fmt: skip
_OLD: Final = {"exact_match": TextKind.EXACT, "prefix_match": TextKind.PREFIX, "suffix_match": TextKind.SUFFIX, "contains_match": TextKind.CONTAINS}  # fmt: skip
_NAME: Final = re.compile(r"[^\x00\r\n]+")
_UNSUPPORTED: Final = {
    "dynamic_metadata": "there is no dynamic metadata here",
    "filter_state": "there is no filter state here",
    "cookies": "match the header cookie by a regex",
    "path_match_policy": "write safe_regex",
    "filter_state_exact": "",
}
_NOTHING: Final = PathMatch(kind=PathKind.PREFIX, text="/")


def regex(block: Block | None) -> Expression | None:
    """The expression of a RegexMatcher; None where it is wrong, which is told."""
    if block is None:
        return None
    expression = block.text("regex", needed=True)
    engine = block.block("google_re2")
    if engine is not None:
        engine.noticed("max_program_size")
        engine.done()
    block.done()
    if not expression:
        return None
    pattern, rule, hint = compiled(expression)
    if rule:
        block.refuse("regex", rule, hint)
    return pattern


def rewrite(block: Block | None) -> RegexRewrite | None:
    """A RegexMatchAndSubstitute; None where there is none, or it is wrong."""
    if block is None:
        return None
    pattern = regex(block.block("pattern"))
    if not block.has("pattern"):
        block.found.refuse(block.at("pattern"), "is needed", about_key=True)
    text = block.text("substitution")
    block.done()
    if pattern is None:
        return None
    if pattern.is_nested:
        hint = "write it without a repetition in a repetition"
        block.refuse("pattern", "repeats what repeats, which cannot be replaced in bounded time", hint)
    made, rule = substitution(text, pattern.groups)
    if rule:
        block.refuse("substitution", rule)
    return RegexRewrite(pattern=pattern, substitution=made)


def fraction(block: Block | None) -> tuple[int, int] | None:
    """A RuntimeFractionalPercent's default; None where it is no fraction of requests."""
    if block is None:
        return None
    share = block.block("default_value")
    block.noticed("runtime_key", why="there is no runtime here: the default value counts")
    block.done()
    if share is None:
        block.found.refuse(block.at("default_value"), "is needed", about_key=True)
        return None
    return percent(share)


def percent(share: Block) -> tuple[int, int] | None:
    """A FractionalPercent; None where it is all."""
    numerator = share.whole("numerator")
    denominator = _DENOMINATORS[share.word("denominator", tuple(_DENOMINATORS), "HUNDRED")]
    share.done()
    return None if numerator >= denominator else (numerator, denominator)


def text(block: Block | None) -> TextMatch | None:
    """A StringMatcher; None where there is none, or it is wrong."""
    if block is None:
        return None
    kind = block.one_of((*_TEXTS, "custom"))
    ignore = block.flag("ignore_case")
    found: TextMatch | None = None
    if kind is None:
        block.found.refuse(block.path, f"must have one of {', '.join(_TEXTS)}", about_key=True)
    elif kind == "safe_regex":
        pattern = regex(block.block(kind))
        found = None if pattern is None else TextMatch(kind=TextKind.REGEX, pattern=pattern)
        if ignore:
            block.refuse("ignore_case", "has no effect on safe_regex", "write (?i) in the expression")
    elif kind != "custom":
        found = _plain(block, kind, TextKind(kind), ignore=ignore)
    block.aside(*_TEXTS)
    block.unsupported({"custom": ""})
    block.done()
    return found


def _plain(block: Block, name: str, kind: TextKind, *, ignore: bool = False) -> TextMatch | None:
    value = block.text(name)
    if not value and kind is not TextKind.EXACT:
        block.refuse(name, "must not be empty")
        return None
    return TextMatch(kind=kind, text=value.lower() if ignore else value, ignore_case=ignore)


def header_name(block: Block, name: str, *, needed: bool = True) -> str:
    """A header's name in lower case."""
    found = block.text(name, needed=needed)
    if found and not _NAME.fullmatch(found):
        block.refuse(name, "must be the name of a header")
    return found.lower()


def headers(block: Block, name: str) -> tuple[HeaderMatch, ...]:
    """A list of HeaderMatchers."""
    return tuple(each for inner in block.blocks(name) if (each := header(inner)) is not None)


def header(block: Block) -> HeaderMatch | None:
    """A HeaderMatcher; without any rule of its own it asks that the header be there. None where it is wrong."""
    name, kind = header_name(block, "name"), block.one_of(_HEADERS)
    invert, missing = block.flag("invert_match"), block.flag("treat_missing_header_as_empty")
    said: TextMatch | None = None
    span: tuple[int, int] | None = None
    present: bool | None = None
    match kind:
        case None:
            present = True
        case "present_match":
            present = block.flag(kind)
        case "range_match":
            span = _span(block.block(kind))
        case "string_match":
            said = text(block.block(kind))
        case "safe_regex_match":
            pattern = regex(block.block(kind))
            said = None if pattern is None else TextMatch(kind=TextKind.REGEX, pattern=pattern)
        case _:
            said = _plain(block, kind, _OLD[kind])
    block.aside(*_HEADERS)
    block.done()
    if said is None and span is None and present is None:
        return None
    return HeaderMatch(name=name, text=said, range=span, present=present, invert=invert, missing_as_empty=missing)


def _span(block: Block | None) -> tuple[int, int] | None:
    if block is None:
        return None
    start, end = (block.whole(name, least=-_INT64, most=_INT64 - 1) for name in ("start", "end"))
    block.done()
    return start, end


def _parameter(block: Block) -> ParameterMatch | None:
    name, kind = block.text("name", needed=True), block.one_of(("string_match", "present_match"))
    present = block.flag("present_match", default=True)
    said = text(block.block("string_match"))
    block.done()
    if kind == "string_match" and said is None:
        return None
    return ParameterMatch(name=name, text=said, present=present)


def match(block: Block) -> RouteMatch:
    """A RouteMatch; where it is wrong that is told, and what comes back matches everything."""
    path = _path(block)
    parameters = (_parameter(each) for each in block.blocks("query_parameters"))
    tls = block.block("tls_context")
    presented = validated = None
    if tls is not None:
        presented = tls.flag("presented") if tls.has("presented") else None
        validated = tls.flag("validated") if tls.has("validated") else None
        tls.aside("presented", "validated")
        tls.done()
    grpc = block.block("grpc")
    if grpc is not None:
        grpc.done()
    found = RouteMatch(
        path=path,
        headers=headers(block, "headers"),
        parameters=tuple(each for each in parameters if each is not None),
        grpc=grpc is not None,
        fraction=fraction(block.block("runtime_fraction")),
        tls_presented=presented,
        tls_validated=validated,
    )
    block.unsupported(_UNSUPPORTED)
    block.done()
    return found


def _path(block: Block) -> PathMatch:
    kind = block.one_of(_PATHS)
    sensitive = block.flag("case_sensitive", default=True)
    found = _NOTHING
    match kind:
        case None:
            block.found.refuse(block.path, f"must have one of {', '.join(_PATHS[:5])}", about_key=True)
        case "safe_regex":
            pattern = regex(block.block(kind))
            found = _NOTHING if pattern is None else PathMatch(kind=PathKind.REGEX, pattern=pattern)
        case "connect_matcher":
            inner = block.block(kind)
            if inner is not None:
                inner.done()
            found = PathMatch(kind=PathKind.CONNECT)
        case "path_match_policy":
            pass
        case _:
            value = block.text(kind)
            if kind == "path_separated_prefix" and not _SEPARATED.fullmatch(value):
                block.refuse(kind, "must be a path without query, and must not end in /", "write prefix")
            found = PathMatch(kind=PathKind(kind), text=value if sensitive else value.lower(), case_sensitive=sensitive)
    block.aside(*_PATHS[:5])
    return found
