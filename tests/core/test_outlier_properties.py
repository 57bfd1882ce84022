from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.ejection import due_ms
from reachline.core.outlier import Outliers
from reachline.core.outlier_events import Action, Event, Saw
from reachline.core.outlier_rules import ENVOY, NATIVE, Decay, Growth, OutlierRules, Return, Spread, ceiling_ms

LINES = tuple(f"c/l{number}" for number in range(6))


class Calls(NamedTuple):
    line: str
    saw: Saw
    times: int


class Passing(NamedTuple):
    ms: int


class Check(NamedTuple):
    line: str


class Left(NamedTuple):
    lines: Mapping[str, int]


steps = st.one_of(
    st.builds(Calls, st.sampled_from(LINES), st.sampled_from(Saw), st.integers(1, 6)),
    st.builds(Passing, st.integers(1, 2_500)),
    st.builds(Check, st.sampled_from(LINES)),
    st.builds(Left, st.dictionaries(st.sampled_from(LINES), st.integers(0, 1), min_size=1)),
)
percents = st.integers(0, 100)
rules = st.builds(
    lambda base, **changes: base._replace(
        interval_ms=1_000, base_ejection_ms=700, max_ejection_ms=3_000, success_rate_request_volume=3,
        failure_percentage_request_volume=3, success_rate_minimum_hosts=3, failure_percentage_minimum_hosts=3,
        latency_minimum_hosts=3, latency_request_volume=2, enforcing_failure_percentage=100, consecutive_5xx=3,
        **changes,
    ),
    st.sampled_from((ENVOY, NATIVE)),
    max_ejection_percent=percents, max_ejection_percent_per_priority=percents, enforcing_consecutive_5xx=percents,
    always_eject_one_host=st.booleans(), split_external_local_origin_errors=st.booleans(), latency=st.booleans(),
    growth=st.sampled_from(Growth), returns=st.sampled_from(Return), decay=st.sampled_from(Decay),
    spread=st.sampled_from(Spread), max_ejection_jitter_ms=st.integers(0, 500), keep_removed_ms=st.sampled_from((0, 5_000)),
    keep_moved=st.booleans(),
)  # fmt: skip


class Story:
    """One run of steps, every deadline kept, and what holds after each event."""

    def __init__(self, obeyed: OutlierRules) -> None:
        self.rules, self.now_ms, self.events = obeyed, 0, list[Event]()
        self.outliers = Outliers(obeyed, seed=3, now_ms=0)
        self.members: Mapping[str, int] = dict.fromkeys(LINES, 0)
        self.outliers.replace(self.members, 0)

    def run(self, step: Calls | Passing | Check | Left) -> None:
        match step:
            case Calls(line, saw, times):
                for turn in range(times):
                    self.take(self.outliers.saw(line, saw, self.now_ms, took_us=1_000 + turn))
            case Passing(ms):
                self.pass_time(ms)
            case Check(line):
                self.take(self.outliers.passed_check(line, self.now_ms))
            case Left(lines):
                self.members = lines
                self.take(self.outliers.replace(lines, self.now_ms))

    def pass_time(self, ms: int) -> None:
        until = self.now_ms + ms
        while (due := self.outliers.deadline()) <= until:
            assert due >= self.now_ms
            self.now_ms = due
            self.take(self.outliers.turn(due))
        self.now_ms = until

    def take(self, events: tuple[Event, ...]) -> None:
        self.events += events
        flags = {line for line in self.members if (seen := self.outliers.monitor(line)) and seen.ejection}
        assert flags == self.outliers.ejected
        assert self.outliers.counts["ejections_active"] == len(flags)
        if any(each.action is Action.EJECT and each.enforced for each in events):
            most = self.rules.max_ejection_percent * len(self.members) // 100
            assert len(flags) <= max(most, int(self.rules.always_eject_one_host))


@given(rules, st.lists(steps, max_size=25))
@settings(max_examples=60, deadline=None)
def test_never_more_are_out_than_the_cap_allows_the_gauge_is_the_flags_and_every_ejection_ends(
    obeyed: OutlierRules, run: list[Calls | Passing | Check | Left]
) -> None:
    story = Story(obeyed)
    for step in run:
        story.run(step)
        for line in story.outliers.ejected:
            seen = story.outliers.monitor(line)
            assert seen is not None
            due, plan = due_ms(seen, obeyed), story.outliers.until_ms(line)
            assert due is not None
            assert plan is not None
            assert due <= plan < due + obeyed.interval_ms
            assert due <= (seen.went_ms or 0) + ceiling_ms(obeyed) + obeyed.max_ejection_jitter_ms

    story.pass_time(2 * obeyed.interval_ms + ceiling_ms(obeyed) + obeyed.max_ejection_jitter_ms + obeyed.interval_ms)

    assert story.outliers.ejected == frozenset()


@given(rules, st.lists(steps, max_size=20))
@settings(max_examples=30, deadline=None)
def test_the_same_story_is_decided_alike(obeyed: OutlierRules, run: list[Calls | Passing | Check | Left]) -> None:
    first, second = Story(obeyed), Story(obeyed)
    for step in run:
        first.run(step)
        second.run(step)

    assert first.events == second.events


@given(st.lists(st.tuples(st.sampled_from(LINES), st.booleans()), max_size=80))
@settings(max_examples=40, deadline=None)
def test_a_sweep_does_not_depend_on_the_order_of_the_interval_s_calls(
    calls: list[tuple[str, bool]],
) -> None:
    obeyed = ENVOY._replace(
        consecutive_5xx=0, consecutive_gateway_failure=0, max_ejection_percent=50, success_rate_request_volume=3,
        success_rate_minimum_hosts=3, failure_percentage_request_volume=3, enforcing_failure_percentage=100,
    )  # fmt: skip
    shuffled = sorted(calls, key=lambda call: (call[1], call[0]))
    found = []
    for order in (calls, shuffled):
        story = Story(obeyed)
        for line, ok in order:
            story.take(story.outliers.saw(line, Saw.ANSWERED if ok else Saw.FAILED, 0))
        story.pass_time(obeyed.interval_ms)
        found.append(story.events)

    assert found[0] == found[1]
