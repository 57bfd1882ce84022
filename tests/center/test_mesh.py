"""The mesh at the center: who is told to ask whom, and what is shown of what they found."""

from __future__ import annotations

import itertools

import pytest

from reachline.center.checks import check
from reachline.center.matrix import Matrix
from reachline.center.mesh import Meshing, MeshRules, neighbours
from reachline.center.roster import Expected, Roster
from reachline.core.direction import Way
from reachline.errors import RemoteProtocolError
from reachline.model import VantageId
from reachline.testing.center import DOCUMENT, good
from reachline.testing.wait import until
from reachline.wire import frame
from reachline.wire.frame import Heartbeat, Hello, Mesh, MeshReport
from reachline.wire.mesh import identity, pair_key

ABLE = {"features": ("mesh",)}
NAMED = DOCUMENT + "agents: {one: {mesh: '10.0.0.1:7601'}, two: {}, three: {}}\n"
FRESH = 10_000


def report(peer: str, **more: object) -> MeshReport:
    usual = {"silent_ms": 100, "asked_ms": 100, "sent": 1_000, "replied": 990, "rtt_us": 20_000}
    return MeshReport(peer=peer, **(usual | more))  # type: ignore[arg-type]


def ways(matrix: Matrix, *, now: int = 0) -> dict[tuple[str, str], dict]:
    return {(way["vantage"], way["peer"]): dict(way) for way in matrix.seen(now, fresh_ms=FRESH).rows()}


def matrix(**told: list[MeshReport]) -> Matrix:
    made = Matrix()
    for vantage, reports in told.items():
        made.take(VantageId(vantage), reports, 0)
    return made


# -- over real streams ----------------------------------------------------------------------------------------------------


def test_agents_are_told_whom_to_ask_where_and_by_the_key_the_other_answers_by(center, sync):
    async def work():
        async with (
            center() as running,
            running.agent("one", **ABLE, mesh="127.0.0.1:7601") as one,
            running.agent("two", **ABLE, mesh="0.0.0.0:7602") as two,
            running.agent("old") as old,
        ):
            await until(
                lambda: all(each.of(Mesh) and each.of(Mesh)[-1].peers for each in (one, two)), what="their parts"
            )
            (to_two,), (to_one,) = one.of(Mesh)[-1].peers, two.of(Mesh)[-1].peers

            assert (to_two.agent, to_two.address) == ("two", "127.0.0.1:7602")
            assert (to_one.agent, to_one.address) == ("one", "127.0.0.1:7601")
            assert to_two.key == pair_key(two.of(Mesh)[-1].key, identity("one"))
            assert to_one.key == pair_key(one.of(Mesh)[-1].key, identity("two"))
            assert one.of(Mesh)[-1].interval_ms == 200
            assert not old.of(Mesh)  # of a release that does not know it

    sync(work())


def test_the_documents_address_wins_and_a_wildcard_stands_for_where_the_stream_came_from(center, sync):
    async def work():
        async with center(NAMED) as running, running.agent("two", **ABLE, mesh="0.0.0.0:7602") as two:
            async with running.agent("one", **ABLE, mesh="127.0.0.1:1") as one:
                await until(lambda: one.of(Mesh) and two.of(Mesh) and two.of(Mesh)[-1].peers)
                assert one.of(Mesh)[-1].listen == "10.0.0.1:7601"
                assert [(each.agent, each.address) for each in two.of(Mesh)[-1].peers] == [("one", "10.0.0.1:7601")]
                assert [each.address for each in one.of(Mesh)[-1].peers] == ["127.0.0.1:7602"]
            document = await running.json("/api/v1/mesh")
            assert [each["address"] for each in document["agents"]] == ["10.0.0.1:7601", None, "127.0.0.1:7602"]

    sync(work())


def test_a_document_that_turns_the_mesh_off_takes_it_back(center, sync, tmp_path):
    async def work():
        async with center(watch=True) as running, running.agent("one", **ABLE, mesh="127.0.0.1:7601") as one:
            await until(lambda: one.of(Mesh) and one.of(Mesh)[-1].key)
            file = tmp_path / "reachline.yaml"
            file.write_text(file.read_text() + "mesh: {enabled: false}\n")
            await until(lambda: one.of(Mesh)[-1] == Mesh(), what="an empty part")
            document = await running.json("/api/v1/mesh")
            assert (document["enabled"], document["ways"]) == (False, [])

    sync(work())


