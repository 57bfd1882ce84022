"""What a scripted service leaves behind: nothing, whenever it is closed."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from reachline.testing.serving import Serve, Service, serving


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1_000):
        writer.write(data.upper())


async def leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"bye")


async def stay(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


def test_a_client_is_talked_with_and_its_connection_ends_with_the_talk() -> None:
    async def story() -> None:
        async with serving(leave) as service:
            reader, writer = await asyncio.open_connection(*service.address)
            assert await reader.read() == b"bye"
            writer.close()
            await writer.wait_closed()
            assert service.connections == 1

    asyncio.run(story())


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("serve", [echo, leave, stay])
def test_a_connection_is_gone_with_its_service_however_young_it_is(serve: Serve, turns: int) -> None:
    async def story() -> None:
        service = await Service(serve).listen()
        with socket.create_connection(service.address) as client:  # the kernel's: nobody has accepted it yet
            client.settimeout(10)
            for _ in range(turns):
                await asyncio.sleep(0)
            await service.close()
            assert service.open == 0
            with suppress(ConnectionResetError):
                while client.recv(100):
                    pass

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(story())
        gc.collect()
    assert [str(each.message) for each in said] == []


def test_it_may_listen_again_where_it_did() -> None:
    async def story() -> None:
        service = await Service(echo).listen()
        port = service.port
        await service.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(OSError, match="does not listen"):
            _ = service.port
        await service.listen(port=port)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
        await service.close()

    asyncio.run(story())


def test_hushed_it_goes_on_with_those_it_has() -> None:
    async def story() -> None:
        async with serving(echo) as service:
            reader, writer = await asyncio.open_connection(*service.address)
            await service.hush()
            writer.write(b"some")
            assert await reader.readexactly(4) == b"SOME"
            writer.close()
            await writer.wait_closed()

    asyncio.run(story())


def test_it_listens_at_a_path_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(leave, at=str(tmp_path / "s")):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            assert await reader.read() == b"bye"
            writer.close()
            await writer.wait_closed()

    asyncio.run(story())
