"""The control plane's half of ADS as a pure state machine: what is owed to a client, whatever it says and whatever changes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.errors import LocalProtocolError, RemoteProtocolError
from reachline.wire.ads import CDS, EDS, FULL, LDS, RDS, DeltaRequest, Request
from reachline.wire.ads_serving import Answer, Heard, Subscriber
from reachline.wire.asking import MOST_NAMES
from reachline.wire.resources import EMPTY, LARGEST, Differences, Resources, rendered


def resources(before: Resources = EMPTY, gone=(), /, **bodies: dict[str, str]) -> Resources:
    """`cds={"a": "1"}` → resources with these bodies, in place of `before`'s."""
    urls = {"cds": CDS, "eds": EDS, "lds": LDS, "rds": RDS}
    changed = [
        rendered(urls[kind], name, body.encode()) for kind, each in bodies.items() for name, body in each.items()
    ]
    return before.replaced(changed, gone)


def subscriber(*, delta=False) -> Subscriber:
    return Subscriber(Differences(), delta=delta)


def asks(*names, type_url=EDS, nonce="", error="", version=""):
    return Request(type_url, names, version, nonce, error)


def due(stream: Subscriber, now: Resources | None) -> Answer:
    answer = stream.due(now)
    assert answer is not None
    return answer


def bodies(answer: Answer) -> dict[str, str]:
    return {one.name: one.body.decode() for one in answer.resources}


def settle(stream: Subscriber, now: Resources | None, *names, refuses=None) -> list[Answer]:
    """Every answer that is due, each taken (or refused where `refuses` gives a reason) as a SotW client does."""
    answers = []
    while (answer := stream.due(now)) is not None:
        answers.append(answer)
        error = refuses(answer) if refuses else ""
        wanted = names if answer.type_url not in FULL else ()
        if answer.is_delta:
            stream.received(DeltaRequest(answer.type_url, nonce=answer.nonce, error=error))
        else:
            stream.received(asks(*wanted, type_url=answer.type_url, nonce=answer.nonce, error=error))
        assert len(answers) < 50
    return answers


# -- versions -----------------------------------------------------------------------------------------------------------


def test_a_version_is_of_the_content_and_the_same_after_any_history() -> None:
    one = resources(cds={"a": "1", "b": "2"})
    other = resources(resources(resources(cds={"b": "9"}), cds={"b": "2", "c": "3"}), [(CDS, "c")], cds={"a": "1"})

    assert one.shelf(CDS).version == other.shelf(CDS).version != resources(cds={"a": "2", "b": "1"}).shelf(CDS).version
    assert one.shelf(EDS).version == EMPTY.shelf(EDS).version


def test_what_does_not_change_is_shared_and_what_is_the_same_is_itself() -> None:
    before = resources(cds={"a": "1"}, eds={"a": "1"})
    after = resources(before, eds={"a": "2"})

    assert after.shelf(CDS) is before.shelf(CDS)
    assert resources(before, cds={"a": "1"}) is before


def test_a_resource_without_a_name_or_above_the_bound_is_refused_by_name() -> None:
    with pytest.raises(LocalProtocolError, match="without a name"):
        rendered(EDS, "", b"")
    with pytest.raises(LocalProtocolError, match=rf"big: {LARGEST + 1} bytes, at most {LARGEST}"):
        rendered(EDS, "big", bytes(LARGEST + 1))


# -- state of the world -------------------------------------------------------------------------------------------------


def test_a_center_that_knows_nothing_yet_says_nothing_and_then_everything() -> None:
    stream = subscriber()
    stream.received(asks(type_url=CDS))

    assert stream.due(None) is None
    assert bodies(due(stream, resources(cds={"a": "1"}))) == {"a": "1"}


