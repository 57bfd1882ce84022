"""A route configuration as plain values in our words: which request goes where, and what is changed of it on the way.

Refuses to know YAML, positions and sockets. `routing` decides by these values; names and defaults are Envoy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from reachline.core.pick.keying import HashPolicy
from reachline.doors.envoy.regexes import Expression
from reachline.model import Seconds

__all__ = [
    "Append",
    "Command",
    "DirectResponse",
    "Format",
    "Forward",
    "HashCookie",
    "HeaderAdd",
    "HeaderMatch",
    "HostRewrite",
    "Mutations",
    "ParameterMatch",
    "PathKind",
    "PathMatch",
    "Redirect",
    "RegexRewrite",
    "RetryBackOff",
    "RetryPolicy",
    "Route",
    "RouteConfig",
    "RouteMatch",
    "TextKind",
    "TextMatch",
    "Upgrade",
    "VirtualHost",
    "WeightedCluster",
]


class Command(NamedTuple):
    """`%OPERATOR(argument):most%` of a format string."""

    operator: str
    argument: str = ""
    most: int | None = None
    """Characters of its text at most; None: all."""


Format = tuple[str | Command, ...]
"""A format string in its pieces: texts as they stand (`%%` is `%`), and commands."""


class Append(Enum):
    """What becomes of a header that is there already; the value is Envoy's word."""

    APPEND = "APPEND_IF_EXISTS_OR_ADD"
    ADD_IF_ABSENT = "ADD_IF_ABSENT"
    OVERWRITE_OR_ADD = "OVERWRITE_IF_EXISTS_OR_ADD"
    OVERWRITE_IF_EXISTS = "OVERWRITE_IF_EXISTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderAdd:
    """A header to be set. `name` is in lower case."""

    name: str
    value: Format
    append: Append = Append.APPEND
    keep_empty: bool = False
    """Whether it is set also where its value comes out empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutations:
    """What is changed of headers at one level: removed first, then added, as Envoy does. Names are in lower case."""

    request_add: tuple[HeaderAdd, ...] = ()
    request_remove: tuple[str, ...] = ()
    response_add: tuple[HeaderAdd, ...] = ()
    response_remove: tuple[str, ...] = ()


class TextKind(Enum):
    """How a text is compared; the value is Envoy's word."""

    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    CONTAINS = "contains"
    REGEX = "safe_regex"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMatch:
    """A StringMatcher. With `ignore_case` the text is in lower case already; a regex never ignores case."""

    kind: TextKind
    text: str = ""
    pattern: Expression | None = None
    """Of a regex, which must match the whole text."""
    ignore_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderMatch:
    """A HeaderMatcher: exactly one of `text`, `range`, `present`."""

    name: str
    """In lower case."""
    text: TextMatch | None = None
    range: tuple[int, int] | None = None
    """Half-open; the whole value must be a decimal number."""
    present: bool | None = None
    """True: the header must be there; False: it must not."""
    invert: bool = False
    missing_as_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterMatch:
    """A QueryParameterMatcher. `text` None: `present` alone decides."""

    name: str
    text: TextMatch | None = None
    present: bool = True


class PathKind(Enum):
    """What of a path is compared; the value is Envoy's word."""

    PREFIX = "prefix"
    EXACT = "path"
    REGEX = "safe_regex"
    SEPARATED_PREFIX = "path_separated_prefix"
    CONNECT = "connect_matcher"
    TEMPLATE = "path_match_policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathMatch:
    """The path rule of a route; a prefix is compared with the query string, all others without."""

    kind: PathKind
    text: str = ""
    pattern: Expression | None = None
    """Of a regex or a template, which must match the whole path."""
    case_sensitive: bool = True
    """Not of a regex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteMatch:
    """All of it must hold."""

    path: PathMatch
    headers: tuple[HeaderMatch, ...] = ()
    parameters: tuple[ParameterMatch, ...] = ()
    grpc: bool = False
    """Only gRPC requests: content-type `application/grpc` or `application/grpc+…`."""
    fraction: tuple[int, int] | None = None
    """(numerator, denominator) of requests; None: all."""
    tls_presented: bool | None = None
    """Whether the client must have shown a certificate; None: either."""
    tls_validated: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexRewrite:
    """Every match of the pattern is replaced. `substitution` is in the words of `re.sub`."""

    pattern: Expression
    substitution: str


class HostRewrite(Enum):
    """Where the authority of the request upstream comes from."""

    LITERAL = "host_rewrite_literal"
    AUTO = "auto_host_rewrite"
    """The hostname of the endpoint that was picked, where it has one."""
    HEADER = "host_rewrite_header"
    PATH_REGEX = "host_rewrite_path_regex"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedCluster:
    """One of the clusters among which requests are shared out."""

    name: str
    weight: int
    mutations: Mutations = Mutations()
    metadata_match: Mapping[str, str] = field(default_factory=dict)
    host_rewrite: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBackOff:
    """Before the n-th retry: a random time below base × (2ⁿ − 1), at most `most`."""

    base: Seconds = 0.025
    most: Seconds = 0.25
    """Ten times the base where it is not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a request is tried again. `retry_on` holds Envoy's words, of HTTP and of gRPC."""

    retry_on: frozenset[str] = frozenset()
    retries: int = 1
    per_try_timeout: Seconds | None = None
    """None: the route's timeout alone counts."""
    per_try_idle_timeout: Seconds | None = None
    other_endpoint: bool = False
    """`retry_host_predicate: previous_hosts`: not where it was tried already."""
    selection_attempts: int = 1
    """How often another endpoint is asked for until one fits."""
    statuses: tuple[int, ...] = ()
    """With `retriable-status-codes`."""
    headers: tuple[HeaderMatch, ...] = ()
    """Of the answer, with `retriable-headers`."""
    request_headers: tuple[HeaderMatch, ...] = ()
    """One of them must match for a request to be tried again at all; empty: all are."""
    back_off: RetryBackOff = RetryBackOff()
    reset_headers: tuple[tuple[str, str], ...] = ()
    """(name in lower case, SECONDS or UNIX_TIMESTAMP): the wait that an answer itself asks for, tried in this order."""
    reset_most: Seconds = 300.0


