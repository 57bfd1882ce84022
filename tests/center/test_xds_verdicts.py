"""What an Envoy is asked to probe, and its verdicts as readings."""

from __future__ import annotations

from typing import Any

import pytest

from reachline.center.xds.verdicts import Asking, Verdicts, asking
from reachline.core.rules import Rules
from reachline.core.zone import verdict
from reachline.doors import reach
from reachline.model import Counts, Health, LineId, Locality, VantageId, Zone
from reachline.wire.frame import Plan, Report
from reachline.wire.hds import Verdict

A = LineId("payments/a")
AT = ("10.0.0.1", 443)
DOCUMENT = """
clusters:
  payments:
    probes: {PROBES}
    lines: {a: LINE}
"""


def plan(line: str = '"tcp://10.0.0.1:443"', probes: str = "tcp: 5s") -> Plan:
    document = reach.read(DOCUMENT.replace("LINE", line).replace("PROBES", probes), name="test", environ={})
    return reach.plan(document, agent="envoy-1", locality=Locality(), number=1)


def asked(
    line: str = '"tcp://10.0.0.1:443"', probes: str = "tcp: 5s", at: tuple[tuple[str, int], ...] = (AT,)
) -> Asking:
    return asking(plan(line, probes), {A: at})


# -- what is asked --------------------------------------------------------------------------------------------------------


def test_a_tcp_line_is_connected_to_at_its_own_pace_and_reported_as_often() -> None:
    found = asked()

    (ask,) = found.asks
    assert (ask.name, ask.addresses, ask.interval_ms, ask.http) == ("payments/a tcp", (AT,), 5_000, None)
    assert found.every_ms == 2_000


def test_an_http_line_is_asked_with_the_documents_request() -> None:
    probes = "tcp: off, http: {every: 2s, path: /ready, host: a.example, expect: 2xx, headers: {X-Key: abc}}"
    found = asked('"http://10.0.0.1:8080"', probes, (("10.0.0.1", 8080),))

    (ask,) = [one for one in found.asks if one.http is not None]
    assert ask.http is not None
    assert (ask.http.request.path, ask.http.request.authority) == ("/ready", "a.example")
    assert ("X-Key", "abc") in ask.http.request.headers
    assert ask.http.expect == ((200, 299),)
    assert "abc" not in repr(ask), "headers are secrets"


def test_https_is_spoken_with_the_lines_name() -> None:
    found = asked('"https://a.example/healthz"', "tcp: off, http: 5s", (("10.0.0.1", 443),))

    (ask,) = [one for one in found.asks if one.http is not None]
    assert ask.secured is not None
    assert ask.secured.name == "a.example"


@pytest.mark.parametrize(
    ("line", "probes", "at", "why"),
    [
        ('{to: "tcp://10.0.0.1:443", via: "socks5://10.0.0.9:1080"}', "tcp: 5s", (AT,), "proxy"),
        ('"tcp://a.example:443"', "tcp: 5s", (), "no address yet"),
        ('"http://10.0.0.1"', "tcp: off, http: {every: 5s, method: POST, data: abc}", (AT,), "no body"),
    ],
)
def test_what_an_envoy_cannot_probe_is_left_out_and_said(
    line: str, probes: str, at: tuple[tuple[str, int], ...], why: str
) -> None:
    found = asked(line, probes, at)

    assert not found.asks
    assert found.excuses
    assert all(why in one.detail.error and one.reading.void for one in found.excuses)


@pytest.mark.parametrize(
    ("probes", "reported"),
    [("tcp: 100ms", 500), ("tcp: 2s", 2_000), ("tcp: 60s, suspect: 3s", 3_000), ("tcp: 60s, suspect: 60s", 10_000)],
)
def test_reports_come_as_often_as_a_line_in_doubt_is_probed_within_the_judges_bounds(
    probes: str, reported: int
) -> None:
    assert asked(probes=probes).every_ms == reported


def test_no_lines_are_asked_of_an_envoy_that_can_probe_nothing() -> None:
    found = asking(Plan(number=1), {})

    assert (found.asks, found.every_ms) == ((), 10_000)


def test_a_line_in_doubt_is_probed_at_its_suspect_interval() -> None:
    calm, doubted = asked(probes="tcp: 30s, suspect: 2s"), asking(plan(probes="tcp: 30s, suspect: 2s"), {A: [AT]}, {A})

    assert [(found.asks[0].interval_ms, found.every_ms) for found in (calm, doubted)] == [
        (30_000, 2_000),
        (2_000, 2_000),
    ]


# -- what its verdicts are ------------------------------------------------------------------------------------------------


SETTLED_MS = 10_000
"""Every endpoint has been probed once by then."""


def taken(verdicts: Verdicts, rows: list[Verdict], now_ms: int) -> list[Report]:
    """A report's readings."""
    slices, _ = verdicts.sort(rows, now_ms)
    return [report for said in slices for report in verdicts.take(said, now_ms)]