def test_an_answer_names_what_exists_and_what_comes_to_exist_follows() -> None:
    stream, now = subscriber(), resources(eds={"a": "1"})
    stream.received(asks("a", "later"))

    first = due(stream, now)
    stream.received(asks("a", "later", nonce=first.nonce))
    assert stream.due(now) is None
    second = due(stream, resources(now, eds={"later": "2"}))

    assert (bodies(first), bodies(second)) == ({"a": "1"}, {"later": "2"})
    assert first.nonce != second.nonce


def test_names_of_which_none_exists_get_silence_for_endpoints_and_an_empty_answer_for_clusters() -> None:
    stream = subscriber()
    stream.received(asks("nowhere"))
    stream.received(asks("nowhere", type_url=CDS))

    answers = settle(stream, resources(eds={"a": "1"}), "nowhere")

    assert [(each.type_url, each.resources) for each in answers] == [(CDS, ())]


def test_endpoints_are_told_in_part_and_clusters_whole() -> None:
    stream, now = subscriber(), resources(cds={"a": "1", "b": "1"}, eds={"a": "1", "b": "1"})
    stream.received(asks(type_url=CDS))
    stream.received(asks("a", "b"))
    settle(stream, now, "a", "b")

    answers = settle(stream, resources(now, cds={"c": "1"}, eds={"b": "2"}), "a", "b")

    assert [(each.type_url, bodies(each)) for each in answers] == [
        (CDS, {"a": "1", "b": "1", "c": "1"}),
        (EDS, {"b": "2"}),
    ]


def test_a_stale_nonce_changes_nothing() -> None:
    stream, now = subscriber(), resources(eds={"a": "1", "b": "1"})
    stream.received(asks("a"))
    stream.due(now)

    assert stream.received(asks("a", "b", nonce="")) is Heard.STALE
    assert stream.received(asks("a", "b", nonce="77")) is Heard.STALE
    assert stream.due(resources(now, eds={"a": "2"})) is None


@pytest.mark.parametrize("type_url", [CDS, EDS])
def test_a_name_let_go_and_taken_up_again_while_an_answer_was_on_its_way_is_told_again(type_url) -> None:
    stream, now = subscriber(), resources(cds={"a": "1", "b": "1"}, eds={"a": "1", "b": "1"})
    stream.received(asks("a", "b", type_url=type_url))
    first = due(stream, now)
    stream.received(asks("a", "b", type_url=type_url, nonce=first.nonce))
    second = due(stream, resources(now, cds={"a": "2"}, eds={"a": "2"}))

    assert stream.received(asks("a", type_url=type_url, nonce=first.nonce)) is Heard.STALE
    stream.received(asks("a", "b", type_url=type_url, nonce=second.nonce))

    assert bodies(due(stream, resources(now, cds={"a": "2"}, eds={"a": "2"})))["b"] == "1"


def test_who_are_told_the_same_are_told_it_by_the_same_nonce_and_none_comes_twice() -> None:
    differences = Differences()
    early, late = (Subscriber(differences, delta=False) for _ in range(2))
    states = [resources(eds={"a": str(at)}) for at in range(3)]
    early.received(asks("a"))
    nonces = []
    for now in (states[0], states[1], states[0]):
        nonces.append(due(early, now).nonce)
        early.received(asks("a", nonce=nonces[-1]))
    late.received(asks("a"))

    answers = [due(each, states[2]) for each in (early, late)]

    assert len({*nonces, answers[0].nonce}) == 4
    assert answers[0] == answers[1]


def test_new_names_are_sent_also_where_they_were_sent_before() -> None:
    stream, now = subscriber(), resources(eds={"a": "1", "b": "1"})
    stream.received(asks("a", "b"))
    first = due(stream, now)
    stream.received(asks("a", nonce=first.nonce))
    assert stream.due(now) is None
    stream.received(asks("a", "b", nonce=first.nonce))

    assert bodies(due(stream, now)) == {"b": "1"}


