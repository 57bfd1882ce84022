"""What one release makes of another's frames: unknown fields are passed over, unknown kinds are never sent, a major is said."""

from __future__ import annotations

import msgspec
import pytest

from reachline.center.abilities import fitted
from reachline.errors import RemoteProtocolError
from reachline.model import Kind, Reading
from reachline.wire import frame
from reachline.wire.frame import (
    Detail,
    Heartbeat,
    Hello,
    LinePlan,
    Plan,
    ProbePlan,
    Report,
    Welcome,
    features_of,
    kinds_in,
)

FIRST = {Kind.TCP, Kind.HTTP, Kind.TLS, Kind.DNS, Kind.ICMP}


def probe(kind: Kind) -> ProbePlan:
    return ProbePlan(kind=kind, interval_ms=5_000, suspect_interval_ms=2_000)


FRAMES: tuple[frame.Frame, ...] = (
    Hello(release="9.9", agent="edge", boot="b1"),
    Welcome(release="9.9", epoch=7),
    Plan(number=3, lines=(LinePlan(line="shop/web", target="tcp://10.0.0.1:443", probes=(probe(Kind.TCP),)),)),
    frame.Hint(suspects=("shop/web",)),
    Heartbeat(agent="edge", boot="b1", sequence=1, reports=(Report(line="shop/web", reading=Reading(Kind.TCP), detail=Detail(address="::1")),)),
    frame.Ack(sequence=1),
    frame.Bye(reason="over"),
)  # fmt: skip


def grown(raw: object) -> object:
    """The frame as a newer minor might write it: one more field in every struct."""
    if isinstance(raw, dict):
        return {key: grown(value) for key, value in raw.items()} | {"novelty": {"of": ["a", "newer", "minor"]}}
    return [grown(each) for each in raw] if isinstance(raw, list) else raw


@pytest.mark.parametrize("said", FRAMES, ids=lambda said: type(said).__name__)
def test_fields_of_a_newer_minor_are_passed_over(said: frame.Frame) -> None:
    raw = msgspec.msgpack.decode(frame.encode(said))
    # A dictionary of options is not a struct: what stands in it is an option.
    for line in raw.get("lines", ()):
        for each in line["probes"]:
            assert "options" not in each

    assert frame.decode(msgspec.msgpack.encode(grown(raw))) == said


@pytest.mark.parametrize("said", FRAMES, ids=lambda said: type(said).__name__)
def test_every_field_but_the_required_ones_may_be_missing(said: frame.Frame) -> None:
    raw = msgspec.msgpack.decode(frame.encode(said))
    needed = {field.name for field in msgspec.structs.fields(said) if field.required} | {"type"}

    spare = frame.decode(msgspec.msgpack.encode({key: value for key, value in raw.items() if key in needed}))

    assert type(spare) is type(said)


@pytest.mark.parametrize(
    "said", [Hello(release="r", agent="a", boot="b"), Welcome(release="r", epoch=1)], ids=["hello", "welcome"]
)
@pytest.mark.parametrize("protocol", [(1, 0), (1, 9), (2, 0)])
def test_the_protocol_arrives_whatever_the_receivers_own_one_is(
    said: Hello | Welcome, protocol: tuple[int, int]
) -> None:
    sent = frame.encode(msgspec.structs.replace(said, protocol=protocol))

    found = frame.decode(sent)

    assert isinstance(found, Hello | Welcome)
    assert found.protocol == protocol
    assert "protocol" not in msgspec.msgpack.decode(frame.encode(said)), "what is not said is 1.0 for ever"


def test_a_kind_that_is_not_known_cannot_even_be_read() -> None:
    raw = msgspec.msgpack.decode(frame.encode(FRAMES[2]))
    raw["lines"][0]["probes"][0]["kind"] = "quic"

    with pytest.raises(RemoteProtocolError, match="quic"):
        frame.decode(msgspec.msgpack.encode(raw))


@pytest.mark.parametrize(
    ("features", "kinds"),
    [
        ((), FIRST),
        (("hint", "replay"), FIRST),
        (("hint", *features_of(Kind)), set(Kind)),
        (features_of([Kind.TCP, Kind.REDIS]), {Kind.TCP, Kind.REDIS}),
        (("kind.tcp", "kind.quic"), {Kind.TCP}),
    ],
    ids=["silent", "last", "all", "two", "newer"],
)
def test_an_agent_knows_the_kinds_it_names_or_else_the_first_five(features: tuple[str, ...], kinds: set[Kind]) -> None:
    assert kinds_in(features) == kinds


