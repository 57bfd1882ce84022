"""The source document's heartbeat: read as it stands, matched to one line or to its candidates, turned into a reading."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.rules import Rules
from reachline.core.zone import verdict
from reachline.doors import heartbeat, reach
from reachline.errors import ConfigError
from reachline.model import Counts, Kind, Line, LineId, Locality, VantageId, Zone

SAMPLE = b"""{ "agent_id": "agent-az1-edge-03", "ts": 1699999999, "target_zone": "az2", "target_ip": "10.20.30.40",
"probe_type": "tcp_connect", "sample_count": 50, "avg_rtt_ms": 158.2, "p95_rtt_ms": 270.3, "loss_rate": 0.012,
"timeout_rate": 0.04, "status": "degraded" }"""


def changed(**fields: object) -> bytes:
    """The sample with other fields; None takes one out."""
    document = {**json.loads(SAMPLE), **fields}
    return json.dumps({name: value for name, value in document.items() if value is not None}).encode()


def test_the_sample_of_the_source_document_is_read_as_it_stands() -> None:
    found = heartbeat.read(SAMPLE)

    assert (found.agent, found.target, found.target_zone, found.kind) == (
        "agent-az1-edge-03",
        "10.20.30.40",
        "az2",
        Kind.TCP,
    )
    assert (found.samples, found.average_ms, found.p95_ms) == (50, 158.2, 270.3)
    assert (found.loss, found.timeouts, found.status, found.sent) == (0.012, 0.04, "degraded", 1_699_999_999)
    assert found.line is None


def test_its_rates_become_counts_and_what_it_cannot_say_stays_unknown() -> None:
    reading = heartbeat.reading(heartbeat.read(SAMPLE))

    assert reading.counts == Counts(ok=48, late=2)
    assert (reading.sent, reading.lost) == (50, 1)
    assert (reading.ewma_us, reading.p95_us, reading.p50_us, reading.jitter_us) == (158_200, 270_300, None, None)
    assert (reading.rounds, reading.recent, reading.fresh_ok, reading.covered_ms) == (0, 0, 0, 0)
    assert reading.quality == 1


def test_the_judge_finds_the_sample_degraded_as_its_agent_did() -> None:
    limits = reach.rules(reach.read("clusters: {c: {lines: [tcp://h:1]}}", name="x"), "c").limits
    found = heartbeat.read(SAMPLE)

    assert verdict(found.agent, [heartbeat.reading(found)], {}, Rules(limits=limits)).zone is Zone.D


@given(st.integers(1, 1_000_000), st.floats(0, 1), st.floats(0, 1))
def test_counts_never_exceed_the_samples(samples: int, loss: float, timeouts: float) -> None:
    reading = heartbeat.reading(heartbeat.read(changed(sample_count=samples, loss_rate=loss, timeout_rate=timeouts)))

    assert reading.counts.attempts == samples
    assert 0 <= reading.lost <= reading.sent == samples
    assert abs(reading.lost - loss * samples) <= 0.5


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"agent_id": None}, ["agent_id"]),
        ({"agent_id": 7}, ["agent_id"]),
        ({"agent_id": "a" * 200}, ["agent_id"]),
        ({"agent_id": "a\nb"}, ["agent_id"]),
        ({"ts": "now"}, ["ts"]),
        ({"ts": None}, ["ts"]),
        ({"target_ip": "az2.example"}, ["target_ip"]),
        ({"probe_type": "carrier_pigeon"}, ["probe_type"]),
        ({"sample_count": 0}, ["sample_count"]),
        ({"sample_count": 2.5}, ["sample_count"]),
        ({"sample_count": True}, ["sample_count"]),
        ({"loss_rate": 1.2}, ["loss_rate"]),
        ({"loss_rate": -0.1}, ["loss_rate"]),
        ({"timeout_rate": "4%"}, ["timeout_rate"]),
        ({"avg_rtt_ms": -1}, ["avg_rtt_ms"]),
        ({"p95_rtt_ms": 1e12}, ["p95_rtt_ms"]),
        ({"status": "fine"}, ["status"]),
        ({"line": 7}, ["line"]),
        ({"sample_count": None, "loss_rate": 2, "target_ip": ""}, ["target_ip", "sample_count", "loss_rate"]),
    ],
)
def test_a_malformed_heartbeat_is_refused_with_every_field_named(fields: dict[str, object], named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        heartbeat.read(changed(**fields))

    assert [problem.path for problem in caught.value.problems] == named


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 10_000, "is not JSON"),
        (b"[]", "is not an object"),
        (b'"x"', "is not an object"),
        (b" " * (heartbeat.MAX_BYTES + 1), "bytes, at most"),
        (changed(loss_rate=float("nan")), "must be a number"),
    ],
)
def test_what_is_no_heartbeat_is_refused(payload: bytes, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        heartbeat.read(payload)


@given(st.binary(max_size=200) | st.from_type(dict).map(lambda value: json.dumps(str(value)).encode()))
def test_any_bytes_are_read_or_refused_in_words(payload: bytes) -> None:
    with pytest.raises(ConfigError):
        heartbeat.read(payload)


def test_fields_it_does_not_know_are_passed_over() -> None:
    assert heartbeat.read(changed(hostname="x", labels={"a": 1})).samples == 50


def test_rtts_it_does_not_name_stay_unknown() -> None:
    reading = heartbeat.reading(heartbeat.read(changed(avg_rtt_ms=None, p95_rtt_ms=None)))

    assert (reading.ewma_us, reading.p95_us) == (None, None)


WORLD = """
clusters:
  pay:
    lines:
      one: {to: "tcp://10.20.30.40:443", from: az1}
      two: {to: "tcp://10.20.30.41:443"}
      name: {to: "tcp://pay.example:443"}
  other:
    lines:
      six: {to: "tcp://[2001:db8::1]:443"}
      dup: {to: "tcp://10.20.30.41:8443"}
