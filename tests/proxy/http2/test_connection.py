"""A connection of HTTP/2 by its events and its frames: order, windows, turns, ends, limits. Peers are our other end, and the h2 library."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proxy.http2 import said
from tests.proxy.http2.said import (
    GET,
    POST,
    asking,
    continued,
    data,
    ends,
    exchanged,
    frames_of,
    goaway,
    headers,
    kinds,
    ping,
    reset,
    resets,
    served,
    streams_of,
    taken,
    update,
)

from reachline.errors import LocalProtocolError
from reachline.proxy.http2.connection import Connection
from reachline.proxy.http2.events import Answered, Asked, Body, Ended, Event, Gone, Pong, Reset
from reachline.proxy.http2.frames import CONTINUATION, DATA, HEADERS, PING, WINDOW_UPDATE
from reachline.proxy.http2.limits import Code, Limits

DEFAULT = Limits()
SMALL = Limits(stream_window=65_535, connection_window=65_535)


def pair(limits: Limits = DEFAULT) -> tuple[Connection, Connection]:
    """(a client, a server) that know each other."""
    client, server = Connection(limits, is_client=True), Connection(limits)
    exchanged(client, server)
    return client, server


def bodies(events: list[Event]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for each in events:
        if isinstance(each, Body):
            found[each.stream] = found.get(each.stream, b"") + each.data
    return found


# Messages.


def test_a_request_and_its_answer_arrive_as_they_were_said() -> None:
    client, server = pair()

    stream = client.ask([*POST, (b"x-a", b"1")])
    client.body(stream, b"abc")
    client.trailers(stream, [(b"t", b"2")])
    _, asked = exchanged(client, server)
    server.answer(stream, 103, [(b"link", b"</a>")])
    server.answer(stream, 200, [(b"x-b", b"3")])
    server.body(stream, b"def", end=True)
    answered, _ = exchanged(client, server)

    assert asked == [
        Asked(1, b"POST", b"http", b"a.example", b"/x", b"", [(b"x-a", b"1")], None),
        Body(1, b"abc"),
        Ended(1, [(b"t", b"2")]),
    ]
    assert answered == [
        Answered(1, 103, [(b"link", b"</a>")], None),
        Answered(1, 200, [(b"x-b", b"3")], None),
        Body(1, b"def"),
        Ended(1, []),
    ]
    assert (client.streams, server.streams) == (0, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=12), st.booleans())
def test_however_the_bytes_are_split_the_events_are_the_same(cuts: list[int], huge: bool) -> None:
    fields = [*POST, *((b"x%d" % at, b"v" * 40) for at in range(80 if huge else 2))]
    raw = (
        said.START
        + continued(fields, end=False, size=90)
        + ping()
        + data(b"abc")
        + headers([(b"t", b"1")], end=True)
        + headers(GET, 3, end=True)
    )
    whole, split = Connection(Limits()), Connection(Limits())
    edges = [0, *sorted(min(each * 11, len(raw)) for each in cuts), len(raw)]

    expected = whole.feed(raw)
    found = [event for start, stop in itertools.pairwise(edges) for event in split.feed(raw[start:stop])]

    assert found == expected
    assert len(expected) == 5
    assert taken(split) == taken(whole)


class Two:
    """A client that sends bodies, a server that holds and lets go; what was said and what was heard."""

    def __init__(self) -> None:
        self.client, self.server = pair(SMALL)
        self.sent: dict[int, bytes] = {}
        self.heard: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.open: list[int] = []
        """On which more may be said."""

    def ask(self) -> None:
        stream = self.client.ask(POST)
        self.sent[stream] = b""
        self.open.append(stream)

    def say(self, stream: int, size: int) -> None:
        piece = bytes([size & 0xFF]) * size
        self.sent[stream] += piece
        self.client.body(stream, piece)

    def end(self, stream: int) -> None:
        self.open.remove(stream)
        self.client.body(stream, b"", end=True)

    def talk(self) -> None:
        _, events = exchanged(self.client, self.server)
        for stream, body in bodies(events).items():
            self.heard[stream] = self.heard.get(stream, b"") + body
        self.ended |= {each.stream for each in events if isinstance(each, Ended)}
        assert all(each.left >= 0 for each in self.server._hearing.streams.values())
        assert self.client._sender.room >= 0

    def finish(self) -> None:
        for stream in tuple(self.open):
            self.end(stream)
        while len(self.ended) < len(self.sent):
            before = (self.heard.copy(), self.ended.copy())
            for stream in self.sent:
                self.server.go_on(stream)
            self.talk()
            assert (self.heard, self.ended) != before, "it stands still"


STEPS = st.tuples(
    st.sampled_from(["ask", "say", "end", "hold", "go on", "talk"]),
    st.integers(0, 5),
    st.sampled_from([1, 1_000, 20_000, 70_001]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=3, max_size=30))
def test_two_ends_lose_nothing_whatever_they_do(steps: list[tuple[str, int, int]]) -> None:
    two = Two()

    for what, which, size in steps:
        stream = two.open[which % len(two.open)] if two.open else 0
        match what:
            case "say" if stream:
                two.say(stream, size)
            case "end" if stream:
                two.end(stream)
            case "hold":
                two.server.hold(stream)
            case "go on":
                two.server.go_on(stream)
            case "talk":
                two.talk()
            case _:
                two.ask()
    two.finish()

    assert {each: two.heard.get(each, b"") for each in two.sent} == two.sent
    assert two.ended == set(two.sent)


def test_a_length_that_the_body_does_not_have_ends_the_stream() -> None:
    for body in (data(b"ab", end=True), data(b"abcd"), data(b"ab") + headers([(b"t", b"1")], end=True)):
        server = served()

        events = server.feed(headers([*POST, (b"content-length", b"3")]) + body + headers(GET, 3, end=True))

        assert Reset(1, Code.PROTOCOL_ERROR, is_ours=True) in events
        assert resets(taken(server)) == [(1, Code.PROTOCOL_ERROR)]
        assert events[-1] == Ended(3, [])


NO_BODY = pytest.mark.parametrize(("method", "status"), [(b"HEAD", b"200"), (b"GET", b"204"), (b"GET", b"304")])


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", b"200"), (b"GET", b"304")])
def test_an_answer_that_has_no_body_may_say_its_length(method: bytes, status: bytes) -> None:
    client = asking()
    client.ask([(b":method", method), *GET[1:]], end=True)

    events = client.feed(headers([(b":status", status), (b"content-length", b"7")], end=True))

    assert events == [Answered(1, int(status), [(b"content-length", b"7")], 7), Ended(1, [])]


@NO_BODY
def test_an_answer_that_has_no_body_is_given_none(method: bytes, status: bytes) -> None:
    client = asking()
    client.ask([(b":method", method), *GET[1:]], end=True)

    events = client.feed(headers([(b":status", status)]) + data(b"HTTP/1.1 200 OK", end=True))

    assert events[1:] == [Reset(1, Code.PROTOCOL_ERROR, is_ours=True)]


@NO_BODY
def test_an_answer_that_has_no_body_may_end_behind_its_head(method: bytes, status: bytes) -> None:
    client = asking()
    client.ask([(b":method", method), *GET[1:]], end=True)

    events = client.feed(headers([(b":status", status)]) + data(b"", end=True))

    assert events[1:] == [Ended(1, [])]


def test_a_malformed_message_ends_the_connection_or_its_stream_as_it_is_set() -> None:
    bad = headers([*GET, (b"connection", b"close")], 3, end=True)
    strict, lenient = served(), served(Limits(is_stream_error=True))

    ended = strict.feed(headers(POST) + bad + headers(GET, 5, end=True))
    went_on = lenient.feed(headers(POST) + bad + headers(GET, 5, end=True))

    assert ended[1:] == [Reset(1, Code.PROTOCOL_ERROR, is_ours=True)]
    assert (strict.is_over, ends(taken(strict)), strict.broken != "") == (True, [(3, Code.PROTOCOL_ERROR)], True)
    assert (len(went_on), resets(taken(lenient)), lenient.is_over) == (3, [(3, Code.PROTOCOL_ERROR)], False)
    assert strict.counts["rx_messaging_error"] == lenient.counts["rx_messaging_error"] == 1


@pytest.mark.parametrize(
    "raw",
    [
        headers([(b":status", b"103")], end=True),
        data(b"a"),
        headers([(b":status", b"200")]) + headers([(b"t", b"1")]),
        headers([(b":status", b"101")]),
    ],
    ids=["interim and last", "body before head", "trailers that end nothing", "another protocol"],
)
def test_a_malformed_answer_fails_its_request(raw: bytes) -> None:
    client = asking()
    client.ask(GET, end=True)

    assert Reset(1, Code.PROTOCOL_ERROR, is_ours=True) in client.feed(raw)


@pytest.mark.parametrize(
    ("fields", "counter"),
    [
        ([*GET, *((b"x%d" % at, b"v" * 9_000) for at in range(7))], "header_list_size_too_large"),
        ([*GET, *((b"x%d" % at, b"1") for at in range(97))], "header_overflow"),
    ],
)
def test_headers_over_the_limit_end_their_stream_alone(fields: list[tuple[bytes, bytes]], counter: str) -> None:
    server = served()

    events = server.feed(continued(fields) + headers(GET, 3, end=True))

    assert streams_of(events) == [3, 3]
    assert (server.counts[counter], resets(taken(server))) == (1, [(1, Code.INTERNAL_ERROR)])


def test_headers_far_over_the_limit_end_the_connection_before_they_are_kept() -> None:
    server = served()

    server.feed(continued([*GET, *((b"x", b"v" * 16_000) for _ in range(30))]))

    assert ends(taken(server))[0][1] == Code.ENHANCE_YOUR_CALM


def test_headers_of_more_than_a_frame_are_said_in_several() -> None:
    client, server = pair(Limits(head=200_000))

    client.ask([*GET, (b"x", b"v" * 50_000)], end=True)
    raw = taken(client)

    assert [each.kind for each in frames_of(raw)] == [HEADERS, CONTINUATION, CONTINUATION, CONTINUATION]
    asked = server.feed(raw)[0]
    assert isinstance(asked, Asked)
    assert asked.headers == [(b"x", b"v" * 50_000)]


def test_what_breaks_the_order_of_a_message_is_our_own_error() -> None:
    client, server = pair()
    client.ask(GET, end=True)
    exchanged(client, server)

    with pytest.raises(LocalProtocolError):
        client.body(1, b"more")
    server.answer(1, 200, [])
    with pytest.raises(LocalProtocolError):
        server.answer(1, 200, [])


# Windows and turns.


def test_a_body_waits_for_the_peer_s_window_and_says_when_it_is_gone() -> None:
    client = asking()
    stream = client.ask(POST)

    pending = client.body(stream, b"a" * 100_000, end=True)
    first = taken(client)
    silent = client.writable()
    client.feed(update(50_000, stream) + update(50_000))
    rest = taken(client)

    assert pending == 100_000 - 65_535
    assert sum(len(each.payload) for each in kinds(first, DATA)) == 65_535
    assert silent == []
    assert sum(len(each.payload) for each in kinds(rest, DATA)) == 100_000 - 65_535
    assert frames_of(rest)[-1].flags == 1
    assert (client.writable(), client.writable(), client.pending(stream)) == ([stream], [], 0)


def test_streams_take_turns_when_the_connection_s_window_opens() -> None:
    client = asking()
    streams = [client.ask(POST) for _ in range(4)]
    client.body(streams[0], b"x" * 65_535)
    taken(client)
    for stream in streams:
        client.body(stream, b"a" * 40_000)

    client.feed(b"".join(update(99_999, each) for each in streams) + update(4 * 16_384))
    order = [each.stream for each in kinds(taken(client), DATA)]

    assert sorted(order) == streams


def test_no_more_is_made_ahead_than_a_transport_holds() -> None:
    client = asking(opening=said.settings({4: 1 << 30}))
    client.feed(update(1 << 30))
    stream = client.ask(POST)

    client.body(stream, b"a" * 1_000_000, end=True)
    pieces = []
    while piece := client.take():
        pieces.append(len(piece))

    assert max(pieces) < (64 << 10) + (16 << 10) + 100
    assert client.writable() == [stream]


def test_a_window_made_smaller_is_waited_for_and_never_overdrawn() -> None:
    client = asking()
    stream = client.ask(POST)
    client.body(stream, b"a" * 60_000)
    taken(client)

    client.feed(said.settings({4: 100}))
    client.body(stream, b"b" * 10)
    quiet = kinds(taken(client), DATA)
    client.feed(update(60_000, stream))

    assert quiet == []
    assert [each.payload for each in kinds(taken(client), DATA)] == [b"b" * 10]


def test_an_end_without_a_body_waits_for_no_window() -> None:
    client = asking(opening=said.settings({4: 0}))
    stream = client.ask(POST)
    client.body(stream, b"", end=True)

    assert [(each.flags, each.payload) for each in kinds(taken(client), DATA)] == [(1, b"")]


def test_trailers_wait_behind_the_body() -> None:
    client = asking()
    stream = client.ask(POST)
    client.body(stream, b"a" * 70_000)
    client.trailers(stream, [(b"t", b"1")])
    before = kinds(taken(client), HEADERS)
    client.feed(update(70_000, stream) + update(70_000))

    after = [each.kind for each in frames_of(taken(client))]

    assert len(before) == 1
    assert (after[0], after[-1]) == (DATA, HEADERS)


def test_a_held_stream_gives_no_window_back_until_it_goes_on() -> None:
    server = served(SMALL)
    server.feed(headers(POST) + headers(POST, 3))
    server.hold(1)

    server.feed(data(b"a" * 16_000) + data(b"a" * 16_000) + data(b"a" * 2_000))
    held = kinds(taken(server), WINDOW_UPDATE)
    server.go_on(1)
    freed = {each.stream: int.from_bytes(each.payload, "big") for each in kinds(taken(server), WINDOW_UPDATE)}

    assert held == []
    assert freed == {0: 34_000, 1: 34_000}


def test_a_reset_stream_gives_the_connection_its_window_back() -> None:
    server = served(SMALL)
    server.feed(headers(POST))
    server.hold(1)
    server.feed(b"".join(data(b"a" * 16_000) for _ in range(4)))
    server.reset(1)

    assert [each.stream for each in kinds(taken(server), WINDOW_UPDATE)] == [0]


def test_what_comes_on_a_stream_of_before_is_ignored_and_its_window_given_back() -> None:
    server = served(SMALL)
    server.feed(headers(POST))
    server.reset(1)

    events = server.feed(
        b"".join(data(b"a" * 16_000) for _ in range(4)) + headers([(b"t", b"1")], end=True) + update(5, 1) + reset()
    )
    raw = taken(server)

    assert (events, server.is_over) == ([], False)
    assert [each.stream for each in kinds(raw, WINDOW_UPDATE)] == [0]


@pytest.mark.parametrize("limits", [SMALL, Limits(stream_window=65_535, connection_window=1 << 20)])
def test_more_than_a_window_ends_the_connection(limits: Limits) -> None:
    server = served(limits)

    server.hold(1)
    server.feed(headers(POST))
    server.hold(1)
    server.feed(b"".join(data(b"a" * 16_384) for _ in range(4)))

    assert ends(taken(server)) == [(1, Code.FLOW_CONTROL_ERROR)]


# Ends.


def test_who_is_answered_whole_is_asked_for_no_more() -> None:
    server = served()
    server.feed(headers(POST))

    server.answer(1, 404, [], end=True)
    raw = taken(server)
    events = server.feed(data(b"abc") + data(b"d", end=True) + headers(GET, 3, end=True))

    assert resets(raw) == [(1, Code.NO_ERROR)]
    assert set(streams_of(events)) == {3}


def test_a_reset_is_told_once_and_nothing_is_said_behind_it() -> None:
    client, server = pair()
    stream = client.ask(POST)
    exchanged(client, server)

    client.reset(stream, Code.CANCEL)
    _, events = exchanged(client, server)
    server.answer(stream, 200, [])
    server.body(stream, b"x", end=True)
    server.trailers(stream, [])
    server.reset(stream)

    assert events == [Reset(stream, Code.CANCEL)]
    assert taken(server) == b""
    assert (client.counts["tx_reset"], server.counts["rx_reset"]) == (1, 1)


def test_draining_warns_then_waits_for_the_ping_then_for_the_streams() -> None:
    client, server = pair()
    stream = client.ask(GET, end=True)
    exchanged(client, server)

    server.drain()
    warning = taken(server)
    late = client.ask(GET, end=True)
    server.feed(taken(client))
    client.feed(warning)
    may_ask, asked_late = client.can_ask(), server.streams
    server.feed(taken(client))
    last = taken(server)
    for each in (stream, late):
        assert not server.is_over
        server.answer(each, 200, [], end=True)

    assert ends(warning) == [((1 << 31) - 1, 0)]
    assert (may_ask, asked_late) == (False, 2)
    assert ends(last) == [(late, 0)]
    assert server.is_over
    client.feed(last + taken(server))
    assert client.is_over


def test_draining_twice_does_not_wait_and_later_streams_are_not_taken() -> None:
    server = served()
    server.feed(headers(POST))

    server.drain()
    server.drain()
    events = server.feed(headers(GET, 3, end=True) + data(b"", 1, end=True))

    assert [last for last, _ in ends(taken(server))] == [(1 << 31) - 1, 1]
    assert events == [Ended(1, [])]


def test_streams_that_a_leaving_server_did_not_take_are_refused_and_the_others_go_on() -> None:
    client = asking()
    first, second = client.ask(GET, end=True), client.ask(GET, end=True)

    events = client.feed(goaway(first))
    more = client.feed(headers([(b":status", b"200")], first, end=True))

    assert events == [Gone(first, 0), Reset(second, Code.REFUSED_STREAM)]
    assert streams_of(more) == [first, first]
    assert (client.can_ask(), client.is_over) == (False, True)
    with pytest.raises(LocalProtocolError):
        client.ask(GET)


def test_a_client_that_leaves_is_answered_all_the_same() -> None:
    server = served()

    events = server.feed(headers(GET, end=True) + goaway())
    server.answer(1, 200, [], end=True)

    assert events[-1] == Gone(0, 0)
    assert [each.kind for each in frames_of(taken(server))] == [HEADERS]


def test_closing_says_why_and_hears_nothing_more() -> None:
    server = served()
    server.feed(headers(GET, end=True))

    server.close(Code.ENHANCE_YOUR_CALM)

    assert ends(taken(server)) == [(1, Code.ENHANCE_YOUR_CALM)]
    assert (server.feed(headers(GET, 3, end=True)), server.is_over) == ([], True)


def test_a_ping_is_answered_and_an_answer_is_told() -> None:
    server = served()

    events = server.feed(ping(b"abcdefgh") + ping(b"hgfedcba", ack=True))

    assert events == [Pong(b"hgfedcba")]
    assert [(each.flags, each.payload) for each in kinds(taken(server), PING)] == [(1, b"abcdefgh")]


def test_a_peer_s_settings_are_acknowledged_and_kept() -> None:
    client = asking(opening=said.settings({1: 0, 3: 2, 4: 10, 8: 1, 99: 5}))

    client.ask(POST)
    stream = client.ask(POST)

    assert (client.can_ask(), client.takes_connect) == (False, True)
    assert client.body(stream, b"a" * 15) == 5


def test_headers_that_have_begun_are_known_of() -> None:
    server = served()
    whole = headers(GET, end=True)

    states = [server.is_amid_head]
    for part in (whole[:4], whole[4:], continued(GET, 3)[:60]):
        server.feed(part)
        states.append(server.is_amid_head)

    assert states == [False, True, False, True]
