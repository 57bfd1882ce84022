from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.client.answer import line_list, parsed
from reachline.core.rules import LocalRules
from reachline.errors import RemoteProtocolError
from reachline.model import Gate, Health, Role, Version
from reachline.testing.door import COST, document, line, pair
from reachline.upstream import LineList


def read(answer: Any) -> LineList:
    return line_list(answer, cluster="payments")


def test_an_answer_of_the_contract_is_read_whole() -> None:
    row = line(
        "a@az1",
        87,
        address="https://a.example/healthz",
        via="socks5://10.0.0.9:1080",
        roles=["traffic", "primary"],
        health="degraded",
        breaker="ramp",
        step=2,
        score=87,
        reason="vote.loss.degraded",
        since=5.0,
        next=6.5,
        window=4,
        blind=True,
        provider="p1",
        groups=["fibre-7"],
        faults=1_000_000,
        share=0.2,
    )

    found = read(document(row, line("b", 0, breaker="open", drained=True), version="7.12", policy=["ab_groups"]))

    first, second = found.lines
    assert (found.version, found.policy, found.ttl) == (Version(7, 12), ("ab_groups",), 300.0)
    assert found.local == LocalRules()
    assert found.faults.cost == tuple(COST)
    assert first.target.address == ("a.example", 443)
    assert (first.line, first.via, first.weight) == ("payments/a@az1", "socks5://10.0.0.9:1080", 87)
    assert first.roles == {Role.TRAFFIC, Role.PRIMARY}
    assert (first.health, first.breaker, first.step, first.window) == (Health.DEGRADED, Gate.RAMP, 2, 4)
    assert (first.since, first.next, first.faults, first.share) == (5.0, 6.5, 1_000_000, 0.2)
    assert (first.provider, first.groups, first.is_blind, first.reason) == (
        "p1",
        ("fibre-7",),
        True,
        "vote.loss.degraded",
    )
    assert (second.breaker, second.is_drained) == (Gate.OPEN, True)


def test_a_plain_answer_of_a_foreign_center_needs_little() -> None:
    found = read({"version": "1.1", "lines": [{"line": "payments/a", "address": "10.0.0.1:80", "weight": 3}]})

    assert found.lines[0].target.address == ("10.0.0.1", 80)
    assert (found.lines[0].base, found.lines[0].breaker, found.policy) == (3, Gate.CLOSED, ("weighted",))


def test_unknown_keys_and_words_are_a_newer_centers() -> None:
    rows = [
        line("a", 5, health="euphoric", breaker="ajar", role="primary+deputy", roles=None),
        line("b", 0, breaker="ajar"),
    ]
    rows[0].pop("roles")

    found = read(document(*rows, mood="good"))

    assert (found.lines[0].health, found.lines[0].breaker) == (Health.UNKNOWN, Gate.CLOSED)
    assert found.lines[0].roles == {Role.PRIMARY}
    assert found.lines[1].breaker is Gate.OPEN


def with_line(**more: Any) -> dict[str, Any]:
    return document(line("a", 1), line("b", 1) | more)


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ([], "answer: must be an object"),
        ({}, "lines: must be a list"),
        (pair(version="1"), "version: must be epoch.counter"),
        (pair(version="-1.2"), "version: must be epoch.counter"),
        (pair(version="1.٣"), "version: must be epoch.counter"),
        (pair() | {"version": 1.1}, "version: must be a text"),
        (pair() | {"version": f"1.{'9' * 5_000}"}, "version: must be a text"),
        (pair() | {"cluster": "other"}, "cluster: 'other' was not asked for"),
        (pair(ttl=0), "ttl: must be a number"),
        (pair(ttl=1e300), "ttl: must be a number"),
        (pair(policy="weighted"), "policy: must be a list"),
        (pair(policy=[1]), "policy: must hold texts"),
        (pair(lines=[1]), "lines.0: must be an object"),
        (pair(lines={}), "lines: must be a list"),
        (with_line(line=""), "lines.1.line: must be a text"),
        (with_line(line=5), "lines.1.line: must be a text"),
        (with_line(line="payments/a"), "lines: an id stands twice"),
        (with_line(address=None), "lines.1.address: must be a text"),
        (with_line(weight=-1), "lines.1.weight: must be a whole number"),
        (with_line(weight=1.5), "lines.1.weight: must be a whole number"),
        (with_line(weight=True), "lines.1.weight: must be a whole number"),
        (with_line(weight="100"), "lines.1.weight: must be a whole number"),
        (with_line(weight=10**30), "lines.1.weight: must be a whole number"),
        (with_line(window=-1), "lines.1.window: must be a whole number"),
        (with_line(since=-5), "lines.1.since: must be a number"),
        (with_line(drained="yes"), "lines.1.drained: must be true or false"),
        (with_line(reason="x" * 5_000), "lines.1.reason: must be a text"),
        (with_line(groups="x"), "lines.1.groups: must be a list"),
        (pair(local_rules=[]), "local_rules: must be an object"),
        (pair(local_rules={"open": 0}), "local_rules.open: must be a number"),
        (pair(local_rules={"slow": -1}), "local_rules.slow: must be a number"),
        (pair(local_rules={"max_open": 2}), "local_rules.max_open: must be a number"),
        (pair(local_rules={"failures": -1}), "local_rules.failures: must be a whole number"),
        (pair(local_rules={"formula": {"cost": [1.5]}}), "local_rules.formula.cost: must be"),
        (pair(local_rules={"formula": {"cost": [10**13]}}), "local_rules.formula.cost: must be"),
        (pair(local_rules={"formula": {"cost": [1] * 64}}), "local_rules.formula.cost: must be"),
        (pair(local_rules={"formula": {"lines": {"payments/a": 5}}}), "formula.payments/a: must be an object"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_malformed_answer_is_refused_by_its_field(answer: Any, place: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(answer)

    assert str(caught.value).startswith(place)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[NaN]", b"[Infinity]", b"[" + b"9" * 10_000 + b"]", b"<html>"],
    ids=lambda body: repr(body[:10]),
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not JSON"):
        parsed(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from([*pair(), *line("a", 1), "formula", "cost", "faults", "share", "open", "lines"])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        found += places(each, (*path, key))
    return found


@given(st.data(), JSON)
def test_whatever_a_field_holds_is_read_or_refused_and_never_anything_else(data: st.DataObject, value: Any) -> None:
    answer = json.loads(json.dumps(pair()))
    path = data.draw(st.sampled_from(places(answer)))
    holder = answer
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value

    try:
        found = read(json.loads(json.dumps(answer)))
    except RemoteProtocolError:
        return
    assert all(0 <= each.weight <= 1_000_000 for each in found.lines)


@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_any_document_at_all_is_read_or_refused(answer: Any) -> None:
    with suppress(RemoteProtocolError):
        read(answer)


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_read_or_refused(body: bytes) -> None:
    with suppress(RemoteProtocolError):
        read(parsed(body))
