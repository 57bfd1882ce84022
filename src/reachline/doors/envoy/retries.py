"""`retry_policy` and `hash_policy` of a route: when a request is tried again, and what keeps it to an endpoint."""

from __future__ import annotations

from typing import Final

from reachline.core.pick.keying import By, HashPolicy
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.matches import header_name, headers
from reachline.doors.envoy.routes import HashCookie, RetryBackOff, RetryPolicy
from reachline.model import Seconds

__all__ = ["GRPC_WORDS", "HTTP_WORDS", "hashes", "retry", "words"]

HTTP_WORDS: Final = frozenset((
    "5xx", "gateway-error", "connect-failure", "envoy-ratelimited", "retriable-4xx", "refused-stream",
    "retriable-status-codes", "retriable-headers", "reset", "reset-before-request", "http3-post-connect-failure",
))  # fmt: skip
GRPC_WORDS: Final = frozenset(("cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"))
_PREDICATES: Final = "envoy.extensions.retry.host."
_PREVIOUS: Final = f"{_PREDICATES}previous_hosts.v3.PreviousHostsPredicate"
_BASE: Final = RetryBackOff()
_KINDS: Final = ("header", "cookie", "connection_properties", "query_parameter", "filter_state")
_RESETS: Final = ("SECONDS", "UNIX_TIMESTAMP")


def words(text: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The words of a `retry_on` that are known, and those that are not, which Envoy takes and never acts on."""
    found = [each.strip() for each in text.split(",") if each.strip()]
    known = HTTP_WORDS | GRPC_WORDS
    return frozenset(each for each in found if each in known), tuple(each for each in found if each not in known)


def retry(block: Block | None) -> RetryPolicy | None:
    """A RetryPolicy; None where there is none."""
    if block is None:
        return None
    known, unknown = words(block.text("retry_on"))
    if unknown:
        rule = f"has no effect: unknown words {', '.join(unknown)}"
        block.found.notice(block.at("retry_on"), rule, f"known: {', '.join(sorted(HTTP_WORDS | GRPC_WORDS))}")
    reset_headers, reset_most = _asked(block.block("rate_limited_retry_back_off"))
    found = RetryPolicy(
        retry_on=known,
        retries=block.whole("num_retries", 1),
        per_try_timeout=block.maybe_seconds("per_try_timeout") or None,
        per_try_idle_timeout=block.maybe_seconds("per_try_idle_timeout") or None,
        other_endpoint=_other_endpoint(block),
        selection_attempts=block.whole("host_selection_retry_max_attempts", 1, least=-(2**63), most=2**63 - 1),
        statuses=_statuses(block),
        headers=headers(block, "retriable_headers"),
        request_headers=headers(block, "retriable_request_headers"),
        back_off=_back_off(block.block("retry_back_off")),
        reset_headers=reset_headers,
        reset_most=reset_most,
    )
    block.unsupported(
        {
            "retry_priority": "a retry goes where a new request would",
            "retry_options_predicates": "",
        }
    )
    block.done()
    return found


def _statuses(block: Block) -> tuple[int, ...]:
    found = []
    for at, each in enumerate(block.values("retriable_status_codes")):
        path = (*block.at("retriable_status_codes"), at)
        number = int(each) if isinstance(each, str) and each.isdecimal() and len(each) < 10 else each
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            block.found.refuse(path, "must be a status")
        else:
            found.append(number)
    return tuple(found)


def _other_endpoint(block: Block) -> bool:
    is_other = False
    for each in block.blocks("retry_host_predicate"):
        each.text("name", needed=True)
        typed = each.typed("typed_config")
        each.done()
        kind = None if typed is None else typed[0]
        if kind == _PREVIOUS:
            is_other = True
            assert typed is not None
            typed[1].done()
        else:
            rule = "only previous_hosts is supported, with its typed_config"
            each.found.refuse(each.path, rule, f"@type: type.googleapis.com/{_PREVIOUS}", about_key=True)
            each.aside("typed_config")
    return is_other


def _back_off(block: Block | None) -> RetryBackOff:
    if block is None:
        return _BASE
    base, most = block.maybe_seconds("base_interval", least=1), block.maybe_seconds("max_interval", least=1)
    if not block.has("base_interval"):
        block.found.refuse(block.at("base_interval"), "is needed", about_key=True)
    block.done()
    base = _BASE.base if base is None else base
    if most is not None and most < base:
        block.refuse("max_interval", "must not be below base_interval")
    return RetryBackOff(base=base, most=10 * base if most is None else most)


def _asked(block: Block | None) -> tuple[tuple[tuple[str, str], ...], Seconds]:
    if block is None:
        return (), 300.0
    found = []
    for each in block.blocks("reset_headers"):
        found.append((header_name(each, "name"), each.word("format", _RESETS, "SECONDS")))
        each.done()
    if not found:
        block.found.refuse(block.at("reset_headers"), "is needed and must not be empty", about_key=True)
    most = block.seconds("max_interval", 300.0)
    block.done()
    return tuple(found), most


def hashes(block: Block, name: str) -> tuple[tuple[HashPolicy, ...], tuple[HashCookie, ...]]:
    """A list of hash policies, and the cookies among them that are made for callers who have none."""
    policies: list[HashPolicy] = []
    cookies: list[HashCookie] = []
    for each in block.blocks(name):
        kind, terminal = each.one_of(_KINDS), each.flag("terminal")
        inner = {kind: each.block(kind) for kind in _KINDS[:4]}
        each.unsupported({"filter_state": "there is no filter state here"})
        each.done()
        own = inner.get(kind or "")
        if kind is None:
            each.found.refuse(each.path, f"must have one of {', '.join(_KINDS)}", about_key=True)
        elif own is not None:
            policies.append(_policy(kind, own, cookies, terminal=terminal))
    return tuple(policies), tuple(cookies)


def _policy(kind: str, block: Block, cookies: list[HashCookie], *, terminal: bool) -> HashPolicy:
    match kind:
        case "header":
            found = HashPolicy(by=By.HEADER, name=header_name(block, "header_name"), terminal=terminal)
            block.unsupported({"regex_rewrite": "the header is hashed as it is"})
        case "cookie":
            found = HashPolicy(by=By.COOKIE, name=block.text("name", needed=True), terminal=terminal)
            _made_cookie(block, found.name, cookies)
        case "query_parameter":
            found = HashPolicy(by=By.QUERY_PARAMETER, name=block.text("name", needed=True), terminal=terminal)
        case _:
            found = HashPolicy(by=By.SOURCE_IP, terminal=terminal)
            if not block.flag("source_ip"):
                block.found.notice(block.path, "hashes nothing: source_ip is not true")
    block.done()
    return found


def _made_cookie(block: Block, name: str, cookies: list[HashCookie]) -> None:
    ttl, path = block.maybe_seconds("ttl"), block.text("path")
    attributes = tuple(
        (each.text("name", needed=True), each.text("value")) for each in block.blocks("attributes") if _is_closed(each)
    )
    if ttl is not None:
        cookies.append(HashCookie(name, ttl, path, attributes))


def _is_closed(block: Block) -> bool:
    block.aside("name", "value")
    block.done()
    return True
