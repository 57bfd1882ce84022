"""A center with certificates and a token is followed by what the bootstrap commands print, and by nobody without the token."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trustme
from tests.differential.real import VARIABLE, Door, binary, started
from tests.e2e.xds_calls import backend, grpc_process

from reachline.cli.bootstraps import Way, envoy
from reachline.cli.pointing import way_of
from reachline.testing.center import running_center
from reachline.testing.parts import free_port
from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.real]

DOCUMENT = """
clusters: {{shop: {{lines: ["grpc://127.0.0.1:{line}"], listen: "127.0.0.1:{listen}"}}}}
center:
  {{grpc: "127.0.0.1:{center}", http: "127.0.0.1:0", journal: JOURNAL, token: secret,
   tls: {{certificate: "{here}/cert.pem", key: "{here}/key.pem"}}}}
"""
SAID = {"node": "", "locality": "", "center": "", "tls": False, "ca": "", "certificate": "", "key": ""}


def test_what_the_commands_print_follows_a_center_with_tls_and_a_token(tmp_path: Path) -> None:
    found = binary()
    if found is None:
        pytest.skip(f"no Envoy: `make envoy`, or {VARIABLE} names its binary")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))

    async def run() -> None:
        async with backend("a") as line:
            text = DOCUMENT.format(line=line.port, listen=free_port(), center=free_port(), here=tmp_path)
            async with running_center(tmp_path, text):
                file, ca = tmp_path / "reachline.yaml", str(tmp_path / "ca.pem")
                way = way_of(file, environ={}, **{**SAID, "node": "one", "ca": ca})
                assert (way.tls, way.token) == (True, "secret")
                with grpc_process(tmp_path, way) as process:
                    assert await process.calls("sync", 3) == {"a": 3}
                assert await asyncio.to_thread(seen, found, way, tmp_path, "with") == "cluster"

                wrong = way_of(file, environ={"REACHLINE_TOKEN": "wrong"}, **{**SAID, "node": "two", "ca": ca})
                assert await asyncio.to_thread(seen, found, wrong, tmp_path, "without") == "refused"

    asyncio.run(run())


def seen(binary: Path, way: Way, directory: Path, name: str) -> str:
    """What becomes of an Envoy: it has a cluster from the center, or its log says that it was refused."""
    document = envoy(way, admin="127.0.0.1:1")
    document["admin"]["address"]["socket_address"]["port_value"] = 0
    with started(binary, document, directory, name=name, is_live=False) as admin:
        door = Door(admin)

        def known() -> str:
            if b'"shop"' in door.get("/clusters?format=json")[2]:
                return "cluster"
            return "refused" if "did not give its token" in (directory / f"{name}.log").read_text() else ""

        try:
            return eventually(known, within=30, what="a cluster or a refusal")
        finally:
            door.close()
