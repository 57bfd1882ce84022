from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.measured import best_of

import reachline
from reachline.client import Client
from reachline.errors import LocalProtocolError
from reachline.testing.door import Door, Peer, document, line, pair, serving, weights
from reachline.testing.wait import eventually

PUSHED = 20.0
"""Seconds: below the 30 of a long poll, so that what comes within them was pushed."""


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serving(pair(90, 10)) as made:
        yield made


def connected(peer: Peer, **more: Any) -> Client:
    return reachline.connect_sync(peer.url, clusters=["payments"], **more)


def published(client: Client) -> dict[str, int]:
    return weights(client.cluster("payments").lines())


def shows_a(client: Client, weight: int) -> bool:
    return published(client)["payments/a"] == weight


def fail(client: Client, name: str, times: int = 2) -> None:
    """That many refused calls on one line, through `attempt`."""
    left = times
    while left:
        try:
            with client.cluster("payments").attempt() as call:
                if call.line == f"payments/{name}":
                    left -= 1
                    raise ConnectionRefusedError
        except ConnectionRefusedError:
            continue


def test_connected_with_lines_as_published_and_news_within_a_moment(peer: Peer) -> None:
    with connected(peer) as client:
        assert published(client) == {"payments/a": 90, "payments/b": 10}

        peer.door.publish(pair(20, 80, version="1.2"))

        eventually(lambda: published(client) == {"payments/a": 20, "payments/b": 80}, within=PUSHED)
        assert client.stats().clusters["payments"].source == "center"


def test_news_is_pushed_by_long_poll_and_not_asked_for_again_and_again(peer: Peer) -> None:
    with connected(peer) as client:
        eventually(lambda: len(peer.door.asked) == 2)
        for counter in range(2, 12):
            peer.door.publish(pair(counter, 10, version=f"1.{counter}"))
            eventually(partial(shows_a, client, counter), within=PUSHED)

    path, headers = peer.door.asked[1]
    assert "wait=30" in path
    assert "version=1.1" in path
    assert headers["if-none-match"] == '"1.1"'
    assert len(peer.door.asked) <= 13


def test_only_named_clusters_are_fetched(peer: Peer) -> None:
    peer.door.publish(document(line("x", 1, cluster="search"), cluster="search"))

    with reachline.connect_sync(peer.url, clusters="search") as client:
        assert list(client.clusters) == ["search"]
        with pytest.raises(LocalProtocolError, match="'payments' was not named"):
            client.cluster("payments")

    assert {path.partition("?")[0] for path, _ in peer.door.asked} == {"/api/v1/clusters/search/lines"}


def test_outcomes_arrive_summed_within_the_second(peer: Peer) -> None:
    with connected(peer, service="checkout", name="web") as client:
        calls = Counter(peer_call(client) for _ in range(500))

        eventually(lambda: sum(peer.door.outcomes().values()) == 500)

    assert peer.door.outcomes() == {f"{name} ok": count for name, count in calls.items()}
    post = peer.door.posts[0]
    assert (post["service"], post["cluster"], post["open"]) == ("checkout", "payments", [])
    assert post["client"].startswith("web-")
    assert len(peer.door.posts) <= 3


def peer_call(client: Client) -> str | None:
    with client.cluster("payments").attempt() as call:
        return call.line


@pytest.mark.alone
def test_a_local_breaker_is_reported_at_once_and_leaves_the_line_at_once(peer: Peer) -> None:
    peer.door.publish(pair(version="1.2"))

    def measure() -> None:
        peer.door.posts.clear()
        with connected(peer) as client:
            fail(client, "a")
            began = time.monotonic()
            assert {peer_call(client) for _ in range(200)} == {"payments/b"}

            eventually(lambda: any(post["open"] == ["payments/a"] for post in peer.door.posts), every=0.005)

            assert time.monotonic() - began < 0.9, "it waited for the second's post"

    best_of(3, measure)


def test_the_thread_lets_a_line_back_to_its_trial_when_its_wait_is_over(peer: Peer) -> None:
    answer = pair(version="1.2")
    answer["local_rules"] |= {"open": 1.0, "open_cap": 1.0}
    peer.door.publish(answer)
    with connected(peer) as client:
        fail(client, "a")
        assert client.cluster("payments").open_lines() == ("payments/a",)

        eventually(lambda: peer_call(client) == "payments/a")

        assert client.cluster("payments").open_lines() == ()
        eventually(lambda: peer.door.posts and peer.door.posts[-1]["open"] == [])