def test_never_named_is_everything_and_once_named_nothing_is_nothing() -> None:
    stream, now = subscriber(), resources(cds={"a": "1", "b": "1"})
    stream.received(asks(type_url=CDS))
    first = due(stream, now)
    stream.received(asks("b", type_url=CDS, nonce=first.nonce))
    second = due(stream, now)
    stream.received(asks(type_url=CDS, nonce=second.nonce))

    assert (bodies(first), bodies(second)) == ({"a": "1", "b": "1"}, {"b": "1"})
    assert stream.due(resources(now, cds={"b": "2"})) is None


def test_a_star_is_everything_beside_names() -> None:
    stream, now = subscriber(), resources(cds={"a": "1", "b": "1"})
    stream.received(asks("*", "a", type_url=CDS))

    assert bodies(due(stream, now)) == {"a": "1", "b": "1"}


def test_a_repeated_request_is_answered_once_for_whoever_answers_everything_twice() -> None:
    stream, now = subscriber(), resources(cds={"a": "1"}, eds={"a": "1"})
    stream.received(asks(type_url=CDS))
    stream.received(asks("a"))
    told = 0
    while (answer := stream.due(now)) is not None:
        told += 1
        again = asks(*(() if answer.type_url == CDS else ("a",)), type_url=answer.type_url, nonce=answer.nonce)
        stream.received(again)
        stream.received(again)

    assert told == 4
    assert bodies(due(stream, resources(now, eds={"a": "2"}))) == {"a": "2"}


def test_who_lets_names_go_is_told_nothing_of_those_it_keeps() -> None:
    stream, now = subscriber(), resources(eds={"a": "1", "b": "1", "c": "1"})
    stream.received(asks("a", "b", "c"))
    nonce = due(stream, now).nonce
    stream.received(asks("a", "b", "c", nonce=nonce))

    stream.received(asks("a", "b", nonce=nonce))

    assert stream.due(now) is None
    stream.received(asks("a", "b", nonce=nonce))
    assert bodies(due(stream, now)) == {"a": "1", "b": "1"}  # a request repeated word for word is answered


def test_endpoints_are_told_again_after_their_cluster_changed() -> None:
    stream, now = subscriber(), resources(cds={"a": "1", "b": "1"}, eds={"a": "1", "b": "1"})
    stream.received(asks(type_url=CDS))
    stream.received(asks("a", "b"))
    settle(stream, now, "a", "b")

    answers = settle(stream, resources(now, cds={"b": "2"}), "a", "b")

    assert [(each.type_url, sorted(bodies(each))) for each in answers] == [(CDS, ["a", "b"]), (EDS, ["b"])]


def test_a_client_that_never_answers_is_told_each_type_once_whatever_changes() -> None:
    stream, now = subscriber(), resources(cds={"a": "1"}, eds={"a": "1"})
    stream.received(asks(type_url=CDS))
    stream.received(asks("a"))

    first = [due(stream, now), due(stream, now)]
    later = [stream.due(resources(now, eds={"a": str(number)})) for number in range(100)]
    stream.received(asks("a", nonce=first[1].nonce))

    assert [each.type_url for each in first] == [CDS, EDS]
    assert later == [None] * 100
    assert bodies(due(stream, resources(now, eds={"a": "newest"}))) == {"a": "newest"}


