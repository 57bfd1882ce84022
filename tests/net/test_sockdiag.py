"""The kernel's table as it is: connections of another process are found, our own are not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reachline.model import Seconds
from reachline.net.owners import Owned, owned
from reachline.net.sockdiag import Looked, SockDiag
from reachline.wire.sockdiag import Wanted

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of its connections")

OTHER = """
import socket, sys
sock = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
if sys.argv[3] != "0":
    sock.setsockopt(socket.SOL_SOCKET, 36, int(sys.argv[3]))
sock.connect((sys.argv[1], int(sys.argv[2])))
sock.send(b"x" * 10)
if sys.argv[4] == "True":
    sock.setblocking(False)
    try:
        while True:
            sock.send(b"x" * 65536)
    except BlockingIOError:
        pass
print("connected", flush=True)
sys.stdin.read()
"""
READY: Seconds = 20.0


@contextlib.contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[int]:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def other(host: str, port: int, *, mark: int = 0, fills: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A process of its own with one connection; what `fills` it is never read, so that closed it stays in the table."""
    command = (sys.executable, "-c", OTHER, host, str(port), str(mark), str(fills))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "connected\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def fill(sock: socket.socket) -> None:
    """More than its peer, which reads nothing, has room for."""
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(b"x" * 65_536)


def look(*wanted: Wanted) -> Looked:
    """One look with a socket of its own."""

    async def once() -> Looked:
        diag = SockDiag()
        try:
            return await diag.look(wanted)
        finally:
            diag.close()

    return asyncio.run(once())


@pytest.mark.parametrize("target", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_a_connection_of_another_process_is_found_by_where_it_goes_and_our_own_is_not(target: str) -> None:
    host = "127.0.0.1" if "." in target else target
    with listening(host) as port, socket.create_connection((host, port)) as ours, other(target, port):
        looked = look(Wanted(address=host, port=port))

        (found,) = looked.socks
        assert looked.error == ""
        assert (found.remote, found.remote_port) == (host, port)
        assert found.local_port != ours.getsockname()[1]
        assert found.rtt_us > 0
        assert found.segments == 1
        assert found.acked >= 10


def test_only_what_is_asked_for_is_found() -> None:
    with listening() as port, listening() as elsewhere, other("127.0.0.1", port):
        nothing = look(
            Wanted(address="127.0.0.1", port=elsewhere),
            Wanted(address="127.0.0.2", port=port),
            Wanted(address="127.0.0.1", port=port, source="127.0.0.9"),
        )
        one = look(Wanted(address="127.0.0.2", port=port), Wanted(address="127.0.0.1", port=port, source="127.0.0.1"))

        assert (nothing.socks, nothing.error) == ((), "")
        assert len(one.socks) == 1


def test_a_mark_is_matched_where_we_may_see_it_and_else_the_reason_is_told() -> None:
    with listening() as port, other("127.0.0.1", port, mark=77 if os.geteuid() == 0 else 0):
        looked = look(Wanted(port=port, mark=77))

        if os.geteuid() == 0:
            assert [found.mark for found in looked.socks] == [77]
            assert look(Wanted(port=port, mark=78)).socks == ()
        else:
            assert looked.error == "to look at marks takes CAP_NET_ADMIN"


def cookies(looked: Looked, *, sure: bool) -> set[int]:
    return {sock.cookie for sock in looked.socks if (sock.cookie in looked.sure) is sure}


def test_a_connection_that_is_new_is_sure_to_be_anothers_at_the_second_look() -> None:
    async def scenario(port: int) -> list[Looked]:
        diag, wanted = SockDiag(), [Wanted(address="127.0.0.1", port=port)]
        looks = [await diag.look(wanted)]
        with other("127.0.0.1", port):
            looks += [await diag.look(wanted), await diag.look(wanted)]
        diag.close()
        return looks

    with listening() as port:
        _, second, third = asyncio.run(scenario(port))

    assert (len(cookies(second, sure=False)), cookies(second, sure=True)) == (1, set())
    assert cookies(third, sure=True) == cookies(second, sure=False)


def test_our_own_is_never_sure_however_it_comes_and_goes_between_looks() -> None:
    async def scenario(port: int) -> list[Looked]:
        diag, wanted, looks = SockDiag(), [Wanted(address="127.0.0.1", port=port)], []
        ours: list[socket.socket] = []
        for _ in range(4):
            ours += [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
            looks.append(await diag.look(wanted))
            for sock in ours[::2]:
                sock.close()
            del ours[::2]
        for sock in ours:
            sock.close()
        diag.close()
        return looks

    with listening() as port:
        looks = asyncio.run(scenario(port))

    assert [looked.socks for looked in looks] == [()] * 4


def test_anothers_connection_still_counts_when_it_is_closed_and_ours_does_not() -> None:
    async def scenario(port: int) -> tuple[Looked, Looked]:
        diag, wanted = SockDiag(), [Wanted(address="127.0.0.1", port=port)]
        ours = socket.create_connection(("127.0.0.1", port))
        fill(ours)
        with other("127.0.0.1", port, fills=True) as process:
            first = await diag.look(wanted)
            ours.close()
            process.kill()
            process.wait()
            second = await diag.look(wanted)
        diag.close()
        return first, second

    with listening() as port:
        first, second = asyncio.run(scenario(port))

    assert len(cookies(first, sure=True)) == 1
    assert cookies(second, sure=True) == cookies(first, sure=True)


def test_a_look_that_was_given_up_leaves_nothing_behind_that_the_next_would_take_for_its_own() -> None:
    async def scenario(port: int) -> Looked:
        diag = SockDiag()
        given_up = asyncio.create_task(diag.look([Wanted(address="127.0.0.1", port=port)]))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait({given_up})
        again = await diag.look([Wanted(address="127.0.0.1", port=port)])
        diag.close()
        return again

    with listening() as port, other("127.0.0.1", port):
        again = asyncio.run(scenario(port))

    assert (len(again.socks), again.error) == (1, "")


def test_a_processs_sockets_are_found_by_its_name_and_by_its_number() -> None:
    with listening() as port, other("127.0.0.1", port) as process:
        name = Path(f"/proc/{process.pid}/comm").read_text().strip()
        (found,) = look(Wanted(address="127.0.0.1", port=port)).socks

        assert found.inode in asyncio.run(owned(name)).inodes
        assert found.inode in asyncio.run(owned(str(process.pid))).inodes
        assert asyncio.run(owned("no-such-program")) == Owned()


def test_a_process_with_very_many_sockets_does_not_hold_the_loop(tmp_path: Path) -> None:
    (tmp_path / "7/fd").mkdir(parents=True)
    for number in range(2_000):
        (tmp_path / f"7/fd/{number}").symlink_to(f"socket:[{number}]" if number % 2 else "/dev/null")

    async def scenario() -> tuple[Owned, int]:
        finding, turns = asyncio.create_task(owned("7", tmp_path)), 0
        while not finding.done():
            turns += 1
            await asyncio.sleep(0)
        return finding.result(), turns

    found, turns = asyncio.run(scenario())

    assert found == Owned(frozenset(range(1, 2_000, 2)))
    assert turns > 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_that_another_user_may_not_look_at_is_named() -> None:
    asks = (
        "import asyncio, os, sys; from reachline.net.owners import owned; os.setgroups([]); os.setuid(65534);"
        "print(asyncio.run(owned(sys.argv[1])).error)"
    )
    command = (sys.executable, "-c", asks, str(os.getpid()))

    told = subprocess.run(command, capture_output=True, text=True, check=True)

    assert told.stdout.startswith(f"the sockets of process {os.getpid()} ")
