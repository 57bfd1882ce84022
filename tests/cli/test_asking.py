"""How a center is asked: whoever answers there, the command ends in time."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from reachline.cli.asking import Unreached, ask


@pytest.fixture
def dripping() -> Iterator[str]:
    """The URL of somebody who says a byte now and then, and never ends."""
    over = threading.Event()

    def drip() -> None:
        peer, _ = server.accept()
        with peer, contextlib.suppress(OSError):
            while not over.wait(0.05):
                peer.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as server:
        speaking = threading.Thread(target=drip)
        speaking.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        over.set()
        speaking.join()


def test_who_drips_is_given_up_as_one_who_is_silent(dripping: str) -> None:
    with pytest.raises(Unreached, match=r"no center answers \(timed out\)"):
        ask(dripping, "/healthz", patience=0.5)
