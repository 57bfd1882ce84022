"""`reachline agent` as a process: how it starts, how it ends, and what it says when it may not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from tests.agent.peer import Center, line, plan_of, target
from tests.cli.conftest import Command

from reachline.testing.wait import until

COMMAND = (sys.executable, "-m", "reachline", "agent")


@pytest.fixture
def center(tmp_path: Path) -> Center:
    return Center(f"unix:{tmp_path}/center.sock")


def go(work: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, "--log", "json", stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "REACHLINE_AGENT_TOKEN": "s3cret"},
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.alone
def test_a_signal_ends_it_with_bye_and_code_zero_within_two_seconds(center: Center, number: signal.Signals) -> None:
    async def work() -> None:
        async with target() as good, center:
            center.plan = plan_of(line("good", good))
            process = await start("--id", "v1", "--center", center.address, "--zone", "az1")
            await until(lambda: center.reports("c/good"), within=30)
            loop = asyncio.get_running_loop()
            asked = loop.time()

            process.send_signal(number)

            _, said = await process.communicate()
            assert loop.time() - asked < 2
            assert process.returncode == 0
            assert center.byes
            events = [json.loads(each) for each in said.splitlines()]
            assert [each["event"] for each in events][-1] == "agent_stopped"
            assert b"s3cret" not in said

    go(work())

    assert (center.hellos[0].token, center.hellos[0].locality) == ("s3cret", ("", "az1", ""))


def test_a_final_refusal_is_said_once_and_ends_it_with_code_two(center: Center) -> None:
    center.refusal = "agent 'v1' is not in the document's agents"

    async def work() -> None:
        async with center:
            process = await start("--id", "v1", "--center", center.address)
            _, said = await process.communicate()
        told = [text for text in said.decode().splitlines() if not text.startswith("{")]
        assert process.returncode == 2
        assert told == [
            f"reachline: --center {center.address}: the center refuses this agent: agent 'v1' is not in the document's agents"
        ]

    go(work())


def test_a_center_that_is_away_is_waited_for(center: Center) -> None:
    async def work() -> None:
        process = await start("--id", "v1", "--center", center.address)
        assert process.stderr is not None
        while b"center_not_reached" not in await process.stderr.readline():
            pass
        async with center:
            await until(lambda: center.hellos, within=30)
            process.send_signal(signal.SIGTERM)
            await process.communicate()
        assert process.returncode == 0

    go(work())


def test_wrong_options_are_one_line_each_and_code_two(command: Command) -> None:
    done = command("agent", "--id", "a b", "--center", "x", "--source", "eth0")

    assert done.code == 2
    assert [text.split(":")[1].strip() for text in done.err.splitlines()] == ["--id", "--center", "--source"]


def garbage(directory: Path, kind: str) -> tuple[tuple[str, ...], str]:
    """Options that name TLS files which are none, and the file to blame."""
    authority = trustme.CA()
    own, other = authority.issue_cert("v1"), authority.issue_cert("v2")
    ca, cert, key = directory / "ca.pem", directory / "v1.pem", directory / "v1.key"
    authority.cert_pem.write_to_path(ca)
    own.cert_chain_pems[0].write_to_path(cert)
    own.private_key_pem.write_to_path(key)
    match kind:
        case "binary":
            ca.write_bytes(bytes(range(256)))
        case "empty":
            ca.write_bytes(b"")
        case "key":
            ca.write_bytes(key.read_bytes())
        case "no certificate":
            cert.write_text("no certificate")
        case "another's key":
            other.private_key_pem.write_to_path(key)
        case _:
            key.write_bytes(encrypted(own.private_key_pem.bytes()))
    blamed = ca if kind in {"binary", "empty", "key"} else cert
    return ("--ca", str(ca), "--cert", str(cert), "--key", str(key)), str(blamed)


def encrypted(pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(pem, None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize("kind", ["binary", "empty", "key", "no certificate", "another's key", "key with a password"])
def test_a_file_that_is_no_certificate_is_one_line_at_the_start_and_code_two(
    kind: str, tmp_path: Path, command: Command
) -> None:
    options, blamed = garbage(tmp_path, kind)

    done = command("agent", "--id", "v1", "--center", "127.0.0.1:1", *options)

    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith(f"reachline: {blamed}: ")
    assert "PEM" in line