def test_what_agents_found_is_shown_with_its_age_and_in_metrics(center, sync):
    async def work():
        async with center() as running, running.agent("one", **ABLE) as one, running.agent("two", **ABLE) as two:
            told = report("two", forward_lost=21, forward_rise_us=90_000, reverse_rise_us=-10, loss=1, delay=1)
            await one.reported({}, mesh=(told,))
            await two.reported({}, mesh=(report("one"), report("gone")))
            document = await running.json("/api/v1/mesh")
            there, back = document["ways"]

            assert (there["vantage"], there["peer"], there["told_by"], there["state"]) == ("one", "two", "one", "heard")
            assert (there["loss"], there["lost"], there["losing"]) == (0.021, 21, "forward")
            assert (there["rise"], there["rise_back"], there["delayed"]) == (0.09, -1e-05, "forward")
            assert 0 <= there["age"] < 20
            assert (back["vantage"], back["told_by"], back["losing"]) == ("two", "two", "")
            labels = 'vantage="one",peer="two"'
            assert await running.metric(f'reachline_mesh_loss_ratio{{{labels},way="forward"}}') == 0.021
            assert await running.metric(f'reachline_mesh_rise_seconds{{{labels},way="reverse"}}') == -1e-05
            assert await running.metric(f'reachline_mesh_fault{{{labels},fault="losing",way="forward"}}') == 1
            assert await running.metric(f"reachline_mesh_silent{{{labels}}}") == 0

    sync(work())


def test_an_explanation_quotes_the_ways_to_an_agent_that_stands_where_the_line_ends(center, sync):
    text = DOCUMENT + "agents: {one: {}, two: {mesh: '10.0.0.1:7601'}, three: {mesh: '10.0.0.9:7601'}}\n"

    async def work():
        async with center(text) as running, running.agent("one", **ABLE) as one:
            bad = {"forward_lost": 21, "loss": 1, "delay": 2, "reverse_rise_us": 90_000}
            await one.reported(
                {"payments/a": good(), "payments/b": good()}, mesh=(report("two", **bad), report("three", **bad))
            )

            async def explained():
                answer = await running.get("/api/v1/explain/payments/a")
                return answer.status_code == 200 and answer.json()

            found = await until(explained, what="an explanation")
            other = await running.json("/api/v1/explain/payments/b")
            assert (
                "one: loses 21 of 1000 probes on the way to two, 90.0 ms slower than usual on the way back from two"
                in (found["text"])
            )
            assert "three" not in found["text"]
            assert "probes" not in other["text"]

    sync(work())


def test_history_of_a_time_without_a_center_is_not_shown_as_now(center, sync):
    async def work():
        async with center() as running, running.agent("one", **ABLE) as one:
            await one.reported({}, mesh=(report("two"),), replayed=True)

            assert (await running.json("/api/v1/mesh"))["ways"] == []

    sync(work())


LIES: dict[str, dict[str, object]] = {
    "more-lost-than-sent": {"forward_lost": 1_001},
    "more-lost-back-than-replied": {"reverse_lost": 991},
    "negative": {"sent": -1},
    "endless-number": {"rtt_us": 2**60},
    "endless-rise": {"forward_rise_us": -(2**60)},
    "no-way": {"loss": 4},
    "no-peer": {"peer": ""},
    "endless-text": {"error": "x" * 301},
    "unreadable-text": {"error": "\x1b[2J"},
}


@pytest.mark.parametrize("lie", LIES)
def test_what_cannot_be_true_is_refused_by_name(lie):
    usual: dict[str, object] = {"peer": "two"}
    told = report(**(usual | LIES[lie]))  # type: ignore[arg-type]

    with pytest.raises(RemoteProtocolError, match=r"^heartbeat: mesh\.0"):
        check(Heartbeat(agent="one", boot="b1", sequence=1, mesh=(told,)))


def test_more_others_than_there_may_be_end_the_agents_own_stream(center, sync):
    async def work():
        async with center() as running, running.agent("one", **ABLE) as one:
            await one.report({}, mesh=tuple(report(f"p{number}") for number in range(257)))
            await until(lambda: one.of(frame.Bye), what="a goodbye")

            assert one.bye == "heartbeat: mesh are 257, at most 256"
            assert (await running.json("/api/v1/mesh"))["ways"] == []

    sync(work())


# -- the matrix -----------------------------------------------------------------------------------------------------------


def test_a_way_is_told_by_its_own_end_and_else_by_the_other_read_backwards():
    found = ways(matrix(a=[report("b", forward_lost=30, loss=1, forward_rise_us=5, reverse_rise_us=7)]))

    own, mirrored = found["a", "b"], found["b", "a"]
    assert (own["told_by"], own["lost"], own["losing"], own["rise"]) == ("a", 30, "forward", 5e-06)
    assert (mirrored["told_by"], mirrored["lost_back"], mirrored["losing"]) == ("a", 30, "reverse")
    assert (mirrored["sent"], mirrored["sent_back"], mirrored["rise"]) == (990, 1_000, 7e-06)


