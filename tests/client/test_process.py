"""What a process does around the SDK: fork, end, import. Each in a process of its own, for none can be undone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.measured import best_of

from reachline.testing.door import Peer, pair, serving
from reachline.testing.wait import eventually


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serving(pair(60, 40)) as made:
        yield made


def run(root: Path, script: str, *arguments: str, flags: tuple[str, ...] = ("-W", "error")) -> str:
    """What the script printed; it must end by itself, well, and say nothing on stderr."""
    # Python 3.12 and later warn where a process with threads forks, which is the very thing under test.
    quiet = ("-W", "ignore:.*fork.*:DeprecationWarning")
    path = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, *flags, *quiet, "-c", textwrap.dedent(script), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


FORK = """
    import collections, os, sys
    import reachline

    client = reachline.connect_sync(sys.argv[1], clusters=["payments"])
    cluster = client.cluster("payments")

    def calls(count):
        found = collections.Counter()
        for _ in range(count):
            with cluster.attempt() as call:
                found[call.line] += 1
        return found

    calls(100)
    children = []
    for number in range(4):
        held = cluster.attempt()
        held.__enter__()
        child = os.fork()
        if not child:
            held.__exit__(None, None, None)
            stats = client.stats()
            assert not stats.is_running and stats.clusters["payments"].calls.ok == 0, stats
            assert stats.clusters["payments"].version == "1.1", stats
            calls(10 + number)
            assert client.stats().is_running
            sys.exit(0)
        held.__exit__(None, None, None)
        children.append(child)
        calls(100)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    calls(100)
    assert client.stats().is_running
    client.close()
    print("well")
"""


def test_children_of_a_fork_pick_at_once_and_no_call_is_sent_twice(peer: Peer, root: Path) -> None:
    assert run(root, FORK, peer.url) == "well\n"

    # 100 before, between and after four forks, one held over each of them, and 10 to 13 in the children.
    assert sum(peer.door.outcomes().values()) == 600 + 4 + 10 + 11 + 12 + 13
    senders = {post["client"] for post in peer.door.posts}
    assert len(senders) == 5


CHOICES = """
    import os, random, sys
    import reachline

    client = reachline.connect_sync(sys.argv[1], clusters=["payments"], seed=int(sys.argv[2]) or None)
    cluster = client.cluster("payments")
    print("".join(cluster.pick().line[-1] for _ in range(64)), flush=True)
    for _ in range(2):
        if not os.fork():
            print("".join(cluster.pick().line[-1] for _ in range(64)), flush=True)
            sys.exit(0)
        os.wait()
    print("".join(cluster.pick().line[-1] for _ in range(64)))
"""


@pytest.mark.parametrize("seed", ["0", "7"])
def test_children_do_not_choose_as_their_parent_does(peer: Peer, root: Path, seed: str) -> None:
    rows = run(root, CHOICES, peer.url, seed).split()

    assert len(set(rows)) == 4


SOCKETS = """
    import os, socket, sys
    import reachline

    def to_the_center():
        found = 0
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                with socket.socket(fileno=os.dup(number)) as each:
                    found += each.family == socket.AF_INET
            except OSError:
                continue
        return found

    client = reachline.connect_sync(sys.argv[1], clusters=["payments"])
    with client.cluster("payments").attempt():
        pass
    assert to_the_center() >= 1
    child = os.fork()
    if not child:
        assert to_the_center() == 0
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client.close()
    print("well")
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list a process's descriptors")
def test_a_child_does_not_hold_its_parents_connections_open(peer: Peer, root: Path) -> None:
    assert run(root, SOCKETS, peer.url) == "well\n"


HELD = """
    import os, sys, threading
    import reachline

    client = reachline.connect_sync(sys.argv[1], clusters=["payments"])
    cluster = client.cluster("payments")
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            with cluster.attempt() as call:
                call.fail("reset") if call.line and call.line.endswith("a") else call.ok()

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(40):
        child = os.fork()
        if not child:
            for _ in range(50):
                with cluster.attempt() as call:
                    assert call.line
            os._exit(0)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    stop.set()
    for thread in threads:
        thread.join()
    print(set(codes))
    client.close()
"""


