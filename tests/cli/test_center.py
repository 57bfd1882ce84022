"""`reachline center` and `up` as processes: what they say when they cannot listen."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", ["center", "up"])
@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_port_in_use_is_one_line_with_its_place_in_the_document(command: str, door: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        doors = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"} | {door: address}
        (tmp_path / "reach.yaml").write_text(
            "clusters: {shop: {lines: ['tcp://127.0.0.1:1']}}\n"
            f"center:\n  {door}: {doors.pop(door)}\n" + "".join(f"  {key}: {each}\n" for key, each in doors.items())
        )

        done = subprocess.run(
            [sys.executable, "-m", "reachline", command, "reach.yaml", "--log-level", "warning"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("reachline: reach.yaml:3:")
    assert f" center.{door}: the address is in use; " in line
    assert line.endswith(f"(got {address})")