def test_what_is_old_is_stale_and_gives_way_to_the_other_ends_fresh_word():
    made = matrix(a=[report("b", loss=1)])
    made.take(VantageId("b"), [report("a", loss=1)], FRESH + 1)

    there, back = ways(made, now=FRESH + 1)["a", "b"], ways(made, now=2 * FRESH + 2)["a", "b"]

    assert (there["told_by"], there["state"], there["losing"]) == ("b", "heard", "reverse")
    assert (back["told_by"], back["state"], back["losing"], back["age"]) == ("a", "stale", "", 20.002)


@pytest.mark.parametrize(
    ("arrives_there", "arrives_here", "losing"),
    [(True, False, "reverse"), (False, True, "forward"), (False, False, "both"), (True, True, "")],
)
def test_where_no_answer_comes_what_arrives_tells_which_way_is_dead(arrives_there, arrives_here, losing):
    """Nothing gets through one way: neither end hears an answer, but one of them still gets the other's questions."""
    here = report("b", silent_ms=5_050, asked_ms=100 if arrives_here else 4_950)
    there = report("a", silent_ms=9_000, asked_ms=100 if arrives_there else None)

    found = ways(matrix(a=[here], b=[there]))["a", "b"]

    assert (found["state"], found["losing"]) == ("silent", losing)


@pytest.mark.parametrize(
    ("here", "there", "losing", "lost_back"),
    [(1, 1, "both", 15), (1, 2, "forward", 0), (1, 0, "forward", 0), (0, 1, "", 0), (2, 1, "reverse", 0)],
)
def test_an_outage_of_both_ways_is_not_called_one_of_the_way_there(here, there, losing, lost_back):
    """Each end counts it all on its own way there: what never arrived had no way back to be lost on."""
    made = matrix(a=[report("b", forward_lost=15, loss=here)], b=[report("a", forward_lost=15, loss=there)])

    found = ways(made)["a", "b"]

    assert (found["losing"], found["lost_back"]) == (losing, lost_back)
    assert ways(made, now=FRESH + 1)["a", "b"]["losing"] == ""


def test_while_one_end_says_nothing_no_way_is_called_dead():
    found = ways(matrix(a=[report("b", silent_ms=None, asked_ms=None)]))["a", "b"]

    assert (found["state"], found["silent"], found["losing"]) == ("silent", None, "")


def test_the_last_word_of_an_agent_that_died_says_nothing_of_the_silence():
    found = ways(matrix(a=[report("b", silent_ms=9_000, asked_ms=9_000)], b=[report("a")]))["a", "b"]

    assert (found["state"], found["losing"]) == ("silent", "")


def test_a_finding_of_before_the_silence_is_not_told_of_it():
    found = ways(matrix(a=[report("b", silent_ms=9_000, loss=1, delay=3)]))["a", "b"]

    assert (found["losing"], found["delayed"]) == ("", "")


def test_an_agents_new_word_replaces_all_it_said_and_who_left_is_forgotten():
    made = matrix(a=[report("b"), report("c")], b=[report("a")])
    made.take(VantageId("a"), [report("b")], 1)
    made.take(VantageId("a"), [], 2)

    assert set(ways(made)) == {("a", "b"), ("b", "a")}
    made.keep([VantageId("b")])
    assert ways(made) == {}


def test_what_agents_told_goes_with_them_though_nobody_ever_looks():
    roster = Roster({})
    there = Meshing(b"s" * 32, roster)
    for number in range(20):
        name = f"once-{number}"
        agent = roster.attach(Hello(release="t", agent=name, boot="b"), number + 1, 0)
        there.heard(agent.id, [report("b"), report("stays")], 0)
        roster.detach(agent, number + 1, is_clean=True)
        roster.attach(Hello(release="t", agent="stays", boot="b"), 99, 0)
        there.heard(VantageId("stays"), [report(name)], 0)
        there.parts([])

    assert there._matrix._told.keys() <= {"stays"}
    assert not there._matrix._told.get(VantageId("stays"))


@pytest.mark.parametrize("way", Way)
def test_every_way_has_its_mirror(way):
    found = ways(matrix(a=[report("b", loss=way)]))
    mirrored = {"": "", "forward": "reverse", "reverse": "forward", "both": "both"}

    assert found["b", "a"]["losing"] == mirrored[found["a", "b"]["losing"]]


