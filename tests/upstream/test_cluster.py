from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from reachline.core.rules import LocalRules
from reachline.model import Gate, LineId, Outcome, Version
from reachline.upstream import Cluster, LineList, Listed, Pick
from reachline.upstream.listing import target
from reachline.upstream.outcome import Column
from reachline.upstream.tally import ROWS_MOST, Tally, Totals


class Clock:
    """Time that a test turns."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class World:
    """One cluster, its clock, and what it told its driver."""

    def __init__(self, *, local_breaker: bool = True) -> None:
        self.clock, self.woken, self.moves = Clock(), 0, 0
        self.cluster = Cluster(
            "payments",
            clock=self.clock,
            rng=random.Random(1),
            local_breaker=local_breaker,
            awaken=self._awaken,
            moved=self._moved,
        )

    def _awaken(self) -> None:
        self.woken += 1
        self.cluster.wake()

    def _moved(self) -> None:
        self.moves += 1

    def picks(self, count: int = 200) -> Counter[str]:
        return Counter(
            each.line.rpartition("/")[2] if each else "-" for each in (self.cluster.pick() for _ in range(count))
        )

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        due = self.cluster.deadline()
        if due is not None and due <= self.clock.now:
            self.cluster.turn()

    def lose(self, name: str, times: int = 2) -> None:
        """That many failed calls on a line, whatever it takes to pick it."""
        for _ in range(times):
            self.cluster.report(self.find(name), "refused")

    def find(self, name: str) -> Pick:
        for _ in range(10_000):
            pick = self.cluster.pick()
            assert pick is not None
            if pick.line.endswith(f"/{name}"):
                return pick
        raise AssertionError(f"{name} is never picked")


def listed(name: str, weight: int = 100, *, port: int = 443, **more: Any) -> Listed:
    return Listed(LineId(f"payments/{name}"), target(f"https://10.0.0.1:{port}/healthz"), weight, 100)._replace(**more)


def lines(*rows: Listed, version: tuple[int, int] = (1, 1), **more: Any) -> LineList:
    return LineList(cluster="payments", lines=rows, version=Version(*version), **more)


def world(*rows: Listed, local_breaker: bool = True, **more: Any) -> World:
    made = World(local_breaker=local_breaker)
    made.cluster.replace(lines(*rows, **more), source="center")
    made.cluster.wake()
    return made


def test_a_pick_says_where_to_connect_and_how() -> None:
    made = world(listed("a", via="socks5://10.0.0.9:1080", window=7))

    pick = made.cluster.pick()

    assert pick == Pick(
        line=LineId("payments/a"),
        address=("10.0.0.1", 443),
        url="https://10.0.0.1:443",
        via="socks5://10.0.0.9:1080",
        target="https://10.0.0.1:443/healthz",
        window=7,
    )


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("tcp://10.0.0.1:443", ("10.0.0.1", 443), "tcp://10.0.0.1:443"),
        ("https://a.example/healthz?x=1", ("a.example", 443), "https://a.example"),
        ("http://[::1]:8080/", ("::1", 8080), "http://[::1]:8080"),
        ("10.0.0.1:9", ("10.0.0.1", 9), "10.0.0.1:9"),
        ("icmp://10.0.0.1", None, "icmp://10.0.0.1"),
        ("unix:/run/a.sock", None, "unix:/run/a.sock"),
        ("http://a:99999999", None, "http://a:99999999"),
        ("http://user:pass@a.example:81/x", ("a.example", 81), "http://a.example:81"),
    ],
)
def test_addresses_are_taken_apart_and_never_refused(text: str, address: object, url: str) -> None:
    assert target(text) == (text, address, url)


def test_nothing_is_offered_before_the_first_list_and_nothing_raises() -> None:
    made = World()

    with made.cluster.attempt() as call:
        assert not call
        assert (call.line, call.address, call.url, call.via) == (None, None, None, None)

    assert made.cluster.pick() is None
    assert made.cluster.lines() == ()
    assert made.cluster.stats().source == "none"
    assert made.cluster.is_stale


def test_the_first_use_awakens_the_driver_once() -> None:
    made = World()
    made.cluster.replace(lines(listed("a")), source="cache")

    made.picks(10)

    assert made.woken == 1


def test_where_no_driver_runs_each_use_asks_for_one_and_turns_the_breakers_itself() -> None:
    clock, asked = Clock(), 0

    def refuse() -> None:
        nonlocal asked
        asked += 1

    cluster = Cluster("payments", clock=clock, rng=random.Random(1), awaken=refuse)
    cluster.replace(lines(listed("a"), listed("b")), source="cache")
    for _ in range(2):
        while (pick := cluster.pick()) is None or pick.line != "payments/a":
            continue
        cluster.report(pick, "refused")
    before = asked

    def picked() -> set[str]:
        return {pick.line if pick else "" for pick in (cluster.pick() for _ in range(50))}

    assert picked() == {"payments/b"}
    assert asked == before + 50
    clock.now += 6
    assert "payments/a" in picked()

    cluster.wake()
    cluster.pick()
    assert asked == before + 100


def test_two_failures_take_a_line_out_and_tell_the_driver_at_once() -> None:
    made = world(listed("a"), listed("b"))

    made.lose("a")

    assert made.cluster.open_lines() == ("payments/a",)
    assert made.picks() == Counter(b=200)
    assert made.moves == 1


def test_a_line_that_is_out_gets_one_trial_after_its_wait_and_returns_by_it() -> None:
    made = world(listed("a"), listed("b"))
    made.lose("a")
    made.pass_time(4.9)
    assert made.picks() == Counter(b=200)

    made.pass_time(0.2)
    trial = made.find("a")

    assert trial.is_trial
    assert made.picks() == Counter(b=200)
    made.cluster.report(trial)
    assert set(made.picks()) == {"a", "b"}


def test_a_failed_trial_doubles_the_wait() -> None:
    made = world(listed("a"), listed("b"))
    made.lose("a")
    made.pass_time(5)
    made.lose("a", times=1)

    made.pass_time(9.9)
    assert made.picks() == Counter(b=200)
    made.pass_time(0.2)
    assert made.find("a").is_trial


def test_a_trial_that_never_reports_frees_the_next_after_a_minute() -> None:
    made = world(listed("a"), listed("b"))
    made.lose("a")
    made.pass_time(5)
    made.find("a")

    made.pass_time(59)
    assert made.picks() == Counter(b=200)
    made.pass_time(1)
    assert made.find("a").is_trial


def test_a_trial_cancelled_early_frees_the_next_at_once() -> None:
    made = world(listed("a", 10_000), listed("b", 1))
    made.lose("a")
    made.pass_time(5)

    call = made.cluster.attempt()
    with pytest.raises(asyncio.CancelledError), call:
        raise asyncio.CancelledError

    assert call.pick is not None
    assert call.pick.is_trial
    made.pass_time(0.001)
    assert made.find("a").is_trial


def test_calls_that_began_before_the_trip_say_nothing_about_the_time_after_it() -> None:
    made = world(listed("a"), listed("b"))
    old = made.find("a")
    made.lose("a")
    made.pass_time(5)
    made.cluster.report(made.find("a"))

    for _ in range(10):
        made.cluster.report(old, "timeout")

    assert made.cluster.open_lines() == ()


def test_a_server_error_is_an_answer_and_never_takes_a_line_out() -> None:
    made = world(listed("a"), listed("b"))

    for _ in range(100):
        made.cluster.report(made.find("a"), "status")

    assert made.cluster.open_lines() == ()


def test_a_success_in_between_keeps_a_line_in() -> None:
    made = world(listed("a"), listed("b"))

    for _ in range(20):
        made.lose("a", times=1)
        made.cluster.report(made.find("a"))

    assert made.cluster.open_lines() == ()


def test_the_last_line_is_never_taken_out() -> None:
    made = world(listed("a"))

    made.lose("a", times=50)

    assert made.picks() == Counter(a=200)


def test_with_the_local_breaker_off_only_the_center_takes_lines_out() -> None:
    made = world(listed("a"), listed("b"), local_breaker=False)

    made.lose("a", times=50)

    assert made.cluster.open_lines() == ()
    assert made.cluster.stats().calls.failed == 50


def test_a_new_list_keeps_the_local_breakers_of_lines_that_stay() -> None:
    made = world(listed("a"), listed("b"))
    made.lose("a")

    made.cluster.replace(lines(listed("a", 90), listed("b", 80), listed("c", 1), version=(1, 2)), source="center")

    assert made.cluster.open_lines() == ("payments/a",)
    made.cluster.replace(lines(listed("b"), version=(1, 3)), source="center")
    assert made.cluster.open_lines() == ()


def test_a_line_that_vanishes_in_the_middle_of_a_call_disturbs_nothing() -> None:
    made = world(listed("a"), listed("b"))

    with made.cluster.attempt() as call:
        made.cluster.replace(lines(listed("c"), version=(1, 2)), source="center")
        call.fail("reset")

    assert made.picks() == Counter(c=200)


@pytest.mark.parametrize("version", [(1, 1), (0, 99)])
def test_a_lower_version_is_refused_and_counted(version: tuple[int, int]) -> None:
    made = world(listed("a"), version=(1, 2))

    assert not made.cluster.replace(lines(listed("z"), version=version), source="center")

    assert made.picks() == Counter(a=200)
    assert made.cluster.stats().refused_versions == 1


def test_a_higher_epoch_with_a_lower_counter_is_newer() -> None:
    made = world(listed("a"), version=(1, 500))

    assert made.cluster.replace(lines(listed("b"), version=(2, 1)), source="center")

    assert made.picks() == Counter(b=200)


def test_a_list_is_stale_after_its_own_time_and_stays_in_force() -> None:
    made = world(listed("a", 90), listed("b", 10), ttl=60.0)

    made.pass_time(60)
    assert not made.cluster.is_stale
    made.pass_time(1)

    assert made.cluster.is_stale
    assert made.cluster.stats().silence == 61.0
    assert made.picks(10_000)["a"] / 10_000 == pytest.approx(0.9, abs=0.02)
    made.cluster.heard()
    assert not made.cluster.is_stale


def held_open(**more: Any) -> Listed:
    return listed("a", 0, breaker=Gate.OPEN, share=0.0, since=1_000.0, next=1_030.0, **more)


def test_a_line_held_open_is_tried_here_only_after_ten_cooldowns_of_silence() -> None:
    made = world(held_open(), listed("b"))
    made.pass_time(299)
    assert made.picks() == Counter(b=200)

    made.pass_time(1)
    trial = made.find("a")

    assert trial.is_trial
    assert made.picks() == Counter(b=200)


def test_a_line_tried_in_the_silence_gets_the_trials_share_and_is_the_centers_again_once_it_speaks() -> None:
    made = world(held_open(), listed("b"))
    made.pass_time(300)
    made.cluster.report(made.find("a"))

    share = made.picks(20_000)["a"] / 20_000
    assert share == pytest.approx(5 / 105, abs=0.01)

    made.cluster.heard()
    assert made.picks() == Counter(b=200)


@pytest.mark.parametrize("by_list", [False, True])
def test_what_a_line_proved_in_one_silence_counts_for_nothing_in_the_next(by_list: bool) -> None:
    made = world(held_open(), listed("b"))
    made.pass_time(300)
    made.cluster.report(made.find("a"))

    if by_list:
        made.cluster.replace(lines(held_open(), listed("b"), version=(1, 2)), source="center")
    else:
        made.cluster.heard()
    made.pass_time(300)

    assert made.find("a").is_trial


def test_a_call_from_before_the_center_opened_a_line_does_not_decide_our_trial_of_it() -> None:
    made = world(listed("a"), listed("b"))
    old = made.find("a")
    made.cluster.replace(lines(held_open(), listed("b"), version=(1, 2)), source="center")
    made.pass_time(300)
    trial = made.find("a")

    made.cluster.report(old, "timeout")
    made.cluster.report(trial)

    assert "a" in made.picks(2_000)


def test_a_failed_trial_in_the_silence_waits_as_any_other() -> None:
    made = world(held_open(), listed("b"))
    made.pass_time(300)
    made.lose("a", times=1)

    made.pass_time(4.9)
    assert made.picks() == Counter(b=200)
    made.pass_time(0.1)
    assert made.find("a").is_trial


def test_local_rules_come_from_the_center() -> None:
    rules = LocalRules(failures=5, open_ms=1_000, open_cap_ms=2_000, max_open_milli=1_000)
    made = world(listed("a"), listed("b"), listed("c"), local=rules)

    made.lose("a", times=4)
    assert made.cluster.open_lines() == ()
    made.lose("a", times=1)
    made.lose("b", times=5)

    assert made.cluster.open_lines() == ("payments/a", "payments/b")


def test_calls_that_went_well_are_timed_by_the_lists_limits() -> None:
    made = world(listed("a"))
    made.cluster.replace(replace(made.cluster.published, slow=0.2, crawl=0.5), source="center")
    pick = made.find("a")
    for elapsed in (0.2, 0.21, 0.5, 0.51, None):
        made.cluster.record(pick, Column.OK, elapsed)
    made.cluster.record(pick, Column.ERRORS, 0.6)

    (taken,) = made.cluster.take("checkout")

    assert (taken.ok, taken.errors, taken.timed, taken.slow, taken.crawl) == (5, 1, 4, 3, 1)


def test_no_call_is_timed_for_a_center_that_names_no_limits() -> None:
    made = world(listed("a"))
    with made.cluster.attempt():
        pass

    (taken,) = made.cluster.take("checkout")

    assert (taken.ok, taken.timed, taken.slow, taken.crawl) == (1, 0, 0, 0)


def test_outcomes_are_summed_by_line_and_window_and_taken_once() -> None:
    made = world(listed("a", window=3))
    calls = [made.find("a") for _ in range(4)]
    for pick, failure in zip(calls, (None, "reset", "timeout", "status"), strict=True):
        made.cluster.report(pick, failure)  # type: ignore[arg-type]
    made.cluster.report(calls[0], "agent")

    taken = made.cluster.take("checkout")

    assert taken == (Outcome(LineId("payments/a"), "checkout", window=3, ok=1, failed=1, late=1, errors=1),)
    assert made.cluster.take("checkout") == ()
    assert made.cluster.stats().calls == Totals(ok=1, failed=1, late=1, errors=1, unproven=1)


def test_outcomes_of_lines_that_no_center_published_are_nobodys_business() -> None:
    made = World()
    made.cluster.replace(LineList(cluster="payments", lines=(listed("static-1"),)), source="static")
    made.cluster.report(made.find("static-1"))

    assert made.cluster.take("") == ()


def test_rows_beyond_the_bound_are_dropped_and_counted() -> None:
    tally = Tally()

    for number in range(ROWS_MOST + 5):
        tally.add(LineId(f"c/{number}"), 0, Column.OK)

    assert tally.totals() == Totals(ok=ROWS_MOST + 5, dropped=5)
    assert len(tally.take("")) == ROWS_MOST


def test_no_call_is_lost_or_counted_twice_among_threads() -> None:
    made = world(listed("a"), listed("b"))
    taken: list[Outcome] = []
    done = threading.Event()

    def call() -> None:
        for _ in range(2_000):
            with made.cluster.attempt() as call:
                call.ok()

    def collect() -> None:
        while not done.is_set():
            taken.extend(made.cluster.take(""))

    callers = [threading.Thread(target=call) for _ in range(8)]
    collector = threading.Thread(target=collect)
    for thread in (collector, *callers):
        thread.start()
    for thread in callers:
        thread.join()
    done.set()
    collector.join()
    taken.extend(made.cluster.take(""))

    assert sum(each.ok for each in taken) == 16_000


def test_one_trial_is_given_to_one_of_many_threads() -> None:
    made = world(listed("a", 1_000_000), listed("b", 1))
    made.lose("a")
    made.pass_time(5)
    trials: list[Pick] = []
    start = threading.Barrier(8)

    def pick() -> None:
        start.wait()
        for _ in range(200):
            found = made.cluster.pick()
            if found is not None and found.is_trial:
                trials.append(found)

    threads = [threading.Thread(target=pick) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(trials) == 1


def test_a_trial_that_another_thread_took_between_pick_and_claim_is_not_given_twice() -> None:
    made = world(listed("a"), listed("b"))
    made.lose("a")
    made.pass_time(5)
    trial = made.find("a")

    assert not made.cluster.claim(trial)


def test_picks_go_on_while_lists_are_swapped() -> None:
    made = world(listed("a"))
    wrong: list[object] = []
    done = threading.Event()

    def pick() -> None:
        while not done.is_set():
            if made.cluster.pick() is None:
                wrong.append(None)

    threads = [threading.Thread(target=pick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for counter in range(2, 300):
        made.cluster.replace(lines(listed(f"n{counter}"), version=(1, counter)), source="center")
    done.set()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_without_a_driver_picks_go_on_and_breakers_rest() -> None:
    made = world(listed("a"), listed("b"))
    made.lose("a")

    made.cluster.retire()
    made.lose("b", times=20)

    assert set(made.picks()) == {"a", "b"}


def test_a_forked_child_keeps_the_list_and_nothing_else() -> None:
    made = world(listed("a"), listed("b"))
    made.lose("a")
    held = made.cluster.attempt()
    held.__enter__()

    made.cluster.forked(random.Random(2))
    held.__exit__(None, None, None)

    assert made.cluster.take("") == ()
    assert made.cluster.open_lines() == ()
    assert set(made.picks()) == {"a", "b"}
    assert made.woken == 1


def test_a_lock_held_by_another_thread_at_the_fork_does_not_hang_the_child() -> None:
    made = world(listed("a"), listed("b"))
    made.cluster._lock.acquire()
    made.cluster.tally._lock.acquire()

    made.cluster.forked(random.Random(2))
    made.lose("a")

    assert made.cluster.open_lines() == ("payments/a",)


@pytest.mark.parametrize("nonsense", [None, "payments/a", (), pytest.param(object(), id="an object")], ids=repr)
def test_a_report_without_a_pick_is_ignored_and_counted(nonsense: Any) -> None:
    made = world(listed("a"))

    made.cluster.report(nonsense)
    made.cluster.report(nonsense, "refused")

    assert made.cluster.stats().calls == Totals()
    assert made.cluster.stats().misuses == 2


@pytest.mark.parametrize("nonsense", [5, float("nan"), [], TimeoutError()], ids=repr)
def test_a_report_whose_failure_is_no_word_proves_nothing(nonsense: Any) -> None:
    made = world(listed("a"), listed("b"))
    made.lose("a")
    made.pass_time(6)
    trial = made.find("a")
    assert trial.is_trial

    made.cluster.report(trial, nonsense)

    assert made.cluster.stats().calls == Totals(failed=2, unproven=1)
    assert made.cluster.stats().misuses == 1
    assert made.find("a").is_trial


def test_misuse_is_logged_once_by_its_type(caplog: pytest.LogCaptureFixture) -> None:
    made = world(listed("a"))

    for secret in ("s3cret", None, "s3cret"):
        made.cluster.report(secret)  # type: ignore[arg-type]

    (record,) = [each for each in caplog.records if each.getMessage() == "argument_ignored"]
    assert (vars(record)["cluster"], vars(record)["method"], vars(record)["argument"]) == ("payments", "report", "str")
    assert "s3cret" not in str(vars(record))
