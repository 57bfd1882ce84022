"""Where a request goes and what is changed of it: rules one by one. The same rules stand beside a real Envoy in tests/differential."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.doors.envoy.asked import Connection, Request
from reachline.doors.envoy.chain import Listener
from reachline.doors.envoy.chains import chain_for
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.linear import program
from reachline.doors.envoy.regexes import compiled, substitution
from reachline.doors.envoy.resolving import malformed
from reachline.doors.envoy.routing import Answered, Decision, Missing, Redirected, Routes, Sent, decide, hashed, routes
from reachline.doors.envoy.vhosts import route_config
from reachline.doors.envoy.whole import read
from reachline.doors.findings import Findings
from reachline.members import Address


def table(*made: dict[str, Any], host: dict[str, Any] | None = None, **more: Any) -> Routes:
    """Routes of one virtual host for all domains."""
    found = Findings()
    hosts = [{"name": "all", "domains": ["*"], "routes": list(made), **(host or {})}]
    config = route_config(Block({"virtual_hosts": hosts, **more}, (), found))
    assert list(found) == []
    return routes(config)


def to(cluster: str = "c", match: dict[str, Any] | None = None, **action: Any) -> dict[str, Any]:
    where = {} if {"cluster_header", "weighted_clusters"} & set(action) else {"cluster": cluster}
    return {"match": match or {"prefix": "/"}, "route": where | action}


def ask(rules: Routes, path: str = "/", chance: int = 0, **more: Any) -> Decision:
    headers = {name: [value] for name, value in more.pop("headers", {}).items()}
    return decide(rules, Request(path=path, authority="a.example", headers=headers, **more), chance=chance)


def sent(decision: Decision) -> Sent:
    assert isinstance(decision, Sent)
    return decision


def test_the_first_route_that_fits_counts() -> None:
    rules = table(to("a", {"prefix": "/x"}), to("b", {"path": "/x/y"}), to("c"))

    assert [sent(ask(rules, path)).cluster for path in ("/x/y", "/x", "/y")] == ["a", "a", "c"]


def test_requests_are_shared_out_by_weight_over_all_chances() -> None:
    shares = {"clusters": [{"name": "a", "weight": 1}, {"name": "b", "weight": 0}, {"name": "c", "weight": 3}]}
    rules = table(to(weighted_clusters=shares))

    assert Counter(sent(ask(rules, chance=chance)).cluster for chance in range(400)) == {"a": 100, "c": 300}


def test_a_share_of_requests_is_by_the_same_chance() -> None:
    rules = table(to("a", {"prefix": "/", "runtime_fraction": {"default_value": {"numerator": 5}}}), to("b"))

    assert Counter(sent(ask(rules, chance=chance)).cluster for chance in range(200)) == {"a": 10, "b": 190}


def test_changes_of_headers_go_from_the_most_specific_level_to_the_least_or_the_reverse() -> None:
    def adding(name: str) -> dict[str, Any]:
        return {"request_headers_to_add": [{"header": {"key": name, "value": "1"}}]}

    shares = {"clusters": [{"name": "a", "weight": 1, **adding("share")}]}
    made = to(weighted_clusters=shares) | adding("route")

    def names(**more: Any) -> list[str]:
        rules = table(made, host=adding("x-host"), **adding("config"), **more)
        return [each.request_add[0].name for each in sent(ask(rules)).mutations]

    assert names() == ["share", "route", "x-host", "config"]
    assert names(most_specific_header_mutations_wins=True) == ["config", "x-host", "route", "share"]


def test_a_route_keeps_its_own_retries_and_else_has_its_hosts() -> None:
    rules = table(
        to("own", {"prefix": "/own"}, retry_policy={"retry_on": "reset", "num_retries": 4}),
        to("theirs"),
        host={"retry_policy": {"retry_on": "5xx"}},
    )
    own, theirs = sent(ask(rules, "/own")).retry, sent(ask(rules)).retry

    assert own is not None
    assert (set(own.retry_on), own.retries) == ({"reset"}, 4)
    assert theirs is not None
    assert (set(theirs.retry_on), theirs.retries) == ({"5xx"}, 1)


def test_headers_of_a_request_add_words_and_set_the_number_of_retries() -> None:
    rules = table(to(retry_policy={"retry_on": "reset"}))
    asked = {
        "x-envoy-retry-on": "5xx, nonsense",
        "x-envoy-retry-grpc-on": "internal",
        "x-envoy-max-retries": "7",
        "x-envoy-retriable-status-codes": "404,x," + "9" * 5_000,
    }
    found = sent(ask(rules, headers=asked)).retry

    assert found is not None
    assert (set(found.retry_on), found.retries, found.statuses) == ({"reset", "5xx", "internal"}, 7, (404,))
    assert sent(ask(table(to()))).retry is None


def test_only_requests_that_their_route_means_are_tried_again() -> None:
    policy = {"retry_on": "5xx", "retriable_request_headers": [{"name": "x-again", "present_match": True}]}
    rules = table(to(retry_policy=policy))

    assert sent(ask(rules)).retry is None
    assert sent(ask(rules, headers={"x-again": "1"})).retry is not None


GRPC = {"content-type": "application/grpc"}


@pytest.mark.parametrize(
    ("headers", "total", "told"),
    [
        (GRPC | {"grpc-timeout": "4S"}, 2.0, 2.0),
        (GRPC | {"grpc-timeout": "1S"}, 1.0, 1.0),
        (GRPC | {"grpc-timeout": "20S"}, 10.0, 10.0),
        (GRPC | {"grpc-timeout": "x"}, 10.0, 10.0),
        (GRPC, 10.0, 10.0),
        ({"grpc-timeout": "4S"}, 15.0, None),
        (GRPC | {"grpc-timeout": "4S", "x-envoy-upstream-rq-timeout-ms": "6000"}, 6.0, 6.0),
    ],
)
def test_a_grpc_timeout_is_the_timeout_up_to_what_its_route_allows(
    headers: dict[str, str], total: float, told: float | None
) -> None:
    rules = table(to(max_grpc_timeout="10s", grpc_timeout_offset="2s"))
    times = sent(ask(rules, headers=headers)).times

    assert (times.total, times.grpc) == (total, told)


@pytest.mark.parametrize(
    ("headers", "duration", "is_over", "told"),
    [
        (GRPC | {"grpc-timeout": "4S"}, 3.0, False, 3.0),
        (GRPC | {"grpc-timeout": "1S"}, 0.0, True, None),
        (GRPC | {"grpc-timeout": "20S"}, 9.0, False, 9.0),
        (GRPC | {"grpc-timeout": "x"}, 5.0, False, 5.0),
        (GRPC, 5.0, False, 5.0),
        ({}, 5.0, False, None),
    ],
)
def test_a_duration_does_without_a_timeout(
    headers: dict[str, str], duration: float, is_over: bool, told: float | None
) -> None:
    durations = {"max_stream_duration": "5s", "grpc_timeout_header_max": "10s", "grpc_timeout_header_offset": "1s"}
    times = sent(ask(table(to(timeout="7s", max_stream_duration=durations)), headers=headers)).times

    assert (times.total, times.duration, times.is_over, times.grpc) == (None, duration, is_over, told)


def test_strictly_checked_headers_are_named_where_they_are_wrong() -> None:
    names = ("x-envoy-max-retries", "x-envoy-retry-on")

    assert malformed(Request(headers={"x-envoy-max-retries": ["x"]}), names) == "x-envoy-max-retries"
    assert malformed(Request(headers={"x-envoy-retry-on": ["5xx,foo"]}), names) == "x-envoy-retry-on"
    assert malformed(Request(headers={"x-envoy-retry-on": ["5xx"]}), names) == ""


def test_who_came_from_inside_may_stay_without_tls_where_only_strangers_must_not() -> None:
    rules = table(to(), host={"require_tls": "EXTERNAL_ONLY"})

    assert isinstance(ask(rules), Redirected)
    assert isinstance(ask(rules, is_internal=True), Sent)
    assert isinstance(ask(rules, scheme="https"), Sent)


def test_a_key_is_that_of_the_first_terminal_policy_that_finds_something() -> None:
    policies = [{"header": {"header_name": "x-user"}, "terminal": True}, {"connection_properties": {"source_ip": True}}]
    found = sent(ask(table(to(hash_policy=policies)))).action.hash
    by_user, other = (Request(headers={"x-user": ["ann"]}, source_ip=each) for each in ("10.0.0.1", "10.0.0.2"))

    assert hashed(found, by_user) == hashed(found, other)
    assert hashed(found, Request(source_ip="10.0.0.1")) != hashed(found, Request(source_ip="10.0.0.2"))


def test_what_answers_by_itself_and_what_is_nowhere() -> None:
    rules = table(
        {"match": {"path": "/a"}, "direct_response": {"status": 204}},
        {"match": {"path": "/n"}, "non_forwarding_action": {}},
    )

    assert isinstance(ask(rules, "/a"), Answered)
    assert ask(rules, "/b") == Missing(host=rules.config.hosts[0])
    assert ask(rules, "/n") == Missing(host=rules.config.hosts[0], status=503)


@given(st.text("/ab.?=&%;#", max_size=12), st.integers(0, 2**64 - 1))
def test_every_request_is_decided(path: str, chance: int) -> None:
    rules = table(
        to("a", {"safe_regex": {"regex": "/(a|b)+"}}, regex_rewrite={"pattern": {"regex": "a*"}, "substitution": "x"}),
        to("b", {"path_separated_prefix": "/b"}, prefix_rewrite="/"),
        {"match": {"prefix": "/a"}, "redirect": {"prefix_rewrite": "/b"}},
        to("c", {"prefix": "/", "query_parameters": [{"name": "a"}]}),
    )

    assert isinstance(ask(rules, f"/{path}", chance), Sent | Redirected | Missing)


# Expressions.


@pytest.mark.parametrize(
    ("expression", "fits", "fits_not"),
    [
        ("a{,2}", "a{,2}", "aa"),
        (r"a\z", "a", "a\n"),
        ("^/a$", "/a", "/a\n"),
        ("[[:digit:]&&x]+", "1&x", "a"),
        (r"\Q(.\E.", "(.x", "(xx"),
        (r"(?i)ab(?-i:C)", "ABC", "abc"),
        ("(?ii:a|b)+", "AbA", "c"),  # repeats, so it is followed all ways at once
        (r"\d+", "12", "١"),
        (r"[^]a]", "b", "]"),
        (r"\x{41}\x42", "AB", "ab"),
        (r"(?P<n>a)(?<m>b)", "ab", "a"),
        ("a.c", "abc", "a\nc"),
    ],
)
def test_an_expression_means_what_re2_means_by_it(expression: str, fits: str, fits_not: str) -> None:
    pattern, rule, _ = compiled(expression)

    assert rule == ""
    assert pattern is not None
    assert pattern.fits(fits)
    assert not pattern.fits(fits_not)


@pytest.mark.parametrize(
    "expression",
    ["(?=a)", "(?<!a)", r"(a)\1", "a++", "a**", "a{2}{3}", "a{1001}", "a{2,1}", "*a", "(", ")", "[a", r"\Z", r"\u0041", r"\pL", "(?x)a", "(?#a)", "a(?i)b", "", "a" * 2_000, r"[[:nope:]]", "\\"],
)  # fmt: skip
def test_what_re2_does_not_know_or_we_do_not_is_refused(expression: str) -> None:
    pattern, rule, _ = compiled(expression)

    assert pattern is None
    assert rule


@given(st.text(max_size=20))
def test_an_expression_is_taken_or_refused(expression: str) -> None:
    pattern, rule, _ = compiled(expression)

    assert (pattern is None) is bool(rule)


def test_a_replacement_names_groups_by_number() -> None:
    assert substitution(r"/\1/\\", 1) == (r"/\g<1>/\\", "")
    assert substitution(r"\2", 1)[1] == "refers to group 2: the expression has 1"
    assert substitution("\\x", 1)[1]


# Filter chains.


def listener(*matches: dict[str, Any]) -> Listener:
    filters = [
        {
            "name": "t",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "stat_prefix": "t",
                "cluster": "c",
            },
        }
    ]
    chains = [{"name": str(at), "filter_chain_match": each, "filters": filters} for at, each in enumerate(matches)]
    where = {"socket_address": {"address": "0.0.0.0", "port_value": 443}}
    return read(
        {"static_resources": {"listeners": [{"name": "l", "address": where, "filter_chains": chains}]}}
    ).listeners[0]


def taken(made: Listener, **more: Any) -> str | None:
    known = {"destination": Address("10.0.0.9", 443), "source": Address("192.0.2.1", 5_000), **more}
    found = chain_for(made, Connection(**known))
    return None if found is None else found.name


def test_the_most_specific_server_name_wins() -> None:
    made = listener(
        {"server_names": ["*.example"]}, {"server_names": ["a.b.example"]}, {"server_names": ["*.b.example"]}, {}
    )

    assert [
        taken(made, server_name=name) for name in ("a.b.example", "c.b.example", "B.example", "b.other", "", "example")
    ] == ["1", "2", "0", "3", "3", "3"]


def test_there_is_no_way_back_from_a_property_that_fitted() -> None:
    made = listener({"destination_port": 443, "server_names": ["a.example"]}, {"server_names": ["b.example"]})

    assert taken(made, server_name="a.example") == "0"
    assert taken(made, server_name="b.example") is None


def test_the_longest_range_of_addresses_wins_and_then_the_clients_order_of_protocols() -> None:
    ranges = listener(
        {"prefix_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]},
        {"prefix_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 24}]},
        {},
    )
    protocols = listener({"application_protocols": ["h2"]}, {"application_protocols": ["http/1.1"]})

    assert taken(ranges) == "1"
    assert taken(ranges, destination=Address("10.9.0.1", 443)) == "0"
    assert taken(ranges, destination=Address("::1", 443)) == "2"
    assert taken(protocols, alpn=("http/1.1", "h2")) == "1"
    assert taken(protocols, alpn=("x",)) is None


def test_where_a_connection_comes_from_can_be_asked() -> None:
    made = listener(
        {"source_type": "SAME_IP_OR_LOOPBACK"},
        {"source_prefix_ranges": [{"address_prefix": "192.0.2.0", "prefix_len": 24}], "source_ports": [7]},
        {"source_prefix_ranges": [{"address_prefix": "192.0.2.0", "prefix_len": 24}]},
    )

    assert taken(made, source=Address("127.0.0.1", 1)) == "0"
    assert taken(made, source=Address("192.0.2.9", 7)) == "1"
    assert taken(made, source=Address("192.0.2.9", 8)) == "2"
    assert taken(made, source=Address("198.51.100.1", 8)) is None


@given(st.lists(st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "(", "(?:", "(?i:", ")", "|", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "^", "$", r"\b", r"\d"]), max_size=14), st.text("abAB1-\n", min_size=1, max_size=8))  # fmt: skip
def test_all_ways_at_once_come_to_what_going_back_comes_to(pieces: list[str], text: str) -> None:
    expression, _, _ = compiled("".join(pieces))

    if expression is not None:
        assert program(expression.parts).fits(text) is (re.fullmatch(expression.pattern, text, re.ASCII) is not None)


@pytest.mark.parametrize(
    "expression", ["(a+)+b", "(a|a)*b", "(a|ab)(c|bcd)*(a*)*", "(?:a{1,9}){1,9}b", ".*a.*a.*b", "((a*)*)*b"]
)
def test_no_text_makes_an_expression_take_long(expression: str) -> None:
    """Steps, not time: what is remembered answers almost all of them, and each is made once."""
    found, _, _ = compiled(expression)

    assert found is not None
    assert not found.is_quick
    assert not found.fits("a" * 20_000 + "!")


def test_an_expression_that_repeats_what_repeats_is_not_replaced() -> None:
    problems = Findings()
    rewriting = {"pattern": {"regex": "(/a+)+"}, "substitution": "/"}
    route_config(
        Block(
            {"virtual_hosts": [{"name": "a", "domains": ["*"], "routes": [to(regex_rewrite=rewriting)]}]}, (), problems
        )
    )

    assert ["repeats what repeats" in each.rule for each in problems] == [True]