# -- who asks whom --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "most"), [(2, 100), (9, 8), (9, 100), (9, 4), (50, 7), (3, 2), (5, 2)])
def test_who_asks_is_asked_and_nobody_asks_more_than_may_be(count, most):
    names = [VantageId(f"a{number:02}") for number in range(count)]
    asked = {name: neighbours(names, name, most) for name in names}

    assert all(one in asked[other] for one in names for other in asked[one])
    assert {len(others) for others in asked.values()} == {min(count - 1, most if count - 1 <= most else most // 2 * 2)}
    assert all(len(set(others)) == len(others) and one not in others for one, others in asked.items())


@pytest.mark.parametrize(
    ("mesh", "peer", "sources", "proven", "guessed"),
    [
        ("127.0.0.1:7601", "unix:", (), "127.0.0.1:7601", "127.0.0.1:7601"),
        ("203.0.113.5:53", "ipv4:10.0.0.7:5000", (), "203.0.113.5:53", "10.0.0.7:53"),
        ("0.0.0.0:7601", "ipv4:10.0.0.7:5000", (), "10.0.0.7:7601", "10.0.0.7:7601"),
        ("0.0.0.0:7601", "ipv4:10.0.0.7:5000", ("10.0.0.8",), "10.0.0.8:7601", "10.0.0.7:7601"),
        ("0.0.0.0:7601", "ipv4:10.0.0.7:5000", ("2001:db8::8",), "10.0.0.7:7601", "10.0.0.7:7601"),
        ("0.0.0.0:7601", "ipv4:10.0.0.7:5000", ("auto",), "10.0.0.7:7601", "10.0.0.7:7601"),
        ("[::]:7601", "ipv6:%5B2001:db8::7%5D:5000", (), "[2001:db8::7]:7601", "[2001:db8::7]:7601"),
        ("0.0.0.0:7601", "unix:", (), "127.0.0.1:7601", "127.0.0.1:7601"),
        ("0.0.0.0:7601", "ipv6:%5B::ffff:10.0.0.7%5D:5000", (), "10.0.0.7:7601", "10.0.0.7:7601"),
        ("0.0.0.0:7601", "ipv6:%5B2001:db8::7%5D:5000", (), None, None),
        ("0.0.0.0:0", "ipv4:10.0.0.7:5000", (), None, None),
        ("0.0.0.0:70000", "ipv4:10.0.0.7:5000", (), None, None),
        ("nonsense", "ipv4:10.0.0.7:5000", (), None, None),
        ("", "ipv4:10.0.0.7:5000", (), None, None),
    ],
)
@pytest.mark.parametrize("token", ["s3cret", ""])
def test_an_agent_is_reached_where_it_says_but_one_without_a_token_where_it_came_from(
    mesh, peer, sources, proven, guessed, token
):
    roster = Roster({VantageId("a"): Expected(token=token)})
    there = Meshing(b"s" * 32, roster)
    hello = Hello(release="t", agent="a", boot="b", mesh=mesh, sources=sources)
    roster.attach(hello, 1, 0)

    there.attached(hello, peer)

    assert there.addresses().get(VantageId("a")) == (proven if token else guessed)


def test_what_answers_on_loopback_is_asked_by_agents_of_the_same_machine_alone():
    roster = Roster({})
    there = Meshing(b"s" * 32, roster)
    for name, came in (
        ("a", "unix:"),
        ("b", "ipv4:127.0.0.1:5000"),
        ("c", "ipv4:10.0.0.7:5000"),
        ("d", "ipv6:%5B::ffff:127.0.0.1%5D:5"),
    ):
        hello = Hello(release="t", agent=name, boot="b", mesh="127.0.0.1:7601" if name in "ab" else "0.0.0.0:7601")
        roster.attach(hello, 1, 0)
        there.attached(hello, came)

    parts = there.parts([VantageId(name) for name in "abcd"])

    asked = {name: {peer.agent for peer in part.peers} for name, part in parts.items()}
    assert asked == {"a": {"b", "c", "d"}, "b": {"a", "c", "d"}, "c": set(), "d": {"a", "b", "c"}}


def test_parts_of_many_agents_differ_in_every_key_and_stay_as_they_are():
    names = [VantageId(f"a{number}") for number in range(20)]
    there = Meshing(b"s" * 32, Roster({name: Expected() for name in names}))
    there.reconfigure(MeshRules(reached={name: f"10.0.0.1:{7_600 + at}" for at, name in enumerate(names)}))

    parts = there.parts(names)

    keys = [peer.key for part in parts.values() for peer in part.peers] + [part.key for part in parts.values()]
    assert len(set(keys)) == len(keys) == 20 * 20
    assert there.parts(names) == parts
    assert all(one is other for one, other in itertools.pairwise([there.parts(names)[names[1]].peers[0] for _ in "ab"]))
