"""What the probe engine costs beside a bare epoll loop that does the same system calls and nothing else.

Each cell is one process pinned to one core with its target on another, interleaved over rounds; figures are probes per
CPU-second of the prober alone, and what counts is the ratio of the medians. `--paced` also runs the engine at a fixed rate.
The C loop and blackbox_exporter stand beside it elsewhere.
"""

from __future__ import annotations

import _socket
import argparse
import array
import asyncio
import json
import os
import random
import resource
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from reachline.model import Clock, Endpoint, Failure, Kind
from reachline.net.engine import Engine, Job, Phases
from reachline.talk import build
from reachline.wire import dns, icmp

PORTS = 16
WINDOW = 64
COUNTS = {"tcp": 30_000, "http": 20_000, "dns": 30_000, "icmp": 40_000}
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
RESULTS = Path(__file__).parent / "results"
FLAGS = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# -- the target ---------------------------------------------------------------------------------------------------------


def serve() -> None:
    """Accept and answer on PORTS ports; a query in a datagram comes back as its answer."""
    poll = select.epoll()
    listeners: dict[int, socket.socket] = {}
    peers: dict[int, socket.socket] = {}
    ports = []
    for _ in range(PORTS):
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        listener.setblocking(False)
        poll.register(listener, select.EPOLLIN)
        listeners[listener.fileno()] = listener
        ports.append(listener.getsockname()[1])
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | FLAGS)
    udp.bind(("127.0.0.1", 0))
    poll.register(udp, select.EPOLLIN)
    print(json.dumps({"tcp": ports, "udp": udp.getsockname()[1]}), flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        for fd, _ in poll.poll(1.0, 512):
            if fd in listeners:
                accept(listeners[fd], peers, poll)
            elif fd == udp.fileno():
                answer(udp)
            else:
                peer = peers[fd]
                if not talk(peer):
                    del peers[fd]
                    peer.close()


def accept(listener: socket.socket, peers: dict[int, socket.socket], poll: select.epoll) -> None:
    for _ in range(WINDOW):
        try:
            peer, _ = listener.accept()
        except BlockingIOError:
            return
        peer.setblocking(False)
        fd = peer.fileno()
        peers[fd] = peer
        poll.register(fd, select.EPOLLIN)


def talk(peer: socket.socket) -> bool:
    try:
        data = peer.recv(4096)
        if data:
            peer.send(ANSWER)
    except OSError:
        return False
    return bool(data)


def answer(udp: socket.socket) -> None:
    for _ in range(WINDOW):
        try:
            data, peer = udp.recvfrom(4096)
        except BlockingIOError:
            return
        udp.sendto(data[:2] + b"\x81\x80" + data[4:], peer)


# -- the bare loops -----------------------------------------------------------------------------------------------------


def bare_stream(count: int, ports: list[int], *, http: bool) -> int:
    """connect, TCP_INFO, (request, answer,) close: the calls alone."""
    live: dict[int, tuple[_socket.socket, bool]] = {}
    poll, started, done, failed = select.epoll(), 0, 0, 0
    make, kind, info = _socket.socket, socket.SOCK_STREAM | FLAGS, struct.Struct("=68xI28xI")
    addresses = [("127.0.0.1", port) for port in ports]
    while done < count:
        while len(live) < WINDOW and started < count:
            sock = make(socket.AF_INET, kind, 0)
            sock.connect_ex(addresses[started % PORTS])
            started += 1
            live[sock.fileno()] = (sock, False)
            poll.register(sock.fileno(), select.EPOLLOUT)
        for fd, _ in poll.poll(1.0, 512):
            sock, asked = live[fd]
            if not asked:
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    failed += 1
                info.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104))
                if http:
                    sock.send(REQUEST)
                    live[fd] = (sock, True)
                    poll.modify(fd, select.EPOLLIN)
                    continue
            elif sock.recv(65_536)[9:12] != b"200":
                failed += 1
            del live[fd]
            sock.close()
            done += 1
    return failed


def bare_dns(count: int, port: int) -> int:
    """A new connected socket with receive stamps for each query."""
    live: dict[int, tuple[_socket.socket, int]] = {}
    poll, started, done, failed = select.epoll(), 0, 0, 0
    chance = random.Random(1)
    while done < count:
        while len(live) < WINDOW and started < count:
            sock = _socket.socket(socket.AF_INET, socket.SOCK_DGRAM | FLAGS, 0)
            sock.setsockopt(socket.SOL_SOCKET, 35, 1)
            sock.connect(("127.0.0.1", port))
            number = chance.getrandbits(16)
            sock.send(dns.query(number, "example.test")[0])
            live[sock.fileno()] = (sock, number)
            poll.register(sock.fileno(), select.EPOLLIN)
            started += 1
        for fd, _ in poll.poll(1.0, 512):
            sock, number = live.pop(fd)
            data, _, _, _ = sock.recvmsg(4096, 64)
            failed += data[0] << 8 | data[1] != number
            sock.close()
            done += 1
    return failed


