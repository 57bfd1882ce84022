"""`reachline watch` as it is used: in scripts, in pipes, on a terminal."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.measured import best_of

from reachline.testing import parts
from reachline.testing.wait import eventually

COMMAND = (sys.executable, "-m", "reachline", "watch")
DEAD = "tcp://127.0.0.1:1"
QUICK = ("--interval", "0.1")


@pytest.fixture
def good() -> Iterator[str]:
    """A TCP target on loopback that accepts and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def accept() -> None:
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    listening.accept()[0].close()

        listening.settimeout(0.2)
        thread = threading.Thread(target=accept)
        thread.start()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        stop.set()
        thread.join()


def watch(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        stdin=subprocess.DEVNULL,
        **options,
    )


def rounds(done: subprocess.CompletedProcess[str]) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_json_is_one_object_a_line_and_round_with_the_kernels_rtt_in_seconds(good: str) -> None:
    done = watch(good, "--count", "5", "-o", "json", *QUICK)

    seen = rounds(done)
    assert done.returncode == 0
    assert [each["rounds"] for each in seen] == [1, 2, 3, 4, 5]
    assert {each["clock"] for each in seen} == {"tcp_info"}
    assert all(0 < each["rtt"] < 0.1 for each in seen)
    assert seen[-1]["state"] == "healthy"
    assert (seen[-1]["sent"], seen[-1]["lost"], seen[-1]["loss"]) == (5, 0, 0.0)
    assert done.stderr == ""


