"""The probing benchmark as a tool: what it makes of figures, and that it runs. Never whether we are fast."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from benchmarks.probing import exporter, lab, peers
from benchmarks.probing.asking import Asked, Sampled, Target
from benchmarks.probing.bare import bare
from benchmarks.probing.measuring import QUICK, run
from benchmarks.probing.ours import saturated
from benchmarks.probing.page import page, summary
from benchmarks.probing.process import CellError, cell
from benchmarks.probing.results import (
    Agent,
    Drift,
    Memory,
    Offset,
    Pace,
    Peer,
    Profile,
    Results,
    Run,
    Sample,
    Spot,
)
from benchmarks.probing.sampling import Sampler
from benchmarks.probing.table import idle, ratios, verdicts
from benchmarks.probing.target import served

from benchmarks import probe

ROOT = Path(__file__).parents[2]
PEERS = {
    "engine": Peer(title="Reachline's engine", how="as an agent runs it"),
    "c": Peer(title="C loop", how="cc 12, -O2"),
    "blackbox": Peer(title="blackbox_exporter", lack="blackbox_exporter is not installed (Debian: apt-get install it)"),
}


def sample(rate: float, *, busy: float = 1.0, bad: int = 0) -> Sample:
    return Sample(count=round(rate * busy), bad=bad, cpu=busy, wall=1.0)


def results(**more) -> Results:
    made = Results(machine={"cores": "2"}, run=Run(rounds=2, seconds=1.0, took=9.0), peers=PEERS)
    return msgspec.structs.replace(made, **more)


def state(found: Results, what: str) -> str:
    return next(row.state for row in verdicts(found) if f"{row.cell} {row.what}" == what)


def test_a_ratio_is_of_the_same_round_so_that_a_slow_moment_meets_both():
    ours, theirs = (sample(800), sample(80), sample(640)), (sample(1_000), sample(100), sample(1_000))

    assert ratios(ours, theirs) == pytest.approx([0.8, 0.8, 0.64])
    row = next(
        row
        for row in verdicts(results(rates={"tcp": {"engine": ours, "c": theirs}}))
        if row.what == "against the C loop"
    )
    assert (row.value, row.low, row.high) == pytest.approx((0.8, 0.64, 0.8))


@pytest.mark.parametrize(
    ("rate", "state_"), [(640, "falls short"), (650, "holds"), (790, "holds"), (800, "goal reached")]
)
def test_a_bound_is_reached_by_what_is_equal_to_it(rate, state_):
    rates = {"tcp": {"engine": (sample(rate),), "c": (sample(1_000),)}}

    assert state(results(rates=rates), "tcp against the C loop") == state_


@pytest.mark.parametrize(
    ("core", "late_us", "expected"),
    [(0.30, 1_500, ("goal reached", "goal reached")), (0.31, 1_501, ("holds", "falls short"))],
)
def test_less_is_better_at_a_fixed_rate(core, late_us, expected):
    pace = Pace(rate=10_000, ended=10_000, core=core, late_p50_us=500, late_p99_us=late_us, bad=0)

    found = results(paced=(pace,))

    assert (state(found, "paced share of a core"), state(found, "paced start lateness, p99")) == expected


@pytest.mark.parametrize(("ended", "share", "kept_up"), [(10_000, 0.2, "goal reached"), (5_000, 0.4, "falls short")])
def test_an_agent_that_fell_behind_is_not_cheap(ended, share, kept_up):
    found = results(agent=Agent(lines=10_000, core=0.2, line_bytes=5_000, ended=ended))

    row = next(row for row in verdicts(found) if f"{row.cell} {row.what}" == "agent share of a core")

    assert row.value == pytest.approx(share)
    assert state(found, "agent kept up with") == kept_up


def offset(rate: int, p50: float, *, stall_ms: int = 0, count: int = 100) -> Offset:
    return Offset(
        kind="tcp", rate=rate, stall_ms=stall_ms, count=count, missing=0, p50_us=p50, p99_us=10 * p50, worst_us=9_999
    )


def test_the_truth_of_round_trips_is_that_of_the_worst_rate_and_of_the_middle_round():
    cases = (offset(100, 5), offset(3_000, 12), offset(3_000, 90), offset(3_000, 15), offset(1_000, 99, stall_ms=40))

    rows = {row.what: row.value for row in verdicts(results(lab=cases)) if row.cell == "rtt"}

    assert rows["error p50"] == 15
    assert rows["error p99"] == 150
    assert rows["error p50, stalled 40 ms each second"] == 99


def test_what_was_not_measured_says_why():
    found = results(lacks={"tcp by blackbox": "blackbox_exporter is not installed"})

    rows = {f"{row.cell} {row.what}": (row.state, row.lack) for row in verdicts(found)}

    assert rows["tcp against blackbox_exporter"] == ("not measured", "blackbox_exporter is not installed")
    assert rows["memory growth of a long run"] == ("not measured", "not asked for")
    assert "not asked for" not in summary(found), "a terminal shows what was asked for"


def test_growth_is_of_the_last_quarter_over_the_second():
    drift = Drift(seconds=60, probes=10**6, early_kb=50_000, late_kb=51_000, files_early=40, files_late=40)

    row = next(row for row in verdicts(results(drift=drift)) if row.what == "growth of a long run")

    assert row.value == pytest.approx(0.02)
    assert row.state == "falls short"


def test_a_neighbour_that_had_less_of_its_core_is_named():
    assert idle((sample(9, busy=0.99), sample(9, busy=0.96), sample(9, busy=0.5))) is None
    assert idle((sample(9, busy=0.99), sample(9, busy=0.94), sample(9, busy=0.5))) == pytest.approx(0.94)


def test_a_page_of_a_busy_machine_says_so():
    calm, busy = (sample(9, busy=0.99),), (sample(9, busy=0.5),)

    assert "Not to be relied on" in page(results(rates={"tcp": {"engine": busy, "c": busy, "blackbox": calm}}))
    assert "Not to be relied on" not in page(results(rates={"tcp": {"engine": busy, "c": calm}}))


def whole() -> Results:
    """One of everything."""
    return results(
        rates={
            "tcp": {
                "engine": (sample(500), sample(700)),
                "c": (sample(1_000, busy=0.8, bad=3), sample(1_000, busy=0.8)),
            }
        },
        paced=(Pace(rate=10_000, ended=9_999, core=0.25, late_p50_us=600, late_p99_us=1_100, bad=0),),
        agent=Agent(lines=10_000, core=0.5, line_bytes=5_000, ended=9_998, late_p50_us=1_000, late_p99_us=2_000),
        lab=(offset(3_000, 8),),
        memory=Memory(lines=10_000, window=1_500),
        drift=Drift(seconds=60, probes=10**6, early_kb=50_000, late_kb=50_001, files_early=40, files_late=41),
        profiles={
            "tcp": Profile(
                samples=900, kernel=0.6, spots=(Spot(share=0.4, place="net/bare.py begin", source="a | b < c"),)
            )
        },
        lacks={"tcp by blackbox": PEERS["blackbox"].lack},
    )


def test_a_page_says_what_holds_and_what_falls_short_with_its_profile():
    lines = page(whole()).splitlines()

    assert "| TCP connect, against the C loop | 0.6 × | 0.5 × … 0.7 × | ≥ 0.65 × | ≥ 0.8 × | **falls short** |" in lines
    assert "| 10 000 connects a second, share of a core | 25.0% | – | ≤ 45.0% | ≤ 30.0% | goal reached |" in lines
    assert "- against the C loop: 0.6 ×, where ≥ 0.65 × is wanted" in lines
    assert "| 40.0% | <code>net/bare.py begin</code> | <code>a &#124; b &lt; c</code> |" in lines
    assert "| TCP connect | 600 (500 … 700) | 1,000 (1,000 … 1,000) |  |" in lines
    assert "- C loop, TCP connect: had only 80% of its core (95% is wanted)" in lines
    assert "- C loop, TCP connect: 3 of 1600 probes failed" in lines
    assert "- not measured, tcp by blackbox: blackbox_exporter is not installed (Debian: apt-get install it)" in lines
    assert [line for line in lines if str(ROOT) in line] == []


def test_results_come_back_from_their_file_as_they_were():
    found = whole()

    again = msgspec.json.decode(msgspec.json.encode(found), type=Results)

    assert again == found
    assert page(again) == page(found)


def test_a_page_of_nothing_renders():
    assert "Nothing of what was measured." in page(results())


# -- packets --------------------------------------------------------------------------------------------------------------


def ip(source: int, target: int, protocol: int, body: bytes) -> bytes:
    head = bytearray(20)
    head[0], head[9] = 0x45, protocol
    head[12:16], head[16:20] = bytes((10, 9, 0, source)), bytes((10, 9, 0, target))
    return bytes(head) + body


def tcp(source: int, target: int, flags: int) -> bytes:
    return struct.pack("!HHIIBB", source, target, 0, 0, 0x50, flags) + bytes(6)


def echo(kind: int, token: bytes) -> bytes:
    return bytes((kind, 0, 0, 0, 0, 0, 0, 0)) + token


def capture(*packets: tuple[int, bytes]) -> bytes:
    """A pcap of raw IP; times in microseconds."""
    records = (struct.pack("<IIII", us // 10**6, us % 10**6 * 1_000, len(raw), len(raw)) + raw for us, raw in packets)
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 128, 101) + b"".join(records)


def test_a_trip_is_from_the_first_syn_to_its_answer_by_address_in_the_order_of_starts():
    found = lab.trips(
        capture(
            (100, ip(1, 7, 6, tcp(40_000, 80, 0x02))),
            (150, ip(1, 8, 6, tcp(40_000, 80, 0x02))),
            (200, ip(1, 7, 6, tcp(40_001, 80, 0x02))),
            (500, ip(7, 1, 6, tcp(80, 40_001, 0x12))),
            (650, ip(8, 1, 6, tcp(80, 40_000, 0x12))),
            (900, ip(7, 1, 6, tcp(80, 40_000, 0x12))),
            (950, ip(1, 9, 6, tcp(40_002, 80, 0x02))),
        )
    )

    assert found == {"10.9.0.7": [800.0, 300.0], "10.9.0.8": [500.0]}


def test_an_echos_trip_is_told_by_its_token():
    found = lab.trips(
        capture(
            (0, ip(1, 7, 1, echo(8, b"first..."))),
            (10, ip(1, 7, 1, echo(8, b"second.."))),
            (300, ip(7, 1, 1, echo(0, b"second.."))),
            (400, ip(7, 1, 1, echo(0, b"first..."))),
        )
    )

    assert found == {"10.9.0.7": [400.0, 290.0]}


def test_a_capture_without_nanoseconds_is_refused():
    with pytest.raises(RuntimeError, match="nanoseconds"):
        lab.trips(b"\xd4\xc3\xb2\xa1" + bytes(20))


def test_probes_are_compared_where_each_has_its_packets():
    case = lab.Case(kind="tcp", rate=100, stall_ms=0)
    seen: list[list[int | None]] = [[1_004, None, 1_001], [900, 950], [500]]
    truth = {"a": [1_000.0, 1_000.0, 1_000.0], "b": [900.0]}

    found = lab.compared(case, ("a", "b", "c"), seen, truth)

    assert (found.count, found.missing, found.worst_us) == (2, 4, 4.0)


@pytest.mark.parametrize(
    ("answer", "is_success"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n# x\nprobe_success 1\n", True),
        (b"...\r\n\r\n8\r\n1\nprobe_\r\nb\r\nsuccess 1\n\r\n0\r\n\r\n", True),
        (b"...\r\n\r\n8\r\n1\nprobe_\r\nb\r\nsuccess 0\n\r\n0\r\n\r\n", False),
    ],
    ids=["plain", "split", "failed"],
)
def test_an_exporters_success_is_read_across_chunks(answer, is_success):
    assert exporter._is_success(bytearray(answer)) is is_success


# -- running --------------------------------------------------------------------------------------------------------------


def burned(seconds: float) -> int:
    count, end = 0, time.process_time() + seconds
    while time.process_time() < end:
        count += 1
    return count


def test_a_profile_finds_the_line_that_burns():
    sampler = Sampler()

    with sampler.running():
        burned(0.1)
    found = sampler.profile()

    assert found.samples > 0
    assert {spot.place for spot in found.spots[:2]} == {"test_probing.py burned"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cells", "tcp,udp"), "no cell is called 'udp'; there are tcp, http"),
        (("--rounds", "0"), "'0' is not a whole number above 0"),
        (("--seconds", "nan"), "'nan' is not a number above 0"),
        (("--from", "/nonexistent.json"), "/nonexistent.json holds no results of a run"),
    ],
    ids=["cells", "rounds", "seconds", "from"],
)
def test_a_wrong_word_is_refused_in_one_line(words, said, capsys):
    with pytest.raises(SystemExit) as refused:
        probe.main(words)

    assert refused.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """The one in Python, as on a machine without a compiler."""
    with served(None, min(os.sched_getaffinity(0))) as made:
        yield made


def some(run: Callable[[], Sample]) -> Sample:
    """The first run that got anything done: a busy machine may leave so short a one no time at all."""
    return next(found for found in iter(run, None) if found.count)


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["tcp", "http", "dns"])
def test_the_target_in_python_answers_the_engine_and_the_bare_loop(target, kind):
    ours = some(lambda: asyncio.run(saturated(kind, target, 0.05, is_profiled=False))[0])
    theirs = some(lambda: bare(kind, target, 0.05))

    assert (ours.bad, theirs.bad) == (0, 0)


def test_peers_that_are_not_installed_are_named_with_their_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    lacks = {side: peer.lack for side, peer in peers.found(tmp_path).items() if peer.lack}

    assert lacks == {
        "c": "gcc is not installed (Debian: apt-get install gcc libc6-dev)",
        "blackbox": "blackbox_exporter is not installed (Debian: apt-get install prometheus-blackbox-exporter)",
        "fping": "fping is not installed (Debian: apt-get install fping)",
    }


def test_a_cell_that_fails_says_so_in_its_last_words():
    with pytest.raises(CellError, match=r"FileNotFoundError: .*/nonexistent/stream"):
        cell(
            ("cell", "rate"),
            Asked(side="c", target=Target(), directory="/nonexistent"),
            Sampled,
            core=min(os.sched_getaffinity(0)),
            seconds=1.0,
        )


@pytest.mark.real
def test_a_short_run_measures_every_side_that_is_installed():
    plan = msgspec.structs.replace(QUICK, cells=("tcp",), seconds=0.5)

    found = run(plan, lambda _: None)

    wanted = {side for side in ("engine", "c", "blackbox", "python") if not found.peers[side].lack}
    assert wanted >= {"engine", "python"}
    assert found.rates["tcp"].keys() == wanted
    assert [each for (each,) in found.rates["tcp"].values() if not each.count or each.bad or each.cpu <= 0] == []
    assert {lack for lack in found.lacks if lack.startswith("tcp by")} == {
        f"tcp by {side}" for side in ("c", "blackbox") if side not in wanted
    }