def test_close_posts_the_last_calls(peer: Peer) -> None:
    client = connected(peer)
    for _ in range(100):
        peer_call(client)

    client.close()

    assert sum(peer.door.outcomes().values()) == 100
    assert not client.stats().is_running
    assert client.stats().posts.confirmed == 100
    client.close()
    assert peer_call(client) is not None


def test_a_dead_center_changes_nothing_and_its_return_is_seen(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), connected(peer) as client:
        peer.kill()
        stats = lambda: client.stats().clusters["payments"]  # noqa: E731
        eventually(lambda: stats().trouble == "no answer: Connection refused")

        picked = Counter(peer_call(client) for _ in range(5_000))
        assert picked["payments/a"] / 5_000 == pytest.approx(0.9, abs=0.03)

        peer.door.publish(pair(1, 99, version="2.1"))
        peer.start()
        eventually(lambda: published(client)["payments/b"] == 99)
        assert stats().trouble == ""

    events = [each.message for each in caplog.records if each.name.startswith("reachline")]
    assert events.count("lines_not_fetched") <= 2
    assert "center_answers_again" in events


def test_a_line_that_dies_while_the_center_is_dead_is_left_by_the_local_breaker(peer: Peer) -> None:
    roles = [line("a", 95, roles=["primary"]), line("b", 5, roles=["backup"])]
    peer.door.publish(document(*roles, policy=["primary_backup"], version="1.2"))
    with connected(peer) as client:
        peer.kill()
        fail(client, "a")

        assert {peer_call(client) for _ in range(500)} == {"payments/b"}


def test_outcomes_survive_a_short_absence_and_each_call_counts_once(peer: Peer) -> None:
    with connected(peer) as client:
        peer.kill()
        for _ in range(50):
            peer_call(client)
        eventually(lambda: client.stats().posts.posts > 0)
        peer.start()

        eventually(lambda: client.stats().posts.confirmed == 50)

        assert sum(peer.door.outcomes().values()) == 50
        posts = client.stats().posts
        assert (posts.confirmed, posts.unconfirmed, posts.dropped) == (50, 0, 0)


def test_outcomes_that_no_center_took_at_the_end_are_counted_as_dropped(peer: Peer) -> None:
    client = connected(peer)
    peer.kill()
    for _ in range(30):
        peer_call(client)

    client.close(timeout=0.5)

    assert client.stats().posts.dropped == 30


@pytest.mark.parametrize(("status", "field"), [(503, "confirmed"), (400, "refused")])
def test_a_center_that_refuses_outcomes_is_asked_again_only_where_that_can_help(
    peer: Peer, status: int, field: str
) -> None:
    peer.door.post_status = status
    with connected(peer) as client:
        peer_call(client)
        eventually(lambda: peer.door.posts_refused)
        peer.door.post_status = 202

        eventually(lambda: getattr(client.stats().posts, field) == 1)


def test_a_lower_version_is_refused_counted_and_does_not_spin(peer: Peer) -> None:
    peer.door.publish(pair(50, 50, version="5.9"))
    with connected(peer) as client:
        peer.door.publish(pair(1, 99, version="5.8"))
        eventually(lambda: client.stats().clusters["payments"].refused_versions >= 1)

        asked = len(peer.door.asked)
        eventually(lambda: client.stats().clusters["payments"].refused_versions >= 3)

        assert published(client) == {"payments/a": 50, "payments/b": 50}
        assert "older than 5.9" in client.stats().clusters["payments"].trouble
        assert len(peer.door.asked) - asked <= 4


def test_a_restarted_center_counts_from_one_in_a_higher_epoch(peer: Peer) -> None:
    peer.door.publish(pair(version="5.900"))
    with connected(peer) as client:
        peer.door.publish(pair(1, 99, version="6.1"))

        eventually(lambda: published(client)["payments/b"] == 99)


def test_an_unknown_cluster_is_a_clear_state_and_returns_at_once(peer: Peer) -> None:
    began = time.monotonic()

    with reachline.connect_sync(peer.url, clusters=["no-such"], wait=60) as client:
        assert time.monotonic() - began < 30, "it waited for lines that there are none of"
        assert client.stats().clusters["no-such"].trouble == "unknown cluster"
        assert client.cluster("no-such").pick() is None

        peer.door.publish(document(line("x", 1, cluster="no-such"), cluster="no-such"))
        eventually(lambda: client.cluster("no-such").pick())


