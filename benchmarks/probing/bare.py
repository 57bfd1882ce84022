"""The same system calls as the engine's, in Python, and nothing else: what the language itself costs. No timeouts, no statistics."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from random import Random
from typing import Final

from benchmarks.probing.asking import Target
from benchmarks.probing.ours import WINDOW, cpu
from benchmarks.probing.results import Sample

from reachline.model import Seconds
from reachline.net.kernel import SO_TIMESTAMPNS
from reachline.wire import dns, icmp

__all__ = ["bare"]

_REQUEST: Final = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_FLAGS: Final = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_INFO: Final = struct.Struct("=68xI28xI")


def bare(kind: str, target: Target, seconds: Seconds) -> Sample:
    """As many probes of a kind as this core does."""
    spent, wall = cpu(), time.perf_counter()
    until = wall + seconds
    match kind:
        case "dns":
            count, bad = _dns(target, until)
        case "icmp":
            count, bad = _icmp(target, until)
        case "tls":
            count, bad = _tls(target, until)
        case _:
            count, bad = _stream(target, until, http=kind == "http")
    return Sample(count=count, bad=bad, cpu=cpu() - spent, wall=time.perf_counter() - wall)


def _stream(target: Target, until: float, *, http: bool) -> tuple[int, int]:
    """connect, TCP_INFO, (request, answer,) close."""
    live: dict[int, tuple[socket.SocketType, bool]] = {}
    poll, clock, started, done, bad = select.epoll(), time.perf_counter, 0, 0, 0
    addresses = [(target.address, port) for port in target.tcp]
    while live or clock() < until:
        while len(live) < WINDOW and clock() < until:
            sock = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM | _FLAGS, 0)
            sock.connect_ex(addresses[started % len(addresses)])
            started += 1
            live[sock.fileno()] = (sock, False)
            poll.register(sock.fileno(), select.EPOLLOUT)
        for fd, _ in poll.poll(1.0, 512):
            sock, asked = live[fd]
            if not asked:
                rtt, _ = _INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
                if http and rtt:
                    sock.send(_REQUEST)
                    live[fd] = (sock, True)
                    poll.modify(fd, select.EPOLLIN)
                    continue
                bad += not rtt
            elif sock.recv(65_536)[9:12] != b"200":
                bad += 1
            del live[fd]
            sock.close()
            done += 1
    return done, bad


def _dns(target: Target, until: float) -> tuple[int, int]:
    """A new connected socket with receive stamps for each query."""
    live: dict[int, tuple[socket.SocketType, int]] = {}
    poll, clock, done, bad = select.epoll(), time.perf_counter, 0, 0
    chance = Random(1)
    while live or clock() < until:
        while len(live) < WINDOW and clock() < until:
            sock = socket.SocketType(socket.AF_INET, socket.SOCK_DGRAM | _FLAGS, 0)
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            sock.connect((target.address, target.udp))
            number = chance.getrandbits(16)
            sock.send(dns.query(number, "example.test")[0])
            live[sock.fileno()] = (sock, number)
            poll.register(sock.fileno(), select.EPOLLIN)
        for fd, _ in poll.poll(1.0, 512):
            sock, number = live.pop(fd)
            data, _, _, _ = sock.recvmsg(4096, 64)
            bad += data[0] << 8 | data[1] != number
            sock.close()
            done += 1
    return done, bad


def _icmp(target: Target, until: float) -> tuple[int, int]:
    """One raw socket with receive stamps."""
    sock = socket.SocketType(socket.AF_INET, socket.SOCK_RAW | _FLAGS, socket.IPPROTO_ICMP)
    sock.setsockopt(255, 1, struct.pack("=I", 0xFFFFFFFE))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    clock, sent, got, to = time.perf_counter, 0, 0, (target.address, 0)
    while clock() < until:
        while sent - got < WINDOW:
            sent += 1
            sock.sendto(icmp.request(4, ident=7, sequence=sent, token=sent), to)
        try:
            while True:
                data, _, _, _ = sock.recvmsg(256, 64)
                reply = icmp.reply(4, data[20:])
                got += reply is not None and reply.ident == 7
        except BlockingIOError:
            continue
    return got, 0


def _tls(target: Target, until: float) -> tuple[int, int]:
    """A handshake over two memory buffers, the certificate read, nothing verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    live: dict[int, tuple[socket.SocketType, ssl.MemoryBIO, ssl.MemoryBIO, ssl.SSLObject]] = {}
    poll, clock, done, bad = select.epoll(), time.perf_counter, 0, 0
    while live or clock() < until:
        while len(live) < WINDOW and clock() < until:
            sock = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM | _FLAGS, 0)
            sock.connect_ex((target.address, target.tls))
            inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
            live[sock.fileno()] = (
                sock,
                inward,
                outward,
                context.wrap_bio(inward, outward, server_hostname="localhost"),
            )
            poll.register(sock.fileno(), select.EPOLLOUT)
        for fd, events in poll.poll(1.0, 512):
            sock, inward, outward, tls = live[fd]
            if events & select.EPOLLIN:
                inward.write(sock.recv(65_536))
            else:
                poll.modify(fd, select.EPOLLIN)
            try:
                tls.do_handshake()
                bad += not tls.getpeercert(binary_form=True)
            except ssl.SSLWantReadError:
                sock.send(outward.read())
                continue
            sock.send(outward.read())
            del live[fd]
            sock.close()
            done += 1
    return done, bad