agents:
  near: {locality: {zone: az1}}
  far: {locality: {zone: az2}}
"""


def matched(**fields: object) -> LineId | tuple[LineId, ...]:
    document = reach.read(WORLD, name="w.yaml")
    lines: list[Line] = [line for cluster in document.clusters for line in reach.lines(document, cluster)]
    agents = {VantageId(name): reach.locality_of(document, name) for name in document.agents}
    return heartbeat.match(heartbeat.read(changed(**fields)), lines, agents)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"agent_id": "near"}, "pay/one@az1"),
        ({"agent_id": "far"}, ()),
        ({"agent_id": "stranger"}, ()),
        ({"agent_id": "near", "target_ip": "10.20.30.41"}, ("pay/two", "other/dup")),
        ({"agent_id": "near", "target_ip": "10.20.30.41", "line": "other/dup"}, "other/dup"),
        ({"agent_id": "near", "target_ip": "2001:0db8:0::1"}, "other/six"),
        ({"agent_id": "near", "target_ip": "10.9.9.9"}, ()),
        ({"agent_id": "near", "target_ip": "10.9.9.9", "line": "pay/name"}, "pay/name"),
        ({"agent_id": "near", "target_ip": "10.9.9.9", "line": "pay/two"}, ()),
        ({"agent_id": "far", "line": "pay/one@az1"}, ()),
        ({"agent_id": "near", "line": "pay/nothing"}, ()),
    ],
)
def test_a_heartbeat_is_matched_by_its_agents_zone_and_its_target(fields: dict[str, object], expected: object) -> None:
    assert matched(**fields) == expected


def test_an_agent_is_matched_by_the_zone_it_stands_in() -> None:
    document = reach.read(
        "clusters: {pay: {lines: {one: {to: 'tcp://10.20.30.40:443', from: [az1, az2]}}}}\n"
        "agents: {edge-1: {locality: {zone: az1}}, edge-2: {locality: {zone: az2}}}",
        name="w.yaml",
    )
    joined = {VantageId("agent-az1-edge-03"): Locality(zone="az2")}

    assert heartbeat.match(heartbeat.read(SAMPLE), reach.lines(document, "pay"), joined) == "pay/one@az2"