def test_a_token_is_sent_and_a_wrong_one_is_a_state(peer: Peer) -> None:
    peer.door.token = "sesame"

    with connected(peer, token="sesame") as good, connected(peer, token="wrong") as bad:
        assert good.cluster("payments").pick() is not None
        assert bad.cluster("payments").pick() is None
        assert bad.stats().clusters["payments"].trouble == "not authorised"


def test_a_token_that_others_can_read_is_named(caplog: pytest.LogCaptureFixture) -> None:
    for center in ("http://127.0.0.1:1", "https://10.0.0.1:1", "http://10.0.0.1:1"):
        reachline.connect_sync(center, clusters=["payments"], token="sesame", wait=0).close()

    told = [each for each in caplog.records if each.message == "token_sent_in_the_clear"]
    assert [each.__dict__["centers"] for each in told] == ["http://10.0.0.1:1"]


def test_a_list_with_a_short_life_is_asked_for_twice_in_it(peer: Peer) -> None:
    peer.door.publish(pair(ttl=1.0, version="1.2"))
    with connected(peer) as client:
        eventually(lambda: len(peer.door.asked) >= 6)

        eventually(lambda: not client.cluster("payments").is_stale)

    assert "wait=0.5&" in peer.door.asked[1][0]


HOSTILE = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000,
    b"\x16\x03\x01 is not HTTP",
    b"",
]


@pytest.mark.parametrize("raw", HOSTILE, ids=lambda raw: repr(raw[:40]))
def test_a_hostile_answer_costs_nothing_but_freshness(peer: Peer, raw: bytes) -> None:
    with connected(peer) as client:
        peer.door.say(raw)
        eventually(lambda: client.stats().clusters["payments"].trouble)

        assert published(client) == {"payments/a": 90, "payments/b": 10}
        assert peer_call(client) is not None

        peer.door.publish(pair(11, 12, version="1.2"))
        eventually(lambda: published(client)["payments/a"] == 11)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_next_center_is_asked_when_one_is_dead(peer: Peer, seed: int) -> None:
    gone = Peer(Door())
    gone.kill()

    with reachline.connect_sync([gone.url, peer.url, gone.url], clusters=["payments"], seed=seed) as client:
        assert published(client) == {"payments/a": 90, "payments/b": 10}
        peer_call(client)
        eventually(peer.door.outcomes)


def test_without_center_and_cache_there_is_no_line_and_no_exception(peer: Peer) -> None:
    peer.kill()
    began = time.monotonic()

    with connected(peer, wait=0.3) as client:
        assert 0.25 < time.monotonic() - began < 30
        assert client.cluster("payments").pick() is None
        with client.cluster("payments").attempt() as call:
            assert call.line is None
        assert client.stats().clusters["payments"].source == "none"


def test_static_lines_serve_until_a_center_speaks(peer: Peer) -> None:
    peer.kill()
    static = {"payments": {"tcp://10.0.0.1:443": 100, "tcp://10.0.0.2:443": 0}}
    began = time.monotonic()

    with connected(peer, static=static, wait=100) as client:
        assert time.monotonic() - began < 60
        pick = client.cluster("payments").pick()
        assert pick is not None
        assert (pick.line, pick.address) == ("payments/static-1", ("10.0.0.1", 443))
        assert client.stats().clusters["payments"].is_stale

        peer.start()
        eventually(lambda: published(client) == {"payments/a": 90, "payments/b": 10})
    assert not [row for post in peer.door.posts for row in post["outcomes"] if "static" in row["line"]]


def test_the_cache_starts_a_process_without_a_center(peer: Peer, tmp_path: Path) -> None:
    cache = tmp_path / "lines.json"
    connected(peer, cache=cache).close()
    peer.kill()
    began = time.monotonic()

    with connected(peer, cache=cache, wait=100) as client:
        assert time.monotonic() - began < 60
        assert published(client) == {"payments/a": 90, "payments/b": 10}
        stats = client.stats().clusters["payments"]
        assert (stats.source, stats.version) == ("cache", "1.1")
        assert not stats.is_stale

        peer.door.publish(pair(7, 7, version="0.5"))
        peer.start()
        eventually(lambda: client.stats().clusters["payments"].refused_versions)
        assert published(client) == {"payments/a": 90, "payments/b": 10}


def test_the_cache_is_written_while_the_process_lives(peer: Peer, tmp_path: Path) -> None:
    cache = tmp_path / "lines.json"
    with connected(peer, cache=cache):
        eventually(cache.exists)


