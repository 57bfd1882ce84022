"""The client's half of ADS as a pure state machine: what it asks, ACKs and NACKs, and what it tells."""

from __future__ import annotations

from random import Random

import pytest

from reachline.wire.ads import ALL, CDS, EDS, LDS, Client, DeltaRequest, News, Parcel, Parsed, Request, Response, pause


def parse(parcel):
    """`name:value`, and `bad` in the value is bad; `?` cannot be read at all."""
    text = parcel.body.decode()
    if text == "?":
        return Parsed(parcel.name, error="cannot be read")
    name, _, value = text.partition(":")
    return Parsed(name, value, "is bad" if "bad" in value else "")


def client(*names, delta=False, type_url=EDS):
    made = Client({EDS: parse, CDS: parse, LDS: parse}, delta=delta)
    for name in names:
        made.subscribe(type_url, name)
    made.opened()
    return made


def sotw(*bodies, version="1", nonce="n1", type_url=EDS):
    return Response(type_url, version, nonce, tuple(Parcel(type_url, body.encode()) for body in bodies))


def delta(*bodies, nonce="n1", removed=(), version="1", ttl=None):
    parcels = tuple(Parcel(EDS, body.encode(), body.partition(":")[0], version, ttl) for body in bodies)
    return Response(EDS, "", nonce, parcels, tuple(removed))


def news(told):
    return [(each.news, each.name, each.value or each.reason) for each in told]


# -- state of the world -------------------------------------------------------------------------------------------------


def test_the_first_request_of_a_stream_says_who_asks_and_names_everything_once() -> None:
    ads = client("a", "b")

    assert ads.requests() == (Request(EDS, ("a", "b"), is_first=True),)
    assert ads.requests() == ()


def test_a_good_response_is_told_and_acknowledged_by_its_nonce_and_version() -> None:
    ads = client("a")
    ads.requests()

    told = ads.received(sotw("a:1", version="7", nonce="x"), 0)

    assert news(told) == [(News.HERE, "a", "1")]
    assert ads.requests() == (Request(EDS, ("a",), "7", "x"),)
    assert ads.requests() == ()


def test_one_bad_resource_is_refused_by_name_and_the_good_ones_count() -> None:
    ads = client("a", "b")
    ads.requests()
    ads.received(sotw("a:1", "b:1", version="1", nonce="n1"), 0)
    ads.requests()

    told = ads.received(sotw("a:2", "b:bad", version="2", nonce="n2"), 0)

    assert news(told) == [(News.HERE, "a", "2"), (News.REFUSED, "b", "is bad")]
    assert ads.requests() == (Request(EDS, ("a", "b"), "1", "n2", "b: is bad"),)
    assert ads.refused == 1


