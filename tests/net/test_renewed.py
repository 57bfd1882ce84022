"""Certificate files replaced in use: new connections see the new one, junk is passed over, who is connected stays."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from reachline.net.renewed import Files, renewing
from reachline.testing.serving import serving


class Held:
    """A certificate and key on disk, as one authority makes them anew."""

    def __init__(self, directory: Path) -> None:
        self.ca = trustme.CA()
        self.certificate, self.key = directory / "cert.pem", directory / "key.pem"
        self.renew()

    def renew(self, name: str = "localhost") -> None:
        made = self.ca.issue_cert(name, "localhost")
        for path, data in (
            (self.key, made.private_key_pem.bytes()),
            (self.certificate, made.cert_chain_pems[0].bytes()),
        ):
            beside = path.with_suffix(".new")
            beside.write_bytes(data)
            beside.replace(path)

    @property
    def files(self) -> Files:
        return Files(str(self.certificate), str(self.key))


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


def test_a_change_is_told_once(held: Held):
    files = held.files
    assert not files.changed()

    held.renew()

    assert files.changed()
    assert files.read.certificate == held.certificate.read_bytes()
    assert not files.changed()


def test_a_key_that_does_not_fit_is_passed_over_until_it_does(held: Held):
    files, before = held.files, held.certificate.read_bytes()
    other = held.ca.issue_cert("localhost")

    held.key.write_bytes(other.private_key_pem.bytes())
    assert not files.changed()
    assert (files.read.certificate, files.refused) == (before, 1)

    held.certificate.write_bytes(other.cert_chain_pems[0].bytes())
    assert files.changed()
    assert files.read.certificate != before


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"junk")])
def test_a_file_that_goes_or_is_junk_leaves_the_last_good_one(held: Held, damage):
    files, before = held.files, held.certificate.read_bytes()

    damage(held.certificate)

    assert not files.changed()
    assert files.read.certificate == before


def test_what_does_not_fit_at_the_start_is_an_error_of_its_file(held: Held):
    held.certificate.write_bytes(b"junk")

    with pytest.raises(OSError, match="no certificate in PEM") as told:
        _ = held.files
    assert told.value.filename == str(held.certificate)


def test_new_handshakes_show_the_new_certificate_and_old_connections_go_on(held: Held):
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)

    async def work() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(held.certificate, held.key)
        renewing(context, held.files)
        trusting = ssl.create_default_context()
        held.ca.configure_trust(trusting)

        async with serving(echo, tls=context) as server:
            port = server.port

            async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
                reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting, family=2)
                return reader, writer, writer.get_extra_info("ssl_object").getpeercert(True)

            old_reader, old, before = await connect()
            held.renew()
            _, new, after = await connect()
            assert before != after
            assert ssl.PEM_cert_to_DER_cert(held.certificate.read_text()) == after

            old.write(b"still here")
            assert await old_reader.readexactly(10) == b"still here"
            for writer in (old, new):
                writer.close()
                await writer.wait_closed()

    asyncio.run(work())