def test_a_process_that_is_cut_off_leaves_the_cache_to_those_that_hear_a_center(peer: Peer, tmp_path: Path) -> None:
    cache = tmp_path / "lines.json"
    with serving(pair(90, 10)) as other:
        cut_off = connected(other, cache=cache)
        other.kill()
        peer.door.publish(pair(20, 80, version="1.2"))
        connected(peer, cache=cache).close()

        cut_off.close()

    assert json.loads(cache.read_text())["clusters"]["payments"]["answer"]["version"] == "1.2"


def test_a_process_that_no_center_answered_writes_no_cache(peer: Peer, tmp_path: Path) -> None:
    cache = tmp_path / "lines.json"
    connected(peer, cache=cache).close()
    peer.kill()

    client = connected(peer, cache=cache, wait=5)
    cache.unlink()
    client.close()

    assert not client.stats().is_running
    assert not cache.exists()


def test_a_garbage_cache_is_ignored(peer: Peer, tmp_path: Path) -> None:
    cache = tmp_path / "lines.json"
    cache.write_text("no json")

    with connected(peer, cache=cache) as client:
        assert published(client) == {"payments/a": 90, "payments/b": 10}

    assert cache.read_text().startswith("{")


def test_asyncio_callers_wait_without_blocking_their_loop(peer: Peer) -> None:
    async def run() -> tuple[int, dict[str, int]]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(tick())
            async with await reachline.connect(peer.url, clusters=["no-such", "payments"]) as client:
                async with client.cluster("payments").attempt() as call:
                    assert call.line
                found = published(client)
            dead = await reachline.connect("http://127.0.0.1:1", clusters=["payments"], wait=1.0)
            await dead.aclose()
            ticking.cancel()
        return ticks, found

    ticks, found = asyncio.run(run())

    assert found == {"payments/a": 90, "payments/b": 10}
    assert ticks >= 15
    assert sum(peer.door.outcomes().values()) == 1


def test_one_thread_serves_every_caller_and_ends_with_the_client(peer: Peer) -> None:
    before = set(threading.enumerate())
    client = connected(peer)
    callers = [threading.Thread(target=lambda: [peer_call(client) for _ in range(200)]) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    mine = [each for each in threading.enumerate() if each not in before and each.name.startswith("reachline")]
    assert len(mine) == 1
    assert mine[0].daemon
    client.close()
    assert not mine[0].is_alive()
    assert sum(peer.door.outcomes().values()) == 1_600


def test_nothing_starts_before_the_first_use_where_nothing_is_waited_for(peer: Peer) -> None:
    client = connected(peer, wait=0)
    assert not client.stats().is_running
    assert peer.door.asked == []

    client.cluster("payments").pick()

    eventually(lambda: client.cluster("payments").pick())
    client.close()


def test_a_thread_that_cannot_start_costs_freshness_and_raises_nothing(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    client = connected(peer, wait=0, static={"payments": ["tcp://10.0.0.1:1"]})
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert client.cluster("payments").pick() is not None

    assert "client_thread_not_started" in [each.message for each in caplog.records]
    client.close()


def test_a_thread_that_could_not_start_is_started_by_a_later_use(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    def refuse(self: threading.Thread) -> None:
        nonlocal tries
        tries += 1
        raise RuntimeError("can't start new thread")

    client = connected(peer, wait=0, static={"payments": ["tcp://10.0.0.1:1"]})
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(1_000):
            assert client.cluster("payments").pick() is not None
        assert not client.stats().is_running
    assert tries <= 3  # a pause between two tries, or every call of a full machine would pay for one

    eventually(lambda: peer_call(client) in ("payments/a", "payments/b"))
    assert client.stats().is_running
    client.close()
    assert sum(peer.door.outcomes().values()) >= 1


def test_a_thread_that_failed_is_followed_by_another_and_local_breakers_go_on(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer = pair(90, 10, version="1.2")
    answer["local_rules"] |= {"open": 1.0, "open_cap": 1.0}
    peer.door.publish(answer)
    client = connected(peer)

    def exhausted(*_: object, **__: object) -> object:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(json, "loads", exhausted)
        peer.door.publish(pair(50, 50, version="1.3"))
        eventually(lambda: not client.stats().is_running)
        fail(client, "a")
        assert client.cluster("payments").open_lines() == ("payments/a",)
        eventually(lambda: peer_call(client) == "payments/a")

    eventually(lambda: peer_call(client) and published(client) == {"payments/a": 50, "payments/b": 50})
    assert client.stats().is_running
    assert "client_thread_failed" in [each.message for each in caplog.records]
    client.close()