@pytest.mark.parametrize("delta", [False, True])
def test_clusters_come_before_what_leads_to_them_and_go_after_it(delta) -> None:
    stream = subscriber(delta=delta)
    now = resources(cds={"old": "1"}, eds={"old": "1"}, lds={"l": "1"}, rds={"r": "old"})
    after = resources(now, [(CDS, "old"), (EDS, "old")], cds={"new": "1"}, eds={"new": "1"}, rds={"r": "new"})
    if delta:
        for request in (
            DeltaRequest(LDS), DeltaRequest(RDS, ("r",)), DeltaRequest(CDS), DeltaRequest(EDS, ("old", "new")),
        ):  # fmt: skip
            stream.received(request)
    else:
        for request in (asks(type_url=LDS), asks("r", type_url=RDS), asks(type_url=CDS), asks("old", "new")):
            stream.received(request)
    names = {EDS: ("old", "new"), RDS: ("r",)}

    def told(state):
        rows = []
        while (answer := stream.due(state)) is not None:
            rows.append((answer.type_url, sorted(bodies(answer)), answer.removed))
            if delta:
                stream.received(DeltaRequest(answer.type_url, nonce=answer.nonce))
            else:
                wanted = names.get(answer.type_url, ())
                stream.received(asks(*wanted, type_url=answer.type_url, nonce=answer.nonce))
        return rows

    first, second = told(now), told(after)

    assert [row[0] for row in first] == [CDS, EDS, LDS, RDS]
    if delta:
        assert second == [
            (CDS, ["new"], ()), (EDS, ["new"], ("old",)), (RDS, ["r"], ()), (CDS, [], ("old",)),
        ]  # fmt: skip
    else:
        assert second == [(CDS, ["new", "old"], ()), (EDS, ["new"], ()), (RDS, ["r"], ()), (CDS, ["new"], ())]


def test_routes_wait_until_the_client_has_taken_the_clusters() -> None:
    stream, now = subscriber(), resources(cds={"a": "1"}, rds={"r": "1"})
    stream.received(asks(type_url=CDS))
    stream.received(asks("r", type_url=RDS))

    first, waiting = due(stream, now), stream.due(now)
    stream.received(asks(type_url=CDS, nonce=first.nonce))

    assert (first.type_url, waiting, due(stream, now).type_url) == (CDS, None, RDS)


# -- refusals -----------------------------------------------------------------------------------------------------------


def names_bad(answer: Answer) -> str:
    return "; ".join(f"{one.name}: is bad" for one in answer.resources if b"bad" in one.body)


def test_who_refuses_one_cluster_gets_the_others_and_never_the_same_again() -> None:
    stream, now = subscriber(), resources(cds={"a": "1", "b": "1", "c": "1"})
    stream.received(asks(type_url=CDS))
    settle(stream, now)

    now = resources(now, cds={"a": "2", "b": "bad", "new": "bad"})
    refused = [bodies(each) for each in settle(stream, now, refuses=names_bad)]
    now = resources(now, cds={"c": "3"})
    later = [bodies(each) for each in settle(stream, now, refuses=names_bad)]
    seen = stream.seen()[0]
    mended = [bodies(each) for each in settle(stream, resources(now, cds={"b": "2"}), refuses=names_bad)]

    assert refused == [{"a": "2", "b": "bad", "c": "1", "new": "bad"}, {"a": "2", "b": "1", "c": "1"}]
    assert later == [{"a": "2", "b": "1", "c": "3"}]
    assert mended == [{"a": "2", "b": "2", "c": "3"}]
    assert dict(seen.refused) == {"b": "b: is bad; new: is bad", "new": "b: is bad; new: is bad"}
    assert (seen.nacks, seen.error) == (1, "")


@pytest.mark.parametrize("delta", [False, True])
def test_refused_endpoints_are_sent_again_only_with_other_content(delta) -> None:
    stream, now = subscriber(delta=delta), resources(eds={"a": "bad", "b": "1"})
    stream.received(DeltaRequest(EDS, ("a", "b")) if delta else asks("a", "b"))

    first = [bodies(each) for each in settle(stream, now, "a", "b", refuses=names_bad)]
    second = [bodies(each) for each in settle(stream, resources(now, eds={"b": "2"}), "a", "b", refuses=names_bad)]
    third = settle(stream, resources(now, eds={"a": "2", "b": "2"}), "a", "b", refuses=names_bad)

    assert first == [{"a": "bad", "b": "1"}, {"b": "1"}]
    assert second == [{"b": "2"}]
    assert [bodies(each) for each in third] == [{"a": "2"}]
    assert not stream.seen()[0].refused