def test_forks_amid_busy_threads_never_hang(peer: Peer, root: Path) -> None:
    assert run(root, HELD, peer.url) == "{0}\n"


def test_the_end_of_the_interpreter_posts_the_last_calls_without_being_asked(peer: Peer, root: Path) -> None:
    script = """
        import sys
        import reachline

        cluster = reachline.connect_sync(sys.argv[1], clusters=["payments"]).cluster("payments")
        for _ in range(250):
            with cluster.attempt():
                pass
        sys.exit(0)
    """

    assert run(root, script, peer.url) == ""

    assert sum(peer.door.outcomes().values()) == 250


def test_a_dead_center_does_not_hold_the_end_of_the_interpreter(peer: Peer, root: Path) -> None:
    script = """
        import sys, time
        import reachline

        cluster = reachline.connect_sync("http://10.255.255.1:7680", clusters=["payments"], wait=0.1).cluster("payments")
        with cluster.attempt() as call:
            assert call.line is None
        print(time.time(), flush=True)
    """

    def measure() -> None:
        printed = float(run(root, script))
        assert time.time() - printed < 5

    best_of(3, measure)


def test_a_process_that_is_killed_leaves_the_center_unharmed(peer: Peer, root: Path) -> None:
    script = """
        import os, signal, sys
        import reachline

        cluster = reachline.connect_sync(sys.argv[1], clusters=["payments"]).cluster("payments")
        with cluster.attempt():
            os.kill(os.getpid(), signal.SIGKILL)
    """
    code = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), peer.url],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        timeout=60,
        check=False,
    ).returncode

    assert code == -9
    eventually(lambda: peer.door.answer("payments", None, 0))


def test_the_package_imports_nothing_of_its_own(root: Path) -> None:
    script = """
        import sys
        import reachline
        print([name for name in sys.modules if name.startswith("reachline.")])
    """

    assert run(root, script) == "[]\n"


def test_the_whole_sdk_is_the_standard_library(root: Path) -> None:
    script = """
        import sys
        sys.path[:] = [each for each in sys.path if "site-packages" not in each]
        import reachline
        reachline.connect_sync, reachline.connect
        own = set(sys.stdlib_module_names) | {"reachline", "__main__"}
        print(sorted({name.partition(".")[0] for name in sys.modules} - own))
        print("asyncio" in sys.modules, "concurrent.futures.process" in sys.modules)
    """

    assert run(root, script, flags=("-S", "-W", "error")) == "[]\nTrue False\n"


def test_trio_callers_wait_without_blocking_their_loop(peer: Peer, root: Path) -> None:
    pytest.importorskip("trio")
    script = """
        import sys
        import trio
        import reachline

        async def main():
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    ticks += 1
                    await trio.sleep(0.01)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(tick)
                dead = await reachline.connect("http://127.0.0.1:1", clusters=["payments"], wait=1.0)
                await dead.aclose()
                async with await reachline.connect(sys.argv[1], clusters=["payments"], patience=0.01) as client:
                    cluster = client.cluster("payments")
                    async with cluster.attempt() as call:
                        await trio.sleep(0)
                    with trio.move_on_after(0.05):
                        async with cluster.attempt():
                            await trio.sleep_forever()
                    try:
                        async with cluster.attempt():
                            await trio.open_tcp_stream("127.0.0.1", 1)
                    except OSError:
                        pass
                    totals = client.stats().clusters["payments"].calls
                nursery.cancel_scope.cancel()
            print(ticks >= 15, totals.ok, totals.late, totals.failed)

        trio.run(main)
    """

    assert run(root, script, peer.url) == "True 1 1 1\n"
    assert sum(peer.door.outcomes().values()) == 3
