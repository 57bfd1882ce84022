"""Inbounds over the API: who is added takes clients at once, who is removed takes none any more, and no open relay comes by that way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.handler_requests import add_inbound, remove, typed
from tests.passage.test_carried import carrying, tunnelled
from tests.xray_messages import xray_messages

from reachline.observatory.handling import inbound_methods
from reachline.passage.run import Passage
from reachline.testing.parts import free_port
from reachline.testing.serving import serving
from reachline.wire import xray_handler as wire

_OUTBOUNDS = [{"tag": "out", "protocol": "freedom"}]
_HELLO = b"\x05\x01\x00"


def _socks(**fields: Any) -> Any:
    return typed("xray.proxy.socks.ServerConfig", xray_messages()["SocksServerConfig"](**fields))


def _call(passage: Passage, method: str, request: bytes = b"") -> bytes:
    found = inbound_methods(lambda: passage)[method](request)
    assert isinstance(found, bytes)
    return found


def _ports(passage: Passage) -> dict[str, list[int]]:
    answer = xray_messages()["ListInboundsResponse"].FromString(_call(passage, wire.LIST_INBOUNDS[0]))
    receiver = xray_messages()["ReceiverConfig"]
    return {
        each.tag: [span.From for span in receiver.FromString(each.receiver_settings.value).port_list.range]
        for each in answer.inbounds
    }


@pytest.mark.parametrize("alias", [0, 1])
def test_who_is_added_takes_clients_until_it_is_removed(alias: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(4))
        await writer.drain()

    async def main() -> None:
        async with serving(serve) as service, carrying(_OUTBOUNDS) as door:
            _call(door.passage, wire.ADD_INBOUND[alias], add_inbound("new", _socks(), ports=((0, 0),)))
            port = _ports(door.passage)["new"][0]
            request = _HELLO + b"\x05\x01\x00\x01\x7f\x00\x00\x01" + service.port.to_bytes(2) + b"ping"

            async with tunnelled(port, request) as (reader, _):
                assert (await reader.readexactly(16))[-4:] == b"ping"

            _call(door.passage, wire.REMOVE_INBOUND[alias], remove("new"))
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            assert _ports(door.passage).keys() == {"in"}

    asyncio.run(main())


def test_an_inbound_of_the_document_may_go_and_its_connections_stay() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)

    async def main() -> None:
        async with serving(echo) as service, carrying(_OUTBOUNDS) as door:
            request = _HELLO + b"\x05\x01\x00\x01\x7f\x00\x00\x01" + service.port.to_bytes(2)
            async with tunnelled(door.ports["in"], request) as (reader, writer):
                await reader.readexactly(12)

                _call(door.passage, wire.REMOVE_INBOUND[0], remove("in"))

                writer.write(b"still")
                assert await reader.readexactly(5) == b"still"
            assert door.passage.listening() == ()

    asyncio.run(main())


def test_every_port_of_an_inbound_is_listed_once() -> None:
    async def main() -> None:
        async with carrying(_OUTBOUNDS) as door:
            first = free_port()
            _call(door.passage, wire.ADD_INBOUND[0], add_inbound("new", _socks(), ports=((first, first), (0, 0))))

            ports = _ports(door.passage)["new"]

            assert (len(ports), ports[0]) == (2, first)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (add_inbound("in", _socks(), ports=((0, 0),)), "existing tag found: in"),
        (add_inbound("x", _socks(), host="0.0.0.0", ports=((0, 0),)), "open relay"),
        (add_inbound("x", _socks(auth_type=1), ports=((0, 0),)), "accounts"),
        (add_inbound("x", _socks(), ports=()), "port"),
        (
            add_inbound("x", xray_messages()["TypedMessage"](type="xray.proxy.vless.inbound.Config"), ports=((0, 0),)),
            "not served here",
        ),
        (add_inbound("x", _socks(), ports=((0, 0),), stream_settings={"protocol_name": "websocket"}), "websocket"),
    ],
)
def test_who_cannot_be_served_is_refused_and_changes_nothing(request_: bytes, words: str) -> None:
    async def main() -> None:
        async with carrying(_OUTBOUNDS) as door:
            with pytest.raises(LookupError, match=words):
                _call(door.passage, wire.ADD_INBOUND[0], request_)

            assert _ports(door.passage).keys() == {"in"}

    asyncio.run(main())


def test_an_address_that_is_taken_is_named_and_no_other_port_stays_open() -> None:
    async def main() -> None:
        async with carrying(_OUTBOUNDS) as door:
            taken, free = door.ports["in"], free_port()

            with pytest.raises(LookupError, match="in use"):
                _call(
                    door.passage, wire.ADD_INBOUND[0], add_inbound("x", _socks(), ports=((free, free), (taken, taken)))
                )

            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", free)

    asyncio.run(main())


@pytest.mark.parametrize("tag", ["", "nobody"])
def test_removing_who_is_not_there_is_refused_in_xrays_words(tag: str) -> None:
    async def main() -> None:
        async with carrying(_OUTBOUNDS) as door:
            with pytest.raises(LookupError, match="not enough information for making a decision"):
                _call(door.passage, wire.REMOVE_INBOUND[0], remove(tag))

    asyncio.run(main())


def test_nobody_is_added_once_the_end_has_begun() -> None:
    async def main() -> None:
        async with carrying(_OUTBOUNDS) as door:
            door.passage.deafen()

            with pytest.raises(LookupError, match="any more"):
                _call(door.passage, wire.ADD_INBOUND[0], add_inbound("x", _socks(), ports=((0, 0),)))

    asyncio.run(main())