def test_refused_endpoints_are_not_sent_again_because_their_cluster_changed_or_they_are_asked_for_once_more() -> None:
    stream, now = subscriber(), resources(cds={"a": "1"}, eds={"a": "bad", "b": "1"})
    stream.received(asks(type_url=CDS))
    stream.received(asks("a", "b"))
    answers = settle(stream, now, "a", "b", refuses=names_bad)
    stream.received(asks("a", "b", nonce=answers[-1].nonce))

    again = settle(stream, now, "a", "b", refuses=names_bad)
    later = settle(stream, resources(now, cds={"a": "2"}), "a", "b", refuses=names_bad)

    assert [bodies(each) for each in again] == [{"b": "1"}]
    assert [(each.type_url, bodies(each)) for each in later] == [(CDS, {"a": "2"})]


def test_a_client_that_may_have_an_older_one_is_not_told_to_delete_it() -> None:
    stream, now = subscriber(), resources(cds={"a": "bad", "b": "1"})
    stream.received(asks(type_url=CDS, version="of an earlier stream"))
    settle(stream, now, refuses=names_bad)

    later = settle(stream, resources(now, cds={"b": "2"}), refuses=names_bad)

    assert [bodies(each) for each in later] == [{"a": "bad", "b": "2"}]


def test_who_refuses_everything_one_by_one_is_not_told_for_ever() -> None:
    stream = subscriber()
    stream.received(asks(type_url=CDS))
    now = resources(cds={f"c{number}": "1" for number in range(200)})

    answers = settle(stream, now, refuses=lambda answer: f"{answer.resources[0].name}: no")

    assert len(answers) == 9
    assert stream.seen()[0].nacks == 9


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("Error adding/updating cluster(s) one: minimum ring, one.two: bad", {"one", "one.two"}),
        ("errors parsing CDS response: [resource index 1: one.two: INVALID_ARGUMENT]", {"one.two"}),
        ("cluster 'one' is not fit", {"one"}),
        ("no", set()),
    ],
)
def test_the_reason_says_which_resource_is_meant(error, refused) -> None:
    stream = subscriber()
    stream.received(asks(type_url=CDS))
    answer = due(stream, resources(cds={"one": "1", "one.two": "1", "two": "1"}))

    stream.received(asks(type_url=CDS, nonce=answer.nonce, error=error))

    assert set(stream.seen()[0].refused) == refused
    assert stream.seen()[0].error == error


# -- delta --------------------------------------------------------------------------------------------------------------


def test_delta_begins_where_the_client_stands() -> None:
    stream, now = subscriber(delta=True), resources(cds={"a": "1", "b": "2"})
    kept = now.shelf(CDS).by_name["a"].version
    stream.received(DeltaRequest(CDS, versions={"a": kept, "b": "older", "left": "1"}))

    answer = due(stream, now)

    assert (bodies(answer), answer.removed) == ({"b": "2"}, ("left",))


def test_delta_says_of_a_name_that_does_not_exist_that_it_is_away_and_later_that_it_is_there() -> None:
    stream = subscriber(delta=True)
    stream.received(DeltaRequest(EDS, ("a",)))

    first = settle(stream, resources(eds={"b": "1"}))
    second = settle(stream, resources(eds={"a": "1"}))
    third = settle(stream, resources(eds={"b": "1"}))

    assert [each.removed for each in (*first, *second, *third)] == [("a",), (), ("a",)]
    assert bodies(second[0]) == {"a": "1"}