def test_a_nack_keeps_the_last_version_until_a_response_is_taken_whole() -> None:
    ads = client("a")
    ads.requests()
    ads.received(sotw("a:bad", version="1", nonce="n1"), 0)
    assert ads.requests()[0].version == ""

    ads.received(sotw("a:1", version="2", nonce="n2"), 0)

    assert ads.requests() == (Request(EDS, ("a",), "2", "n2"),)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (sotw("?"), "resources[0]: cannot be read"),
        (sotw("a:1", "a:2"), "a: a stands there twice"),
        (Response(EDS, "1", "n", (Parcel(CDS, b"a:1"),)), f"resources[0]: is a {CDS}"),
        (Response(EDS, "1", "n", (Parcel(EDS, b"b:1", "a"),)), "a: names itself b"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(response: Response, reason: str) -> None:
    ads = client("a", "b")
    ads.requests()

    ads.received(response, 0)

    assert ads.requests()[0].error == reason


def test_a_resource_without_a_name_is_refused_to_all_of_its_type() -> None:
    ads = client("a")
    ads.requests()

    assert news(ads.received(sotw("?"), 0)) == [(News.REFUSED, "", "cannot be read")]


def test_a_reason_is_bounded_however_much_is_bad() -> None:
    ads = client("a")
    ads.requests()

    ads.received(sotw(*["?"] * 10_000), 0)

    assert len(ads.requests()[0].error) == 1_000


def test_a_response_whose_nonce_was_seen_is_stale_and_neither_told_nor_answered() -> None:
    ads = client("a")
    ads.requests()
    ads.received(sotw("a:1", version="1", nonce="n1"), 0)
    ads.received(sotw("a:2", version="2", nonce="n2"), 0)
    ads.requests()

    told = ads.received(sotw("a:1", version="1", nonce="n1"), 0)

    assert (told, ads.requests(), ads.ignored) == ((), (), 1)


def test_a_nonce_may_come_again_on_another_stream() -> None:
    ads = client("a")
    ads.requests()
    ads.received(sotw("a:1", nonce="n1"), 0)
    ads.opened()
    ads.requests()

    assert news(ads.received(sotw("a:2", nonce="n1"), 0)) == [(News.HERE, "a", "2")]


def test_an_empty_nonce_is_never_stale() -> None:
    ads = client("a")
    ads.requests()
    ads.received(sotw("a:1", nonce=""), 0)

    assert ads.received(sotw("a:2", nonce=""), 0)


def test_what_nobody_asked_for_is_ignored() -> None:
    ads = client("a")
    ads.requests()

    assert ads.received(sotw("x:1", type_url=LDS), 0) == ()
    assert ads.received(sotw("a:1", "stranger:1"), 0)[0].name == "a"
    assert ads.ignored == 1


def test_a_new_stream_names_everything_with_the_last_version_and_no_nonce() -> None:
    ads = client("a")
    ads.requests()
    ads.received(sotw("a:1", version="5", nonce="n9"), 0)

    ads.opened()

    assert ads.requests() == (Request(EDS, ("a",), "5", "", is_first=True),)


def test_an_answer_that_was_owed_dies_with_its_stream() -> None:
    ads = client("a")
    ads.requests()
    ads.received(sotw("a:bad", nonce="n1"), 0)

    ads.opened()

    assert ads.requests() == (Request(EDS, ("a",), is_first=True),)


def test_new_names_are_sent_with_all_the_others_and_an_answer_owed_goes_with_them() -> None:
    ads = client("a")
    ads.requests()
    ads.received(sotw("a:1", version="1", nonce="n1"), 0)
    ads.subscribe(EDS, "b")

    assert ads.requests() == (Request(EDS, ("a", "b"), "1", "n1"),)

    ads.unsubscribe(EDS, "a")
    assert ads.requests() == (Request(EDS, ("b",), "1", "n1"),)
    assert ads.received(sotw("a:2", version="2", nonce="n2"), 0) == ()


def test_endpoints_that_a_response_leaves_out_stay_and_clusters_go() -> None:
    ads = client("a", "b")
    ads.subscribe(CDS, "a")
    ads.subscribe(CDS, "b")
    ads.requests()
    ads.received(sotw("a:1", "b:1"), 0)
    ads.received(sotw("a:1", "b:1", type_url=CDS), 0)

    assert news(ads.received(sotw("a:2", nonce="n2"), 0)) == [(News.HERE, "a", "2")]
    assert [each[:2] for each in news(ads.received(sotw("a:2", nonce="n2", type_url=CDS), 0))] == [
        (News.HERE, "a"), (News.GONE, "b"),
    ]  # fmt: skip


def test_a_bad_cluster_is_not_a_deleted_one() -> None:
    ads = client("a", "b", type_url=CDS)
    ads.requests()
    ads.received(sotw("a:1", "b:1", type_url=CDS), 0)

    told = ads.received(sotw("a:1", "b:bad", nonce="n2", type_url=CDS), 0)

    assert [each.news for each in told] == [News.HERE, News.REFUSED]


def test_types_are_asked_for_in_the_order_that_makes_before_it_breaks() -> None:
    ads = client("a", type_url=LDS)
    ads.subscribe(EDS, "a")
    ads.subscribe(CDS, "a")

    assert [each.type_url for each in ads.requests()] == [CDS, EDS, LDS]


def test_a_type_that_cannot_be_read_cannot_be_wanted() -> None:
    with pytest.raises(KeyError):
        client("a", type_url="type.googleapis.com/x")


def test_all_of_a_type_are_wanted_by_no_name_and_told_by_theirs() -> None:
    ads = client(ALL, type_url=LDS)
    (first,) = ads.requests()

    told = ads.received(sotw("a:1", "b:1", type_url=LDS), 0)
    again = ads.received(sotw("b:2", nonce="n2", version="2", type_url=LDS), 0)

    assert first == Request(LDS, (), is_first=True)
    assert news(told) == [(News.HERE, "a", "1"), (News.HERE, "b", "1")]
    assert news(again) == [(News.HERE, "b", "2"), (News.GONE, "a", "the control plane does not have it")]
    assert ads.requests() == (Request(LDS, (), "2", "n2"),)


def test_all_and_some_by_name_are_said_by_the_sign_for_all() -> None:
    ads = client("a", ALL, type_url=LDS)

    assert ads.requests() == (Request(LDS, ("a", ALL), is_first=True),)


def test_a_bad_one_among_all_is_refused_by_its_name_and_stays_what_it_was() -> None:
    ads = client(ALL, type_url=CDS)
    ads.requests()
    ads.received(sotw("a:1", "b:1", type_url=CDS), 0)

    told = ads.received(sotw("a:bad", "b:2", nonce="n2", type_url=CDS), 0)

    assert news(told) == [(News.REFUSED, "a", "is bad"), (News.HERE, "b", "2")]


def test_who_wanted_all_and_wants_them_no_more_forgets_them() -> None:
    ads = client(ALL, "a", type_url=CDS)
    ads.requests()
    ads.received(sotw("a:1", "b:1", type_url=CDS), 0)

    ads.unsubscribe(CDS, ALL)
    told = ads.received(sotw("a:2", nonce="n2", type_url=CDS), 0)

    assert news(told) == [(News.HERE, "a", "2")]


# -- delta --------------------------------------------------------------------------------------------------------------


def test_delta_says_what_changed_of_its_wants_and_nothing_else() -> None:
    ads = client("a", "b", delta=True)

    assert ads.requests() == (DeltaRequest(EDS, ("a", "b"), is_first=True),)
    ads.subscribe(EDS, "c")
    ads.unsubscribe(EDS, "a")
    assert ads.requests() == (DeltaRequest(EDS, ("c",), ("a",)),)


def test_delta_answers_by_nonce_alone_and_refuses_by_name() -> None:
    ads = client("a", "b", delta=True)
    ads.requests()

    told = ads.received(delta("a:1", "b:bad", nonce="x"), 0)

    assert news(told) == [(News.HERE, "a", "1"), (News.REFUSED, "b", "is bad")]
    assert ads.requests() == (DeltaRequest(EDS, nonce="x", error="b: is bad"),)


def test_a_new_delta_stream_begins_with_the_versions_at_hand_of_what_is_still_wanted() -> None:
    ads = client("a", "b", "c", delta=True)
    ads.requests()
    ads.received(delta("a:1", "b:1", "c:1", version="4"), 0)
    ads.received(delta("a:bad", version="5", nonce="n2"), 0)
    ads.unsubscribe(EDS, "b")
    ads.received(delta(nonce="n3", removed=["c"]), 0)

    ads.opened()

    assert ads.requests() == (DeltaRequest(EDS, ("a", "c"), versions={"a": "4"}, is_first=True),)


def test_what_delta_removes_is_gone_once() -> None:
    ads = client("a", delta=True)
    ads.requests()
    ads.received(delta("a:1"), 0)

    assert [each.news for each in ads.received(delta(removed=["a", "stranger"], nonce="n2"), 0)] == [News.GONE]


# -- times to live ------------------------------------------------------------------------------------------------------


def heartbeat(name="a", version="1", ttl=10.0, nonce="h"):
    return Response(EDS, "", nonce, (Parcel(EDS, b"", name, version, ttl, is_heartbeat=True),))


@pytest.mark.parametrize("is_delta", [True, False])
def test_a_resource_is_gone_when_its_time_to_live_is_over(is_delta: bool) -> None:
    ads = client("a", delta=is_delta)
    ads.requests()
    ads.received(delta("a:1", ttl=10.0), 100)

    assert ads.deadline() == 110
    assert ads.turn(109.9) == ()
    assert news(ads.turn(110)) == [(News.EXPIRED, "a", "its time to live is over")]
    assert (ads.turn(111), ads.deadline()) == ((), None)


def test_a_heartbeat_renews_the_time_and_is_no_update() -> None:
    ads = client("a", delta=True)
    ads.requests()
    ads.received(delta("a:1", ttl=10.0), 100)

    told = ads.received(heartbeat(), 105)

    assert (told, ads.deadline()) == ((), 115)
    assert ads.requests()[0].error == ""


@pytest.mark.parametrize("beat", [heartbeat(version="2"), heartbeat(name="b")])
def test_a_heartbeat_of_another_version_or_of_what_is_not_there_renews_nothing(beat: Response) -> None:
    ads = client("a", "b", delta=True)
    ads.requests()
    ads.received(delta("a:1", ttl=10.0), 100)

    ads.received(beat, 105)

    assert ads.deadline() == 110


def test_a_resource_said_without_a_time_to_live_has_none_any_more() -> None:
    ads = client("a", delta=True)
    ads.requests()
    ads.received(delta("a:1", ttl=10.0), 100)
    ads.received(delta("a:2", version="2", nonce="n2"), 101)

    assert ads.deadline() is None


def test_times_to_live_run_on_while_there_is_no_stream() -> None:
    ads = client("a", delta=True)
    ads.requests()
    ads.received(delta("a:1", ttl=10.0), 100)

    ads.opened()

    assert ads.deadline() == 110
    ads.turn(110)
    assert ads.requests() == (DeltaRequest(EDS, ("a",), is_first=True),)


def test_pauses_double_up_to_half_a_minute_and_are_spread_over_their_upper_half() -> None:
    for failures, most in ((0, 0.5), (1, 0.5), (2, 1), (3, 2), (7, 30), (10_000, 30)):
        waits = [pause(failures, Random(seed)) for seed in range(100)]

        assert most / 2 <= min(waits) < max(waits) <= most