class Heard:
    """One Envoy's verdicts on one line, reported each second."""

    def __init__(self, at: tuple[tuple[str, int], ...] = (AT,), probes: str = "tcp: 1s", **more: Any) -> None:
        self.found = asked(probes=probes, at=at, **more)
        self.verdicts = Verdicts()
        self.verdicts.ask(self.found, 0)
        self.now_ms = SETTLED_MS

    def said(self, *healths: Health, after_ms: int = 1_000) -> Any:
        """The reading after one report."""
        self.now_ms += after_ms
        (ask,) = self.found.asks
        rows = [Verdict(ask.name, *at, health) for at, health in zip(ask.addresses, healths, strict=True)]
        reports = taken(self.verdicts, rows, self.now_ms)
        return reports[0].reading if reports else None


def test_each_report_is_one_round_and_one_attempt() -> None:
    heard = Heard()
    heard.said(Health.HEALTHY)
    heard.said(Health.UNHEALTHY)

    reading = heard.said(Health.TIMEOUT)

    assert reading.counts == Counts(ok=1, late=1, refused=1)
    assert (reading.rounds, reading.rounds_ok) == (3, 1)
    assert (reading.fresh_ok, reading.fresh_failed) == (0, 1)
    assert (reading.quality, reading.sent, reading.answered, reading.p95_us) == (1, 0, 0, None)


def test_a_verdict_that_is_reported_again_before_the_next_probe_is_no_new_evidence() -> None:
    heard = Heard(probes="tcp: 5s")

    fresh = [heard.said(Health.HEALTHY).fresh_ok for _ in range(12)]

    assert fresh == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]


def test_a_verdict_that_changed_is_new_at_once() -> None:
    heard = Heard(probes="tcp: 5s")
    heard.said(Health.HEALTHY)

    assert heard.said(Health.UNHEALTHY).fresh_failed == 1


def test_what_was_not_probed_yet_says_nothing() -> None:
    assert Heard().said(Health.UNKNOWN) is None


def test_a_round_is_good_where_one_of_the_addresses_is() -> None:
    heard = Heard(at=(AT, ("10.0.0.2", 443)))

    reading = heard.said(Health.HEALTHY, Health.UNHEALTHY)

    assert (reading.rounds_ok, reading.counts) == (1, Counts(ok=1, refused=1))


def test_old_verdicts_leave_the_window() -> None:
    heard = Heard()
    heard.said(Health.UNHEALTHY)

    assert heard.said(Health.HEALTHY, after_ms=120_001).counts == Counts(ok=1)


def test_a_window_has_an_end_however_long_an_envoy_reports() -> None:
    heard = Heard()
    for _ in range(1_000):
        reading = heard.said(Health.HEALTHY)

    assert reading.counts.attempts == 121  # two minutes and the one now: `window.max_age`


def test_three_bad_reports_fail_a_line_and_it_takes_three_good_ones_to_be_well() -> None:
    heard, held, zones = Heard(), {}, []
    for health in [Health.HEALTHY] * 3 + [Health.UNHEALTHY] * 3 + [Health.HEALTHY] * 3:
        found = verdict(VantageId("envoy-1"), [heard.said(health)], held, rules())
        held = dict(found.held)
        zones.append(found.zone)

    assert zones[2] is Zone.H
    assert zones[5] is Zone.F
    assert found.vote is not None
    assert zones[7] is Zone.F


def rules() -> Rules:
    document = reach.read(
        DOCUMENT.replace("LINE", '"tcp://10.0.0.1:443"').replace("PROBES", "tcp: 1s"), name="t", environ={}
    )
    return reach.rules(document, "payments")


def test_verdicts_on_what_was_not_asked_are_counted_and_left() -> None:
    verdicts = Verdicts()
    verdicts.ask(asked(), 0)

    found = verdicts.sort([Verdict("payments/x tcp", *AT, Health.UNHEALTHY)], 0)

    assert found == ([], 1)


def test_verdicts_on_addresses_that_were_not_asked_are_counted_and_left() -> None:
    verdicts = Verdicts()
    verdicts.ask(asked(), 0)
    strangers = [Verdict("payments/a tcp", "10.0.9.9", port, Health.UNHEALTHY) for port in range(1, 4)]

    slices, unknown = verdicts.sort([Verdict("payments/a tcp", *AT, Health.HEALTHY), *strangers], SETTLED_MS)

    assert (slices, unknown) == ([{"payments/a tcp": {AT: Health.HEALTHY}}], 3)


def test_an_address_that_a_line_left_is_not_failed_by_the_report_that_was_under_way() -> None:
    heard = Heard(at=(AT, ("10.0.0.2", 443)))
    heard.said(Health.HEALTHY, Health.HEALTHY)
    (before,) = heard.found.asks
    heard.verdicts.ask(asked(probes="tcp: 1s"), heard.now_ms)
    rows = [Verdict(before.name, *at, Health.UNHEALTHY) for at in before.addresses[1:]]

    assert taken(heard.verdicts, [Verdict(before.name, *AT, Health.HEALTHY), *rows], heard.now_ms + 1_000)[
        0
    ].reading.counts == Counts(ok=3)