def test_delta_answers_a_resubscription_and_a_name_that_its_wildcard_still_wants() -> None:
    stream, now = subscriber(delta=True), resources(cds={"a": "1", "b": "1"})
    stream.received(DeltaRequest(CDS, ("*", "a")))
    settle(stream, now)

    stream.received(DeltaRequest(CDS, ("a",)))
    again = settle(stream, now)
    stream.received(DeltaRequest(CDS, (), ("a",)))
    left = settle(stream, now)
    stream.received(DeltaRequest(CDS, (), ("*",)))

    assert ([bodies(each) for each in again], [bodies(each) for each in left]) == ([{"a": "1"}], [{"a": "1"}])
    assert settle(stream, resources(now, cds={"a": "2"})) == []


def test_delta_answers_a_first_wildcard_also_with_nothing() -> None:
    stream = subscriber(delta=True)
    stream.received(DeltaRequest(LDS))

    (answer,) = settle(stream, EMPTY)

    assert (answer.resources, answer.removed) == ((), ())


def test_a_large_answer_comes_in_parts_each_after_the_last_was_taken() -> None:
    stream, body = subscriber(delta=True), "x" * (1 << 20)
    now = resources(eds={f"c{number}": f"{number}{body}" for number in range(5)})
    stream.received(DeltaRequest(EDS, tuple(f"c{number}" for number in range(5))))

    answers = settle(stream, now)

    assert [len(each.resources) for each in answers] == [2, 2, 1]


# -- bounds -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (Request("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", ("s",)), "secrets are not"),
        (DeltaRequest("type.googleapis.com/x.Y\n", ("s",)), r"x\.Y\\\\n' is not served here; Cluster, "),
        (Request(EDS, tuple(map(str, range(MOST_NAMES + 1)))), f"{MOST_NAMES + 1} names in one request, at most"),
        (Request(EDS, ("n" * 1025,)), "a name of more than 1024 characters"),
        (DeltaRequest(EDS, versions={"n" * 1025: ""}), "a name of more than 1024 characters"),
        (DeltaRequest(EDS, unsubscribe=("n" * 1025,)), "a name of more than 1024 characters"),
        (
            DeltaRequest(EDS, unsubscribe=tuple(map(str, range(MOST_NAMES + 1)))),
            f"{MOST_NAMES + 1} names in one request",
        ),
    ],
)
def test_what_is_not_served_or_too_much_ends_the_stream_by_name(request_, why) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        subscriber(delta=isinstance(request_, DeltaRequest)).received(request_)


def test_names_are_bounded_over_all_requests_of_a_stream() -> None:
    stream = subscriber(delta=True)
    stream.received(DeltaRequest(EDS, tuple(map(str, range(MOST_NAMES)))))

    with pytest.raises(RemoteProtocolError, match=f"more than {MOST_NAMES} names"):
        stream.received(DeltaRequest(EDS, ("one more",)))


def test_who_comes_back_by_delta_may_want_all_names_and_have_all_of_them() -> None:
    names = tuple(map(str, range(MOST_NAMES)))
    stream = subscriber(delta=True)

    stream.received(DeltaRequest(EDS, names, versions=dict.fromkeys(names, "1")))

    assert stream.seen()[0].names == names


def test_names_that_were_never_subscribed_to_cannot_be_let_go_and_nothing_is_kept_of_them() -> None:
    stream, now = subscriber(delta=True), resources(cds={"a": "1"})
    stream.received(DeltaRequest(CDS))
    assert bodies(due(stream, now)) == {"a": "1"}

    stream.received(DeltaRequest(CDS, (), ("a", *map(str, range(1_000)))))

    assert stream.seen()[0].owed == 0


# -- any stream: a client ends with exactly the newest resources --------------------------------------------------------

NAMES = ("a", "b", "c", "d")