class HashCookie(NamedTuple):
    """A cookie that is made for a caller who has none, so that the caller is kept to an endpoint."""

    name: str
    ttl: Seconds
    """0: until the browser ends."""
    path: str = ""
    attributes: tuple[tuple[str, str], ...] = ()


class Upgrade(NamedTuple):
    """An upgrade by name in lower case (`websocket`, `connect`), let through or not."""

    kind: str
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """A RouteAction: where the request is sent, and how. Exactly one of `cluster`, `cluster_header`, `weighted`."""

    cluster: str = ""
    cluster_header: str = ""
    weighted: tuple[WeightedCluster, ...] = ()
    weighted_by_hash: bool = False
    """Whether the request's hash key shares them out instead of chance."""
    weighted_header: str = ""
    """A header whose whole number does so; empty: none."""
    not_found: int = 503
    """The status where there is no such cluster."""
    metadata_match: Mapping[str, str] = field(default_factory=dict)
    """Of the subset, by key."""
    prefix_rewrite: str = ""
    regex_rewrite: RegexRewrite | None = None
    host_rewrite: HostRewrite | None = None
    host_text: str = ""
    """The literal, or the name of the header in lower case."""
    host_regex: RegexRewrite | None = None
    """Of the path without its query; what comes out is the host."""
    append_x_forwarded_host: bool = False
    timeout: Seconds | None = 15.0
    """Until the answer is whole; None: no limit (0s of the document, or where `max_stream_duration` stands there)."""
    idle_timeout: Seconds | None = None
    """None: the manager's `stream_idle_timeout`; 0: no limit."""
    max_stream_duration: Seconds | None = None
    """None: the manager's; 0: no limit."""
    is_by_duration: bool = False
    """Whether the block `max_stream_duration` stands there, which does without `timeout`."""
    grpc_duration_most: Seconds | None = None
    """Of a gRPC request its `grpc-timeout` is the duration, at most so much; 0: all of it; None: the header does not count."""
    grpc_duration_offset: Seconds = 0.0
    """Taken off that."""
    grpc_timeout_most: Seconds | None = None
    """`max_grpc_timeout`: of a gRPC request its `grpc-timeout` is the timeout, at most so much; 0: all of it; None: it is not."""
    grpc_timeout_offset: Seconds = 0.0
    """Taken off that, where more than it was asked for."""
    retry: RetryPolicy | None = None
    """None: that of the virtual host, if it has one."""
    high_priority: bool = False
    hash: tuple[HashPolicy, ...] = ()
    """In order; `routing.hashed` makes the key."""
    hash_cookies: tuple[HashCookie, ...] = ()
    """Those of its cookies that are made for callers who have none."""
    upgrades: tuple[Upgrade, ...] = ()
    """Beside the manager's, which these override."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """A RedirectAction; empty: that part stays as it is."""

    scheme: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    prefix_rewrite: str = ""
    regex_rewrite: RegexRewrite | None = None
    status: int = 301
    strip_query: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectResponse:
    """An answer without any endpoint."""

    status: int
    body: bytes = b""
    file: str = ""
    """A file that holds the body in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route. `action` None: `non_forwarding_action`, which no request may take."""

    name: str = ""
    match: RouteMatch
    action: Forward | Redirect | DirectResponse | None
    mutations: Mutations = Mutations()
    buffer_limit: int | None = None
    """Bytes of a request's body that are kept for a retry at most; None: the virtual host's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualHost:
    """The routes of some domains; the first that matches counts."""

    name: str
    domains: tuple[str, ...]
    """In lower case: exact, `*.suffix`, `prefix.*` or `*`."""
    routes: tuple[Route, ...] = ()
    require_tls: str = "NONE"
    """NONE, EXTERNAL_ONLY or ALL: who else is sent to https by 301."""
    mutations: Mutations = Mutations()
    retry: RetryPolicy | None = None
    attempt_count_in_request: bool = False
    attempt_count_in_response: bool = False
    timeout_retry_in_request: bool = False
    """`x-envoy-is-timeout-retry`."""
    buffer_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfig:
    """A RouteConfiguration."""

    name: str = ""
    hosts: tuple[VirtualHost, ...] = ()
    mutations: Mutations = Mutations()
    most_specific_wins: bool = False
    """Order of the levels' header changes: False: route, virtual host, these (the last one wins); True: the reverse."""
    internal_only_headers: tuple[str, ...] = ()
    """Removed of requests from outside; in lower case."""
    ignore_port: bool = False
    """Whether a port in the authority is not looked at in finding the virtual host."""
    ignore_path_parameters: bool = False
    """Whether `;…` of a path is not looked at in matching routes."""
    validate_clusters: bool = True
    """Whether a cluster that does not exist makes the whole configuration wrong."""