def test_a_plan_is_cut_to_what_its_agent_knows_and_says_what_is_missing() -> None:
    both = LinePlan(line="shop/both", target="tcp://10.0.0.1:443", probes=(probe(Kind.TCP), probe(Kind.GRPC)))
    plain = LinePlan(line="shop/plain", target="tcp://10.0.0.2:443", probes=(probe(Kind.TCP),))
    named = LinePlan(line="shop/named", target="grpcs://a.example/x.Health", probes=(probe(Kind.GRPC), probe(Kind.TCP)))
    alone = LinePlan(line="shop/alone", target="redis://10.0.0.3:6379", probes=(probe(Kind.REDIS),))
    plan = Plan(number=1, lines=(both, plain, named, alone))

    fit = fitted(plan, frozenset(FIRST), release="0.1.0")

    assert [line.line for line in fit.plan.lines] == ["shop/both", "shop/plain", "shop/named"]
    assert [each.kind for line in fit.plan.lines for each in line.probes] == [Kind.TCP] * 3
    assert [line.target for line in fit.plan.lines] == [both.target, plain.target, "tcp://a.example:443"]
    assert fit.plan.lines[1] is plain
    assert fit.lacks == {Kind.GRPC, Kind.REDIS}
    assert [(report.line, report.reading.kind, report.reading.void) for report in fit.excuses] == [
        ("shop/both", Kind.GRPC, True),
        ("shop/named", Kind.GRPC, True),
        ("shop/alone", Kind.REDIS, True),
    ]
    assert fit.excuses[0].detail.error == "this agent cannot probe grpc: its release 0.1.0 does not know the kind"


def test_a_plan_whose_kinds_are_all_known_is_sent_as_it_is() -> None:
    plan = Plan(number=1, lines=(LinePlan(line="shop/web", target="tcp://10.0.0.1:443", probes=(probe(Kind.TCP),)),))

    fit = fitted(plan, frozenset(Kind), release="0.1.0")

    assert fit.plan is plan
    assert (fit.lacks, fit.excuses) == (frozenset(), ())


def test_a_reading_is_no_longer_on_the_wire_than_in_the_first_release() -> None:
    """An array with more would cost a center of that release the whole heartbeat."""
    told = Report(line="shop/web", reading=Reading(Kind.TCP, sent=5, fresh_ok=4, fresh_slow=2))
    sent = frame.encode(Heartbeat(agent="edge", boot="b1", sequence=1, reports=(told,)))

    (report,) = msgspec.msgpack.decode(sent)["reports"]
    assert len(report["reading"]) == 18
    assert Reading._fields[:18] == (
        "kind", "counts", "sent", "lost", "rounds", "rounds_ok", "recent", "recent_bad", "answered", "ewma_us", "p50_us",
        "p95_us", "jitter_us", "fresh_ok", "fresh_failed", "covered_ms", "void", "quality",
    ), "new ones are appended"  # fmt: skip
    found = frame.decode(sent)
    assert isinstance(found, Heartbeat)
    assert found.reports == (told,)


@pytest.mark.parametrize("beyond", [[2], [0, 2, 0], [0, 2, 0, 7, 7]], ids=["older", "this", "newer"])
def test_what_a_reading_says_beyond_the_first_release_is_taken_as_far_as_it_is_known(beyond: list[int]) -> None:
    sent = frame.encode(
        Heartbeat(
            agent="edge", boot="b1", sequence=1, reports=(Report(line="shop/web", reading=Reading(Kind.TCP, sent=5)),)
        )
    )
    raw = msgspec.msgpack.decode(sent)
    raw["reports"][0]["more"] = beyond

    found = frame.decode(msgspec.msgpack.encode(raw))

    assert isinstance(found, Heartbeat)
    (report,) = found.reports
    assert report.reading[:18] == Reading(Kind.TCP, sent=5)[:18]
    assert list(report.reading[18:]) == [*beyond, 0, 0, 0][: len(Reading._fields) - 18]
    assert report.more == ()
