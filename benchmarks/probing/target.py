"""The other side of every probe, pinned to the other core: the C target, or this file where there is no compiler, and nginx for TLS.

The other side must not be the limit. In Python it nearly is, which costs our figures as much as the others'.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from unittest import SkipTest

import msgspec
import trustme
from benchmarks.probing.asking import LOOPBACK, Target
from benchmarks.probing.process import ROOT, module, on_core

from reachline.testing import parts

__all__ = ["PORTS", "served", "tls_served"]

PORTS: Final = 16
"""28 000 source ports to each: enough for what a round leaves in TIME_WAIT, which loopback takes again after a second."""
_BATCH: Final = 64
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
_RECORD: Final = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x0a\0\0\1"
_TLS: Final = "ssl_protocols TLSv1.3; ssl_session_tickets off; ssl_session_cache off; location / { return 204; }"


@contextlib.contextmanager
def served(program: Path | None, core: int, *, address: str = LOOPBACK, inside: Sequence[str] = ()) -> Iterator[Target]:
    """The target without TLS. `program` is the compiled one, `inside` a command's beginning that puts it into a namespace."""
    own = (str(program), address, str(PORTS)) if program else module("target", address, str(PORTS))
    with on_core(core):
        process = subprocess.Popen([*inside, *own], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        found = msgspec.json.decode(process.stdout.readline() or "{}", type=Target)
        if not found.tcp:
            raise RuntimeError("the benchmark's target did not start")
        yield msgspec.structs.replace(found, address=address)
    finally:
        process.terminate()
        process.communicate()


@contextlib.contextmanager
def tls_served(directory: Path, core: int) -> Iterator[tuple[int, str]]:
    """nginx with TLS 1.3 and a certificate of ECDSA P-256: its port, or 0 and why there is none."""
    directory.mkdir()
    made = trustme.CA().issue_cert("localhost")
    chain, key = directory / "chain.pem", directory / "key.pem"
    made.private_key_and_cert_chain_pem.write_to_path(chain)
    made.private_key_pem.write_to_path(key)
    with contextlib.ExitStack() as stack:
        try:
            with on_core(core):
                running = stack.enter_context(parts.nginx(directory, server=_TLS, certificate=(chain, key)))
        except SkipTest as lack:
            yield 0, str(lack)
            return
        yield running.port, ""


# -- the target in Python -------------------------------------------------------------------------------------------------


def _serve(address: str, count: int) -> None:
    """What `peers/target.c` does, until the process that started it is gone."""
    poll = select.epoll()
    listeners: dict[int, socket.socket] = {}
    peers: dict[int, socket.socket] = {}
    for _ in range(count):
        listener = socket.create_server((address, 0), backlog=4096)
        listener.setblocking(False)
        poll.register(listener, select.EPOLLIN)
        listeners[listener.fileno()] = listener
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    udp.bind((address, 0))
    poll.register(udp, select.EPOLLIN)
    ports = [listener.getsockname()[1] for listener in listeners.values()]
    print(json.dumps({"tcp": ports, "udp": udp.getsockname()[1]}), flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        for fd, _ in poll.poll(1.0, 512):
            if fd in listeners:
                _accept(listeners[fd], peers, poll)
            elif fd == udp.fileno():
                _resolve(udp)
            elif not _talk(peers[fd]):
                peers.pop(fd).close()


def _accept(listener: socket.socket, peers: dict[int, socket.socket], poll: select.epoll) -> None:
    for _ in range(_BATCH):
        try:
            peer, _ = listener.accept()
        except BlockingIOError:
            return
        peer.setblocking(False)
        peers[peer.fileno()] = peer
        poll.register(peer, select.EPOLLIN)


def _talk(peer: socket.socket) -> bool:
    """Whether the connection goes on."""
    try:
        data = peer.recv(4096)
        if data:
            peer.send(_ANSWER)
            peer.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    return bool(data)


def _resolve(udp: socket.socket) -> None:
    for _ in range(_BATCH):
        try:
            data, peer = udp.recvfrom(1500)
        except BlockingIOError:
            return
        question = data[12 : data.index(b"\0", 12) + 5]
        udp.sendto(data[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + question + _RECORD, peer)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