def test_an_address_that_envoy_writes_otherwise_is_the_same() -> None:
    verdicts = Verdicts()
    verdicts.ask(asked(at=(("::ffff:a00:1", 443),)), 0)

    slices, unknown = verdicts.sort(
        [
            Verdict("payments/a tcp", "::ffff:10.0.0.1", 443, Health.HEALTHY),
            Verdict("payments/a tcp", "x", 443, Health.HEALTHY),
        ],
        0,
    )

    assert (slices, unknown) == ([{"payments/a tcp": {("::ffff:a00:1", 443): Health.HEALTHY}}], 1)


def test_windows_of_checks_that_stay_are_kept_when_others_come() -> None:
    heard = Heard()
    heard.said(Health.UNHEALTHY)
    heard.found = asked(probes="tcp: 1s", at=(AT, ("10.0.0.2", 443)))
    heard.verdicts.ask(heard.found, heard.now_ms - SETTLED_MS)
    kept = heard.said(Health.UNHEALTHY, Health.UNHEALTHY)
    heard.found = asked(probes="tcp: 2s")
    heard.verdicts.ask(heard.found, heard.now_ms - SETTLED_MS)

    anew = heard.said(Health.UNHEALTHY)

    assert (kept.counts.attempts, anew.counts.attempts) == (3, 1)


def test_an_endpoint_that_envoy_has_not_probed_yet_is_not_failed() -> None:
    """Envoy says UNHEALTHY of it, by the same word as of one that failed."""
    verdicts, found = Verdicts(), asked(probes="tcp: {every: 5s, timeout: 1s}")
    verdicts.ask(found, 1_000)
    (ask,) = found.asks

    def said(health: Health, at_ms: int) -> int:
        reports = taken(verdicts, [Verdict(ask.name, *AT, health)], at_ms)
        return sum(one.reading.counts.refused for one in reports)

    before = [said(Health.UNHEALTHY, at_ms) for at_ms in (1_500, 2_499)]
    after = said(Health.UNHEALTHY, 2_500)

    assert (before, after) == ([0, 0], 1)


def test_once_probed_an_endpoint_fails_at_once() -> None:
    verdicts, found = Verdicts(), asked()
    verdicts.ask(found, 1_000)
    (ask,) = found.asks
    taken(verdicts, [Verdict(ask.name, *AT, Health.HEALTHY)], 1_100)

    (report,) = taken(verdicts, [Verdict(ask.name, *AT, Health.UNHEALTHY)], 1_200)

    assert report.reading.counts == Counts(ok=1, refused=1)


def test_a_time_out_is_a_probes_answer_from_the_first_report_on() -> None:
    verdicts, found = Verdicts(), asked()
    verdicts.ask(found, 1_000)

    (report,) = taken(verdicts, [Verdict(found.asks[0].name, *AT, Health.TIMEOUT)], 1_100)

    assert report.reading.counts == Counts(late=1)


def test_an_address_that_joins_a_line_is_not_failed_before_it_is_probed() -> None:
    heard = Heard()
    heard.said(Health.HEALTHY)
    heard.found = asked(probes="tcp: 1s", at=(AT, ("10.0.0.2", 443)))
    heard.verdicts.ask(heard.found, heard.now_ms)

    early = heard.said(Health.HEALTHY, Health.UNHEALTHY)
    later = heard.said(Health.HEALTHY, Health.UNHEALTHY, after_ms=2_000)

    assert (early.counts, later.counts) == (Counts(ok=2), Counts(ok=3, refused=1))


def test_a_line_that_comes_into_doubt_keeps_its_window_and_tells_more_often() -> None:
    heard = Heard(probes="tcp: 30s, suspect: 2s")
    heard.said(Health.UNHEALTHY)
    heard.found = asking(plan(probes="tcp: 30s, suspect: 2s"), {A: [AT]}, {A})
    heard.verdicts.ask(heard.found, heard.now_ms)

    readings = [heard.said(Health.UNHEALTHY, after_ms=2_000) for _ in range(3)]

    assert [one.counts.refused for one in readings] == [2, 3, 4]


def test_a_long_report_is_taken_in_slices_with_all_kinds_of_a_line_in_one() -> None:
    lines = ", ".join(f'l{number}: "http://10.0.{number // 250}.{number % 250}:80"' for number in range(250))
    text = f"probes: {{tcp: 5s, http: 5s}}\nclusters:\n  payments:\n    lines: {{{lines}}}\n"
    document = reach.read(text, name="test", environ={})
    at = {line.id: [(line.endpoint.host, 80)] for line in reach.lines(document, "payments")}
    found = asking(reach.plan(document, agent="envoy-1", locality=Locality(), number=1), at)
    verdicts = Verdicts()
    verdicts.ask(found, 0)
    rows = [Verdict(ask.name, *ask.addresses[0], Health.HEALTHY) for ask in reversed(found.asks)]

    slices, unknown = verdicts.sort(rows, SETTLED_MS)

    counted = [{name.partition(" ")[0] for name in said} for said in slices]
    assert ([len(one) for one in counted], unknown) == ([100, 100, 50], 0)
    assert not counted[0] & counted[1]
    assert sum(len(said) for said in slices) == 500