@dataclass
class Model:
    """A client of either variant, `strict` (an answer with one bad resource is refused whole) or not; `terse`: names no names."""

    delta: bool
    strict: bool
    type_url: str
    wild: bool = False
    names: set[str] = field(default_factory=set)
    has: dict[str, str] = field(default_factory=dict)
    nonce: str = ""

    def wants(self, name: str) -> bool:
        return self.wild or name in self.names

    def takes(self, answer: Answer) -> Request | DeltaRequest:
        told = {one.name: one.body.decode() for one in answer.resources}
        error = "; ".join(f"{name}: is bad" for name, body in told.items() if "bad" in body)
        if not (error and self.strict):
            if not self.delta and self.type_url in FULL:
                self.has = {name: body for name, body in self.has.items() if name in told}
            self.has.update({name: body for name, body in told.items() if "bad" not in body and self.wants(name)})
            for name in answer.removed:
                self.has.pop(name, None)
        self.nonce = answer.nonce
        if self.delta:
            return DeltaRequest(self.type_url, nonce=answer.nonce, error=error)
        return Request(self.type_url, tuple(sorted(self.names)), "", answer.nonce, error)

    def turns_to(self, names: set[str]) -> Request | DeltaRequest:
        more, less = tuple(sorted(names - self.names)), tuple(sorted(self.names - names))
        self.names = names
        self.has = {name: body for name, body in self.has.items() if name in names}
        if self.delta:
            return DeltaRequest(self.type_url, more, less)
        return Request(self.type_url, tuple(sorted(names)), "", self.nonce)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "2", "bad", "-"]))),
        st.tuples(st.just("turn"), st.sets(st.sampled_from(NAMES), min_size=1)),
        st.tuples(st.sampled_from(["up", "down"]), st.none()),
    ),
    max_size=25,
)


class Line:
    """A model at the other end of messages that arrive in order, and when they are let."""

    def __init__(self, model: Model) -> None:
        self.model, self.stream, self.now = model, subscriber(delta=model.delta), EMPTY
        self.up: deque[Request | DeltaRequest] = deque()
        self.down: deque[Answer] = deque()
        self.said: dict[str, set[str]] = {}
        if model.wild:
            self.up.append(DeltaRequest(model.type_url) if model.delta else Request(model.type_url, ()))

    def due(self) -> None:
        while (answer := self.stream.due(self.now)) is not None:
            self.down.append(answer)

    def publish(self, what: dict[str, str]) -> None:
        url = self.model.type_url
        changed = [rendered(url, name, body.encode()) for name, body in what.items() if body != "-"]
        self.now = self.now.replaced(changed, [(url, name) for name, body in what.items() if body == "-"])
        for name, body in what.items():
            self.said.setdefault(name, set()).add(body)
        self.due()

    def turn(self, names: set[str]) -> None:
        if not self.model.wild and (names != self.model.names or not self.model.delta):
            self.up.append(self.model.turns_to(names))

    def hear(self) -> None:
        if self.up:
            self.stream.received(self.up.popleft())
            self.due()

    def take(self) -> None:
        if self.down:
            self.up.append(self.model.takes(self.down.popleft()))

    def drain(self) -> None:
        for _ in range(100):
            self.hear()
            self.take()


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, delta=st.booleans(), strict=st.booleans(), wild=st.booleans(), type_url=st.sampled_from([CDS, EDS]))
def test_whatever_is_said_and_changed_the_client_ends_with_the_newest_resources(
    steps, delta, strict, wild, type_url
) -> None:
    model = Model(delta, strict, type_url, wild and type_url == CDS)
    line = Line(model)

    for step, what in steps:
        match step:
            case "publish":
                line.publish(what)
            case "turn":
                line.turn(what)
            case "up":
                line.hear()
            case _:
                line.take()
    line.turn(set(NAMES[:3]))
    line.drain()

    shelf = line.now.shelf(type_url).by_name
    assert not line.up
    assert not line.down
    assert line.stream.due(line.now) is None
    for name in filter(model.wants, shelf):
        body = shelf[name].body.decode()
        # What is bad is never taken: what was there before stands, or nothing.
        assert model.has.get(name) in ({body} if body != "bad" else {None, *line.said[name]})
    if delta or type_url in FULL:
        assert model.has.keys() <= shelf.keys()
