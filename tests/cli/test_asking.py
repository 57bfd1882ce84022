"""How a center is asked: whoever answers there, the command ends in time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
import trustme

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


class Well(SimpleHTTPRequestHandler):
    """Answers a document to everybody."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "ok"}')

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


def test_whom_to_trust_is_told_by_the_environment_and_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    with HTTPServer(("127.0.0.1", 0), Well) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        url = f"https://127.0.0.1:{server.server_port}"

        with pytest.raises(Unreached, match="whom to trust: SSL_CERT_FILE"):
            ask(url, "/healthz", patience=30)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert ask(url, "/healthz", patience=30) == {"status": "ok"}

        server.shutdown()
        serving.join()