def bare_icmp(count: int) -> int:
    """One raw socket with receive stamps."""
    sock = _socket.socket(socket.AF_INET, socket.SOCK_RAW | FLAGS, socket.IPPROTO_ICMP)
    sock.setsockopt(255, 1, struct.pack("=I", 0xFFFFFFFE))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    sock.setsockopt(socket.SOL_SOCKET, 35, 1)
    sent = got = failed = 0
    while got < count:
        while sent - got < WINDOW and sent < count:
            sent += 1
            sock.sendto(icmp.request(4, ident=7, sequence=sent, token=sent), ("127.0.0.1", 0))
        try:
            while True:
                data, _, _, _ = sock.recvmsg(256, 64)
                reply = icmp.reply(4, data[20:])
                if reply is not None and reply.ident == 7:
                    got += 1
        except BlockingIOError:
            pass
    return failed


# -- the engine ---------------------------------------------------------------------------------------------------------


class Statistics:
    """EWMA, a window of 200 and counts per token: what an agent keeps of each result."""

    def __init__(self, tokens: int) -> None:
        self.ewma = [0.0] * tokens
        self.rings = [array.array("f", bytes(800)) for _ in range(tokens)]
        self.ok = [0] * tokens
        self.bad = 0
        self.lateness = array.array("i")

    def take(  # noqa: PLR0917
        self, token: int, failure: Failure | None, rtt: int | None, clock: Clock, late: bool, sent: int, lost: int,
        status: int, note: str, lateness: int, phases: Phases | None,
    ) -> None:  # fmt: skip
        if failure is not None or rtt is None:
            self.bad += 1
            return
        count = self.ok[token] = self.ok[token] + 1
        self.ewma[token] += 0.3 * (rtt - self.ewma[token])
        self.rings[token][count % 200] = rtt


def jobs(kind: str, target: dict[str, object]) -> list[Job]:
    ports = target["tcp"] if kind in {"tcp", "http"} else [target["udp"]] * PORTS
    assert isinstance(ports, list)
    host = {"dns": "dns", "icmp": "icmp"}.get(kind, kind)
    made = []
    for token, port in enumerate(ports):
        endpoint = Endpoint(scheme=host, host="127.0.0.1", port=0 if kind == "icmp" else port, family=4)
        options: dict[str, str | int | bool] = {"name": "example.test"} if kind == "dns" else {}
        made.append(Job(token=token, endpoint=endpoint, probe=build(Kind(kind), endpoint, options)))
    return made


async def saturated(kind: str, count: int, target: dict[str, object]) -> int:
    """WINDOW attempts at once, the next begun as one ends."""
    todo = jobs(kind, target)
    kept, ended = Statistics(len(todo)), asyncio.Event()
    started = finished = 0

    def done(*result: object) -> None:
        nonlocal started, finished
        take(*result)
        finished += 1
        if started < count:
            engine.start(todo[started % PORTS], at=0.0)
            started += 1
        elif finished == count:
            ended.set()

    take: Callable[..., None] = kept.take
    engine = Engine(done)
    loop = asyncio.get_running_loop()
    loop.add_reader(engine.fileno(), engine.turn)
    for job in (todo * WINDOW)[:WINDOW]:
        engine.start(job, at=0.0)
    started = WINDOW
    await ended.wait()
    loop.remove_reader(engine.fileno())
    engine.close()
    return kept.bad