def test_count_sends_exactly_so_many_probes_to_each_target(good: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"

        watch(url, DEAD, "tcp://no-such-name.invalid:1", "--count", "3", *QUICK)

        accepted = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                listening.accept()[0].close()
                accepted += 1
    assert accepted == 3


def test_a_target_that_fails_ends_with_its_state_and_reason_and_code_one(good: str) -> None:
    done = watch(good, DEAD, "--count", "6", "-o", "json", *QUICK)

    last = {each["target"]: each for each in rounds(done)}
    assert done.returncode == 1
    assert last[good]["state"] == "healthy"
    assert last[DEAD]["state"] == "unhealthy"
    assert last[DEAD]["reason"].startswith("connection refused; ")
    assert (last[DEAD]["failure"], last[DEAD]["failed"], last[DEAD]["attempts"]) == ("refused", 6, 6)


def test_a_name_that_does_not_resolve_is_a_state_not_a_usage_error(good: str) -> None:
    done = watch("tcp://no-such-name.invalid:80", good, "--count", "3", "-o", "json", *QUICK)

    last = {each["target"]: each for each in rounds(done)}
    assert done.returncode == 1
    assert last["tcp://no-such-name.invalid:80"]["reason"].startswith("name does not resolve")
    assert last[good]["state"] == "healthy"


def test_without_a_terminal_there_is_one_line_an_interval(good: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, good, DEAD, *QUICK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]

    process.send_signal(signal.SIGINT)

    rest, _ = process.communicate(timeout=60)

    assert all(re.match(r"\d\d:\d\d:\d\d \d \w+", line) for line in lines)
    assert good in lines[-1]
    assert "connection refused" in lines[-1]
    assert rest.endswith("\n")
    assert "\x1b" not in "".join(lines) + rest


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_count_is_the_number_of_rows_a_target(good: str, form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        silent = f"http://127.0.0.1:{mute.getsockname()[1]}/"
        done = watch(good, silent, "--count", "3", "--interval", "0.1", "--timeout", "0.3", "-o", form)

    lines = done.stdout.splitlines()
    assert len(lines) == {"table": 3, "json": 6, "csv": 7}[form]


def test_csv_has_a_head_and_a_row_a_round(good: str) -> None:
    done = watch(good, DEAD, "--count", "2", "-o", "csv", *QUICK)

    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 4
    assert {row["target"] for row in rows} == {good, DEAD}
    assert all(float(row["rtt"]) < 1 for row in rows if row["target"] == good)


def test_a_markdown_report_comes_at_the_end(good: str) -> None:
    done = watch(good, "--count", "3", "-o", "md", *QUICK)

    head, rule, row = done.stdout.splitlines()
    assert head.startswith("| target | state | reason |")
    assert set(rule) <= set("|- ")
    assert row.startswith(f"| {good} | healthy |  | 3 | 0/3 (0 %)")


def test_an_ascii_terminal_is_no_error(good: str) -> None:
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    done = watch(good, "--count", "1", "-o", "md", *QUICK, env=plain)

    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_it_with_the_code_of_what_was_seen(good: str) -> None:
    for target, code in ((good, 0), (DEAD, 1)):
        process = subprocess.Popen([*COMMAND, target, "-o", "json", *QUICK], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(4):
            process.stdout.readline()

        process.send_signal(signal.SIGINT)

        process.communicate(timeout=60)
        assert process.returncode == code


def test_a_reader_that_leaves_ends_it_quietly(good: str) -> None:
    done = subprocess.run(
        f"{' '.join(COMMAND)} {good} -o json --interval 0.1 | head -n 2",
        shell=True, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip

    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr


def test_every_malformed_target_is_one_line_on_stderr_and_code_two(command: Command) -> None:
    bad = ("example.org", "tcp://host", "icmp://host:7", "dns://@10.0.0.1", "gopher://x", DEAD, DEAD, "tcp://[::1")

    done = command("watch", *bad)

    lines = done.err.splitlines()
    assert (done.code, done.out) == (2, "")
    assert len(lines) == 7
    assert all(line.startswith("reachline: ") for line in lines)
    assert "did you mean tcp://host:443?" in done.err
    assert f"{DEAD}: is given twice" in done.err


@pytest.mark.parametrize("options", [("--interval", "0"), ("--count", "0"), ("-o", "xml"), ("--timeout", "x"), ()])
def test_a_wrong_option_is_usage(options: tuple[str, ...], command: Command) -> None:
    done = command("watch", *options, *((DEAD,) if options else ()))

    assert (done.code, done.out) == (2, "")
    assert "Usage: reachline watch" in done.err


@pytest.mark.real
def test_no_permission_for_icmp_names_the_fix() -> None:
    parts.require_namespaces()
    # Without CAP_NET_RAW, in a namespace of its own, where the kernel's ping sockets are for nobody.
    without = (
        parts.require("unshare"),
        "-n",
        parts.require("setpriv"),
        "--bounding-set",
        "-net_raw",
        "--inh-caps",
        "-net_raw",
    )

    done = subprocess.run(
        [*without, *COMMAND, "icmp://127.0.0.1"], capture_output=True, text=True, check=False, timeout=30
    )

    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("reachline: icmp://127.0.0.1: no permission for ICMP")
    assert "ping_group_range" in line


@pytest.mark.real
def test_http_tls_dns_and_icmp_targets_are_watched_too(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("ICMP needs root here")
    with (
        parts.nginx(tmp_path, server="location /well { return 200; } location / { return 503; }") as web,
        parts.dnsmasq(tmp_path, records={"a.test": "127.0.0.9"}) as names,
    ):
        base, server = f"http://127.0.0.1:{web.port}", f"127.0.0.1:{names.port}"
        targets = (
            f"{base}/well",
            f"{base}/ill",
            f"dns://a.test@{server}",
            f"dns://b.test@{server}",
            "icmp://127.0.0.1",
        )

        done = watch(*targets, "--count", "6", "-o", "json", *QUICK)

    last = {each["target"]: each for each in rounds(done)}
    states = [last[target]["state"] for target in targets]
    assert states == ["healthy", "unhealthy", "healthy", "unhealthy", "healthy"]
    assert "status 503" in last[targets[1]]["reason"]
    assert "NXDOMAIN" in last[targets[3]]["reason"] or "REFUSED" in last[targets[3]]["reason"]
    assert last["icmp://127.0.0.1"]["clock"] == "rx_stamp"


@pytest.mark.real
@pytest.mark.alone
@pytest.mark.parametrize("stall", [0.0, 0.04])
def test_rtts_are_those_of_a_capture_on_the_wire(tmp_path: Path, stall: float) -> None:
    """Within 0.1 ms; within 0.3 ms while the process is blocked for 40 ms of every second.

    Nine in ten are: between the capture's stamp and the kernel's the machine may do something else.
    """
    with parts.veth(delay="") as wire, _listening(wire) as port:

        def measure() -> None:
            with parts.captured(wire.near_name, f"tcp port {port}", file=tmp_path / "wire.pcap") as file:
                url = f"tcp://{wire.far}:{port}"
                done = _blocked(stall, url, "--count", str(ROUNDS), "-o", "json", *QUICK)
            measured = [each["rtt"] for each in rounds(done)]
            real = _handshakes(file)

            assert len(measured) == len(real) == ROUNDS
            assert {each["clock"] for each in rounds(done)} == {"tcp_info"}
            off = sorted(abs(mine - theirs) for mine, theirs in zip(measured, real, strict=True))
            assert off[ROUNDS * 9 // 10 - 1] <= (0.0003 if stall else 0.0001), off

        best_of(3, measure)


ROUNDS = 40
"""Of each measurement: enough for nine in ten to mean something, over two blocked moments."""


@contextlib.contextmanager
def _listening(wire: parts.Veth) -> Iterator[int]:
    program = (
        "import socket\ns = socket.create_server(('', 0))\nprint(s.getsockname()[1], flush=True)\n"
        "while True: s.accept()[0].close()"
    )
    process = subprocess.Popen([*wire.inside(sys.executable, "-c", program)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def _blocked(stall: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`watch` in a process whose loop is held for `stall` seconds of each second."""
    program = f"""
import asyncio, sys, time
plain = asyncio.new_event_loop
def held():
    loop = plain()
    def hold():
        time.sleep({stall})
        loop.call_later(1.0 - {stall}, hold)
    if {stall}:
        loop.call_later(0.3, hold)
    return loop
asyncio.new_event_loop = asyncio.events.new_event_loop = held
import asyncio.runners
asyncio.runners.events.new_event_loop = held
from reachline.cli.main import main
sys.exit(main(["watch", *{list(arguments)!r}]))
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


def _handshakes(file: Path) -> list[float]:
    """Seconds from SYN to SYN-ACK, in the order of the SYNs."""
    done = subprocess.run(
        [parts.require("tcpdump"), "-r", str(file), "-n", "-tt", "--nano", "tcp[tcpflags] & tcp-syn != 0"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    begun: dict[str, float] = {}
    made: dict[str, float] = {}
    for line in done.stdout.splitlines():
        match = re.match(r"(\S+) IP (\S+) > (\S+): Flags \[(S\.?)\]", line)
        assert match, line
        at, source, target, flags = match.groups()
        if flags == "S":
            begun.setdefault(source, float(at))
        else:
            made.setdefault(target, float(at))
    return [made[port] - at for port, at in begun.items()]


@pytest.mark.real
def test_on_a_terminal_there_is_a_table_that_q_leaves_with_a_report(good: str, tmp_path: Path) -> None:
    tmux = parts.require("tmux")
    server = ("-L", f"rl-{os.getpid()}", "-f", "/dev/null")
    line = f"{' '.join(COMMAND)} {good} {DEAD} --interval 0.2; echo code $?; exec sleep 60"
    # A test worker's COLUMNS and LINES describe no terminal, least of all this one.
    inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    environ = {**inherited, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}

    def pane() -> str:
        return subprocess.run([tmux, *server, "capture-pane", "-p"], capture_output=True, text=True, check=False).stdout

    subprocess.run([tmux, *server, "new-session", "-d", "-x", "150", "-y", "20", line], check=True, env=environ)
    try:
        eventually(lambda: "connection refused" in pane(), within=30, what="the table")
        eventually(lambda: "2 targets: 1 healthy, 1 unhealthy" in pane(), within=30, what="the head to follow it")
        subprocess.run([tmux, *server, "send-keys", "q"], check=True)
        eventually(lambda: "code 1" in pane() and f"| {good} | healthy |" in pane(), within=30, what="the end")
    finally:
        subprocess.run([tmux, *server, "kill-server"], check=False)
