"""`reachline center` and `up`: what they say when they cannot listen."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.cli.conftest import Command


@pytest.mark.parametrize("role", ["center", "up"])
@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_port_in_use_is_one_line_with_its_place_in_the_document(
    role: str, door: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        doors = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"} | {door: address}
        (tmp_path / "reach.yaml").write_text(
            "clusters: {shop: {lines: ['tcp://127.0.0.1:1']}}\n"
            f"center:\n  {door}: {doors.pop(door)}\n" + "".join(f"  {key}: {each}\n" for key, each in doors.items())
        )

        done = command(role, "reach.yaml", "--log-level", "warning")

    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith("reachline: reach.yaml:3:")
    assert f" center.{door}: the address is in use; " in line
    assert line.endswith(f"(got {address})")