async def paced(kind: str, rate: int, seconds: float, target: dict[str, object]) -> dict[str, float]:
    """`rate` starts a second at absolute times: CPU share and lateness."""
    todo = jobs(kind, target)
    kept, ended = Statistics(len(todo)), asyncio.Event()
    count = int(rate * seconds)
    started = finished = 0
    late = array.array("i")

    def done(*result: object) -> None:
        nonlocal started, finished
        kept_take(*result)
        lateness = result[9]
        assert isinstance(lateness, int)
        late.append(lateness)
        finished += 1
        if started < count:
            engine.start(todo[started % PORTS], at=begin + started / rate)
            started += 1
        elif finished == count:
            ended.set()

    kept_take: Callable[..., None] = kept.take
    engine = Engine(done)
    loop = asyncio.get_running_loop()
    loop.add_reader(engine.fileno(), engine.turn)
    begin, spent, wall = engine.now() + 0.05, cpu(), time.perf_counter()
    ahead = min(rate // 2, count)
    for number in range(ahead):
        engine.start(todo[number % PORTS], at=begin + number / rate)
    started = ahead
    await ended.wait()
    spent, wall = cpu() - spent, time.perf_counter() - wall
    loop.remove_reader(engine.fileno())
    engine.close()
    order = sorted(late)
    return {
        "core": spent / wall,
        "bad": kept.bad,
        "lateness_p50_ms": order[len(order) // 2] / 1e3,
        "lateness_p99_ms": order[int(len(order) * 0.99)] / 1e3,
    }


def bare(kind: str, count: int, target: dict[str, object]) -> int:
    ports, udp = target["tcp"], target["udp"]
    assert isinstance(ports, list)
    assert isinstance(udp, int)
    match kind:
        case "dns":
            return bare_dns(count, udp)
        case "icmp":
            return bare_icmp(count)
        case _:
            return bare_stream(count, ports, http=kind == "http")


# -- the table ----------------------------------------------------------------------------------------------------------


def run_cell(name: str, target: dict[str, object]) -> dict[str, float]:
    side, kind, *rest = name.split("-")
    if side == "paced":
        return asyncio.run(paced(kind, int(rest[0]), 4.0, target))
    count = COUNTS[kind]
    spent, wall = cpu(), time.perf_counter()
    bad = bare(kind, count, target) if side == "bare" else asyncio.run(saturated(kind, count, target))
    spent, wall = cpu() - spent, time.perf_counter() - wall
    return {"per_cpu_second": count / spent, "per_second": count / wall, "bad": bad}


def cell(name: str, target: dict[str, object], core: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--cell", name, "--target", json.dumps(target), "--core", str(core)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    found: dict[str, float] = json.loads(out)
    return found


def table(kinds: list[str], rounds: int, *, with_paced: bool) -> dict[str, object]:
    cores = sorted(os.sched_getaffinity(0))
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", "--core", str(cores[-1])], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        target = json.loads(server.stdout.readline())
        seen: dict[str, list[dict[str, float]]] = {}
        for _ in range(rounds):
            for kind in kinds:
                for side in ("bare", "engine"):
                    seen.setdefault(f"{side}-{kind}", []).append(cell(f"{side}-{kind}", target, cores[0]))
        rows = {kind: row(kind, seen) for kind in kinds}
        if with_paced:
            rows["tcp at 5000/s"] = cell("paced-tcp-5000", target, cores[0])
            rows["tcp at 10000/s"] = cell("paced-tcp-10000", target, cores[0])
    finally:
        server.terminate()
        server.wait(timeout=5)
        server.stdout.close()
    return {"python": sys.version.split()[0], "cores": len(cores), "rounds": rounds, "rows": rows}


def row(kind: str, seen: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    bare_rate, engine_rate = (
        statistics.median(found["per_cpu_second"] for found in seen[f"{side}-{kind}"]) for side in ("bare", "engine")
    )
    bad = sum(found["bad"] for found in seen[f"engine-{kind}"])
    return {
        "bare": round(bare_rate),
        "engine": round(engine_rate),
        "ratio": round(engine_rate / bare_rate, 3),
        "bad": bad,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="tcp,http,dns,icmp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paced", action="store_true", help="also at a fixed rate: CPU share and lateness of starts")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    if given.serve:
        serve()
        return
    if given.cell:
        print(json.dumps(run_cell(given.cell, json.loads(given.target))))
        return
    kinds = given.kinds.split(",")
    if "icmp" in kinds and os.geteuid() != 0:
        kinds.remove("icmp")
        print("icmp: skipped, raw sockets need root")
    found = table(kinds, given.rounds, with_paced=given.paced)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "probe.json").write_text(json.dumps(found, indent=2) + "\n")
    show(found["rows"])


def show(rows: object) -> None:
    assert isinstance(rows, dict)
    print(f"{'probe':<16} {'bare/CPU-s':>11} {'engine/CPU-s':>13} {'ratio':>6} {'bad':>5}")
    for name, values in rows.items():
        if "ratio" in values:
            print(f"{name:<16} {values['bare']:>11} {values['engine']:>13} {values['ratio']:>6} {values['bad']:>5}")
        else:
            shown = ", ".join(f"{key} {value:.3g}" for key, value in values.items())
            print(f"{name:<16} {shown}")


if __name__ == "__main__":
    main()
