"""Documents and requests for routing: what a real Envoy and our rules are both asked. Values only."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

Plain = dict[str, Any]
MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


class Asking(NamedTuple):
    """One request as it is sent."""

    path: str
    authority: str = "other.example"
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()


def told(name: str, **match: Any) -> Plain:
    """A route that answers by its own name."""
    return {"name": name, "match": match, "direct_response": {"status": 200, "body": {"inline_string": name}}}


def sent(name: str, match: Plain, **action: Any) -> Plain:
    """A route to a cluster, `a` if no other is named."""
    kinds = {"cluster", "cluster_header", "weighted_clusters"}
    return {"name": name, "match": match, "route": action if kinds & set(action) else {"cluster": "a", **action}}


def host(name: str, *domains: str, routes: list[Plain] | None = None, **more: Any) -> Plain:
    return {"name": name, "domains": list(domains), "routes": routes or [told(name, prefix="/")], **more}


def regex(text: str) -> Plain:
    return {"regex": text}


DOMAINS: Plain = {
    "virtual_hosts": [
        host("exact", "a.example", "b.example:81", "UPPER.example"),
        host("suffix", "*.a.example", "*-x.example"),
        host("longer suffix", "*.c.a.example"),
        host("prefix", "www.*", "api.v1.*"),
        host("longer prefix", "www.shop.*"),
        host("v6", "[::1]", "[::1]:81"),
    ]
}
PORTLESS: Plain = {
    **DOMAINS,
    "ignore_port_in_host_matching": True,
    "virtual_hosts": [*DOMAINS["virtual_hosts"], host("any", "*")],
}
DOMAINS_ASKED = tuple(
    Asking("/", authority)
    for authority in (
        "a.example", "A.Example", "a.example:80", "b.example", "b.example:81", "upper.example", "x.a.example", ".a.example",
        "x.y.a.example", "c.a.example", "x.c.a.example", "y-x.example", "-x.example", "www.a.example", "www.", "www.x",
        "api.v1.z", "api.v2.z", "www.shop.x", "www.shop.", "nothing", "[::1]", "[::1]:81", "[::1]:82", "a.example:",
        "a.example:81", "x.a.example:81", "www.x:81",
    )
)  # fmt: skip

MATCHES: Plain = {
    "virtual_hosts": [
        host(
            "all",
            "*",
            routes=[
                told("never", prefix="/", runtime_fraction={"default_value": {"numerator": 0}}),
                told("always", path="/always", runtime_fraction={"default_value": {"numerator": 100}}),
                told("connect", connect_matcher={}),
                told("exact", path="/exact"),
                told("exact any case", path="/Exact/Case", case_sensitive=False),
                told("prefix any case", prefix="/Prefix/Case", case_sensitive=False),
                told("with a query", prefix="/query?a"),
                told("separated", path_separated_prefix="/sep"),
                told("separated any case", path_separated_prefix="/SEP2", case_sensitive=False),
                told("regex", safe_regex=regex(r"/re/[a-z]+(\.(html|css))?")),
                told("regex in any case", safe_regex=regex(r"(?i)/RE2/\d+")),
                told("classes", safe_regex=regex(r"/re3/[[:alpha:]]{2,3}\.\Qa.b\E")),
                told("h exact", prefix="/h", headers=[{"name": "x-a", "string_match": {"exact": "one"}}]),
                told("h any case", prefix="/h", headers=[{"name": "x-a", "string_match": {"exact": "TWO", "ignore_case": True}}]),
                told("h prefix", prefix="/h", headers=[{"name": "X-A", "string_match": {"prefix": "pre"}}]),
                told("h suffix", prefix="/h", headers=[{"name": "x-a", "string_match": {"suffix": "fix"}}]),
                told("h contains", prefix="/h", headers=[{"name": "x-a", "string_match": {"contains": "mid"}}]),
                told("h regex", prefix="/h", headers=[{"name": "x-a", "string_match": {"safe_regex": regex("a+b")}}]),
                told("h range", prefix="/h", headers=[{"name": "x-a", "range_match": {"start": -10, "end": 10}}]),
                told("h empty", prefix="/h", headers=[{"name": "x-a", "string_match": {"exact": ""}, "treat_missing_header_as_empty": True}, {"name": "x-e", "present_match": True}]),
                told("h inverted", prefix="/h", headers=[{"name": "x-a", "string_match": {"prefix": "n"}, "invert_match": True}, {"name": "x-i"}]),
                told("h absent", prefix="/h", headers=[{"name": "x-a", "present_match": False}, {"name": "x-p"}]),
                told("h not present", prefix="/h", headers=[{"name": "x-a", "present_match": True, "invert_match": True}, {"name": "x-q"}]),
                told("h absent inverted", prefix="/h", headers=[{"name": "x-a", "present_match": False, "invert_match": True}, {"name": "x-r"}]),
                told("h range inverted", prefix="/h", headers=[{"name": "x-a", "range_match": {"start": 0, "end": 5}, "invert_match": True}, {"name": "x-s"}]),
                told("h missing inverted", prefix="/h", headers=[{"name": "x-a", "string_match": {"exact": "z"}, "invert_match": True, "treat_missing_header_as_empty": True}, {"name": "x-t"}]),
                told("h missing range", prefix="/h", headers=[{"name": "x-a", "range_match": {"start": 0, "end": 5}, "treat_missing_header_as_empty": True}, {"name": "x-u"}]),
                told("h missing present", prefix="/h", headers=[{"name": "x-a", "present_match": True, "treat_missing_header_as_empty": True}, {"name": "x-v"}]),
                told("method", prefix="/h", headers=[{"name": ":method", "string_match": {"exact": "POST"}}]),
                told("authority", prefix="/h", headers=[{"name": ":authority", "string_match": {"suffix": ".org"}}]),
                told("host", prefix="/h", headers=[{"name": "host", "string_match": {"suffix": ".net"}}]),
                told("path", prefix="/h", headers=[{"name": ":path", "string_match": {"contains": "?deep"}}]),
                told("q exact", prefix="/q", query_parameters=[{"name": "a", "string_match": {"exact": "one"}}]),
                told("q regex", prefix="/q", query_parameters=[{"name": "a", "string_match": {"safe_regex": regex("[0-9]+")}}]),
                told("q there", prefix="/q", query_parameters=[{"name": "b", "present_match": True}]),
                told("q plain", prefix="/q", query_parameters=[{"name": "c"}]),
                told("q not there", prefix="/q", query_parameters=[{"name": "d", "present_match": False}, {"name": "e"}]),
                told("grpc", prefix="/g", grpc={}),
                told("tls", prefix="/t", tls_context={"presented": True}),
                told("no tls", prefix="/t", tls_context={"presented": False}),
                told("empty", prefix="/none/"),
            ],
        )
    ]
}  # fmt: skip
PARAMETERLESS: Plain = {**MATCHES, "ignore_path_parameters_in_path_matching": True}
_PATHS = (
    "/always", "/exact", "/exact?x=1", "/exact/", "/EXACT", "/exact/case", "/EXACT/CASE?a", "/prefix/case", "/PREFIX/CASES",
    "/query", "/query?a", "/query?ab", "/query?b", "/sep", "/sep/", "/sep/a", "/separate", "/sep?a", "/sep2/x", "/re/abc",
    "/re/abc.html", "/re/abc.htm", "/re/", "/re/abc?x=.html", "/RE2/12", "/re2/x", "/re3/ab.a.b", "/re3/abcd.a.b", "/re3/ab.axb",
    "/none/", "/none", "/", "/%65xact", "/exact%3Fa", "/exact;v=1", "/sep;x/a", "/re/abc;x?y", "/none/;x",
)  # fmt: skip
_VALUES = (
    "one", "ONE", "two", "Two", "prefab", "suffix", "amidst", "aab", "aabb", "5", "-10", "10", "4.5", "+3", " 7 ", "", "none", "z",
    "99999999999999999999", "0x5", "one, two",
)  # fmt: skip
_MARKS = ("x-e", "x-i", "x-p", "x-q", "x-r", "x-s", "x-t", "x-u", "x-v")
_QUERIES = (
    "a=one", "a=ONE", "a=12", "a=1x", "a", "a=", "b", "b=", "b=x", "c=1", "c", "d=1&e", "e=1", "a=x&a=one", "a=one&a=x", "%61=one",
    "A=one", "", "e&&d",
)  # fmt: skip


def matches_asked() -> Iterator[Asking]:
    """By path, by header with every value, by parameter, and at random."""
    yield from map(Asking, _PATHS)
    yield from (Asking("/h", headers=(("x-a", value),)) for value in _VALUES)
    yield from (Asking("/h", headers=((mark, "1"),)) for mark in _MARKS)
    yield from (
        Asking("/h", headers=(("x-a", value), (mark, "1"))) for value in ("none", "other", "3") for mark in _MARKS
    )
    yield from (Asking(f"/q?{query}") for query in _QUERIES)
    yield from (Asking("/h", name) for name in ("a.org", "a.net", "A.ORG"))
    yield from (
        Asking("/h", method="POST"),
        Asking("/h?deep"),
        Asking("/t"),
        Asking("/h", headers=(("x-a", "o"), ("x-a", "ne"))),
    )
    kinds = (
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web",
        "application/json",
        "APPLICATION/GRPC",
    )
    yield from (Asking("/g", method="POST", headers=(("content-type", kind),)) for kind in kinds)
    rng = Random(17)
    for _ in range(60):
        names = rng.sample(_MARKS, rng.randrange(3))
        headers = (("x-a", rng.choice(_VALUES)), *((name, "1") for name in names))
        yield Asking(rng.choice(("/h", "/h?deep", *_PATHS)), headers=headers, method=rng.choice(("GET", "POST")))


def _rewritten(name: str, pattern: str, substitution: str) -> Plain:
    return {name: {"pattern": regex(pattern), "substitution": substitution}}


_SHARE = [{"name": name, "weight": weight} for name, weight in (("a", 10), ("b", 0), ("c", 90))]
ACTIONS: Plain = {
    "virtual_hosts": [
        host("tls", "tls.example", require_tls="ALL"),
        host("outside", "outside.example", require_tls="EXTERNAL_ONLY"),
        host(
            "all",
            "*",
            routes=[
                sent("prefix", {"prefix": "/p/"}, prefix_rewrite="/new/"),
                sent("prefix to nothing", {"prefix": "/pp"}, prefix_rewrite="/"),
                sent("prefix to a slash", {"prefix": "/ps"}, prefix_rewrite="/n/"),
                sent("prefix with a slash", {"prefix": "/pt/"}, prefix_rewrite="/n"),
                sent("separated to a slash", {"path_separated_prefix": "/st"}, prefix_rewrite="/n/"),
                sent("prefix any case", {"prefix": "/PC", "case_sensitive": False}, prefix_rewrite="/pc"),
                sent("exact", {"path": "/e"}, prefix_rewrite="/exact"),
                sent("separated", {"path_separated_prefix": "/s"}, prefix_rewrite="/sep"),
                sent("regex prefix", {"safe_regex": regex("/r/.*")}, prefix_rewrite="/all"),
                sent("regex", {"prefix": "/x"}, **_rewritten("regex_rewrite", r"/x/(\w+)/(\w*)", r"/\2/\1\\")),
                sent("regex many", {"prefix": "/m"}, **_rewritten("regex_rewrite", "a*", "-")),
                sent("regex on all", {"prefix": "/o"}, **_rewritten("regex_rewrite", "o", "0")),
                sent("literal", {"prefix": "/hl"}, host_rewrite_literal="new.example", append_x_forwarded_host=True),
                sent("by header", {"prefix": "/hh"}, host_rewrite_header="x-host"),
                sent("by path", {"prefix": "/hp"}, **_rewritten("host_rewrite_path_regex", "^/hp/(.+)/.*$", r"\1.example")),
                sent("auto", {"prefix": "/ha"}, auto_host_rewrite=True),
                sent("cluster header", {"prefix": "/ch"}, cluster_header="x-cluster"),
                sent("not found", {"prefix": "/nf"}, cluster_header="x-cluster", cluster_not_found_response_code="NOT_FOUND"),
                sent("by hash", {"prefix": "/wh"}, weighted_clusters={"clusters": _SHARE, "use_hash_policy": True}, hash_policy=[{"header": {"header_name": "x-key"}}]),
                sent("by number", {"prefix": "/wn"}, weighted_clusters={"clusters": _SHARE, "header_name": "x-number"}),
                sent("timed", {"prefix": "/t"}, timeout="7s", retry_policy={"retry_on": "5xx", "per_try_timeout": "3s", "num_retries": 2}),
                sent("untimed", {"prefix": "/u"}, timeout="0s"),
                sent("asked", {"prefix": "/ga"}, timeout="7s", max_grpc_timeout="10s", grpc_timeout_offset="2s"),
                sent("asked for all", {"prefix": "/gi"}, max_grpc_timeout="0s"),
                sent("lasting", {"prefix": "/gd"}, timeout="7s", max_stream_duration={"max_stream_duration": "5s"}),
                sent("lasting as asked", {"prefix": "/gh"}, max_stream_duration={"grpc_timeout_header_max": "10s", "grpc_timeout_header_offset": "1s"}),
                sent("lasting, in tries", {"prefix": "/gt"}, max_stream_duration={"max_stream_duration": "5s"}, retry_policy={"retry_on": "5xx", "per_try_timeout": "3s"}),
                {"name": "to https", "match": {"prefix": "/ds"}, "redirect": {"https_redirect": True}},
                {"name": "to host", "match": {"prefix": "/dh"}, "redirect": {"host_redirect": "new.example", "response_code": "FOUND"}},
                {"name": "to port", "match": {"prefix": "/dp"}, "redirect": {"port_redirect": 8443, "scheme_redirect": "https"}},
                {"name": "to path", "match": {"prefix": "/da"}, "redirect": {"path_redirect": "/there"}},
                {"name": "to path and query", "match": {"prefix": "/dq"}, "redirect": {"path_redirect": "/there?a=b", "response_code": "TEMPORARY_REDIRECT"}},
                {"name": "to prefix", "match": {"prefix": "/dx/"}, "redirect": {"prefix_rewrite": "/to/", "strip_query": True}},
                {"name": "to regex", "match": {"prefix": "/dr"}, "redirect": _rewritten("regex_rewrite", "/dr/([0-9]+)", r"/n/\1")},
                {"name": "nowhere", "match": {"prefix": "/no"}, "non_forwarding_action": {}},
                {"name": "said", "match": {"prefix": "/said"}, "direct_response": {"status": 418, "body": {"inline_string": "no"}}},
            ],
        ),
    ]
}  # fmt: skip
_ACTION_PATHS = (
    "/p/", "/p/a", "/p/a?b=c", "/pp", "/pp/x", "/pp?x", "/pc/x", "/Pc", "/e", "/e?x=1", "/s", "/s/t?u", "/r/a/b?c=d", "/x/one/two",
    "/x/one/two?x/3/4", "/x/one", "/xyz/x/a/b", "/mad", "/maab/aa?a", "/o/foo?o", "/hl", "/hp/name/x", "/hp/", "/ha", "/t", "/u",
    "/ds", "/ds/x?y=z", "/dh/x?y", "/dp", "/da/x?y", "/dq?y", "/dx/x?y=z", "/dx/", "/dr/12/x?q", "/no", "/said", "/zz", "/pp//x", "/ps", "/ps/x", "/pss", "/ps//x", "/pt/x", "/pt", "/st", "/st/x",
)  # fmt: skip
INSIDE = ("x-forwarded-for", "10.0.0.1")
"""What makes a request one from inside, whose `x-envoy-` headers count."""
_TIMES = (
    ("x-envoy-upstream-rq-timeout-ms", "4000"), ("x-envoy-upstream-rq-timeout-ms", "0"), ("x-envoy-upstream-rq-timeout-ms", "x"),
    ("x-envoy-upstream-rq-timeout-ms", "-5"), ("x-envoy-upstream-rq-timeout-ms", "4.5"), ("x-envoy-upstream-rq-timeout-ms", "+4000"),
    ("x-envoy-upstream-rq-per-try-timeout-ms", "1000"), ("x-envoy-upstream-rq-per-try-timeout-ms", "9000"),
    ("x-envoy-upstream-rq-per-try-timeout-ms", "0"), ("x-envoy-expected-rq-timeout-ms", "2000"), ("x-envoy-max-retries", "5"),
)  # fmt: skip


def actions_asked() -> Iterator[Asking]:
    names = ("other.example", "other.example:80", "other.example:8080", "[::1]:443")
    yield from (
        Asking(path, name) for path in _ACTION_PATHS for name in (names if path.startswith("/d") else names[:1])
    )
    yield from (Asking("/x", name) for name in ("tls.example", "tls.example:80", "outside.example", "tls.example:443"))
    yield from (Asking("/hh", headers=headers) for headers in ((), (("x-host", "h.example"),), (("x-host", ""),)))
    for path in ("/ch", "/nf"):
        yield from (
            Asking(path, headers=headers) for headers in ((), *((("x-cluster", name),) for name in ("b", "none")))
        )
    yield from (Asking("/wh", headers=(("x-key", f"key {number}"),)) for number in range(20))
    yield from (
        Asking("/wn", headers=(("x-number", number),)) for number in ("0", "9", "10", "99", "100", "12345678901")
    )
    yield from (Asking(path, headers=(header, INSIDE)) for path in ("/t", "/u") for header in _TIMES)


def _grpc_asked() -> Iterator[Asking]:
    kind = ("content-type", "application/grpc")
    limits = ((), *((("grpc-timeout", each),) for each in ("4S", "20S", "3000m", "x")))
    for path in ("/ga", "/gi", "/gd", "/gh", "/gt"):
        for limit in limits:
            yield Asking(path, headers=limit)
            yield Asking(path, method="POST", headers=(kind, *limit))
            yield Asking(
                path, method="POST", headers=(kind, *limit, ("x-envoy-upstream-rq-timeout-ms", "6000"), INSIDE)
            )


def listener(name: str, routes: Plain, **more: Any) -> Plain:
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}
    manager = {
        "@type": MANAGER,
        "stat_prefix": name,
        "http_filters": [router],
        "route_config": {"name": name, **routes},
        **more,
    }
    return {
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }  # fmt: skip


def cluster(name: str, port: int) -> Plain:
    where = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    endpoint = {"endpoint": {"address": where, "hostname": f"{name}.host"}}
    return {"name": name, "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}}


INTERNAL = {"cidr_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]}
TOLD = [{"header": {"key": "x-told-cluster", "value": "%UPSTREAM_CLUSTER_RAW%"}}, {"header": {"key": "x-told-route", "value": "%ROUTE_NAME%"}}]  # fmt: skip


def document(port: int) -> Plain:
    """One Envoy with a listener for each; `port`: of an endpoint that tells what it was asked."""
    return {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "static_resources": {
            "listeners": [
                listener("domains", DOMAINS),
                listener("portless", PORTLESS),
                listener("matches", {**MATCHES, "response_headers_to_add": TOLD}),
                listener("parameterless", {**PARAMETERLESS, "response_headers_to_add": TOLD}),
                listener(
                    "actions",
                    {**ACTIONS, "response_headers_to_add": TOLD},
                    generate_request_id=False,
                    internal_address_config=INTERNAL,
                ),
            ],
            "clusters": [cluster(name, port) for name in "abc"],
        },
    }


RETRIED: Plain = {
    "virtual_hosts": [
        host(
            "all",
            "*",
            retry_policy={"retry_on": "5xx", "num_retries": 2},
            routes=[
                sent("zero", {"prefix": "/zero"}, retry_policy={"retry_on": "5xx", "num_retries": 0}),
                sent("unset", {"prefix": "/unset"}, retry_policy={"retry_on": "5xx"}),
                sent("other", {"prefix": "/other"}, retry_policy={"retry_on": "reset"}),
                sent("some", {"prefix": "/some"}, retry_policy={"retry_on": "5xx", "retriable_request_headers": [{"name": "x-again"}]}),
                sent("theirs", {"prefix": "/"}),
            ],
        )
    ]
}  # fmt: skip
"""Routes to an endpoint that answers 503."""
_ON, _MOST = "x-envoy-retry-on", "x-envoy-max-retries"
RETRIED_ASKED = tuple(
    Asking(path, headers=(*headers, INSIDE))
    for path, *headers in (
        ("/zero",), ("/zero", (_MOST, "2")), ("/unset",), ("/unset", (_MOST, "0")), ("/unset", (_MOST, "x")), ("/other",),
        ("/other", (_ON, "5xx")), ("/other", (_ON, "gateway-error"), (_MOST, "3")), ("/other", (_ON, "nonsense")),
        ("/other", (_MOST, "2")), ("/other", (_ON, "retriable-status-codes"), ("x-envoy-retriable-status-codes", "x, 503")),
        ("/some",), ("/some", ("x-again", "1")), ("/some", (_ON, "5xx")), ("/theirs",), ("/theirs", (_MOST, "1")),
    )
)  # fmt: skip


ASKED: dict[str, tuple[Asking, ...]] = {
    "domains": DOMAINS_ASKED,
    "portless": DOMAINS_ASKED,
    "matches": tuple(matches_asked()),
    "parameterless": tuple(map(Asking, _PATHS)),
    "actions": (*actions_asked(), *_grpc_asked()),
}
