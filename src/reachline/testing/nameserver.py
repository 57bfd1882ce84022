"""A name server whose answers a test changes while it runs: records, codes, silence, answers too long for a datagram."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import struct
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from reachline.members import Address
from reachline.testing.serving import Service
from reachline.wire.dns import RCODES, TYPES, name_to_wire

__all__ = ["Nameserver", "Record", "nameserver"]

_CODES: Final = {word: code for code, word in RCODES.items()}
_NAMES: Final = {number: word for word, number in TYPES.items()}


@dataclass(frozen=True, slots=True)
class Record:
    """One record: A, AAAA or CNAME."""

    name: str
    data: str
    ttl: int = 60

    @property
    def kind(self) -> str:
        """By what its data is."""
        try:
            return "A" if ipaddress.ip_address(self.data).version == 4 else "AAAA"
        except ValueError:
            return "CNAME"

    def to_wire(self) -> bytes:
        """As it stands in an answer."""
        data = name_to_wire(self.data) if self.kind == "CNAME" else ipaddress.ip_address(self.data).packed
        return name_to_wire(self.name) + struct.pack("!HHIH", TYPES[self.kind], 1, self.ttl, len(data)) + data


@dataclass(slots=True)
class Nameserver:
    """What it says from now on. Written by the test."""

    address: Address
    records: list[Record] = field(default_factory=list)
    """All of them are sent that match the question's type, aliases always; a name without any does not exist."""
    codes: dict[str, str] = field(default_factory=dict)
    """`SERVFAIL` and the like in place of an answer, by name or by name and type (`a.test/AAAA`); `MUTE`: no answer at all."""
    truncates: bool = False
    """Whether datagrams say that the answer did not fit."""
    asked: Counter[str] = field(default_factory=Counter)
    """Questions so far, as `a.test/A`; those over TCP as `tcp:a.test/A`."""

    def set(self, name: str, *addresses: str, ttl: int = 60) -> None:
        """These are the name's addresses now, and it fails no more."""
        self.records = [each for each in self.records if each.name != name]
        self.records += [Record(name, each, ttl) for each in addresses]
        self.codes = {key: code for key, code in self.codes.items() if key.partition("/")[0] != name}

    def reply(self, message: bytes, *, over_tcp: bool) -> bytes | None:
        """The answer to one message, None for silence."""
        name, kind, end = _question(message)
        self.asked[f"{'tcp:' if over_tcp else ''}{name}/{kind}"] += 1
        code = self.codes.get(f"{name}/{kind}", self.codes.get(name, ""))
        if code == "MUTE":
            return None
        found = [] if code else [each for each in self.records if each.kind in {kind, "CNAME"}]
        if not code and name not in {each.name for each in self.records}:
            code = "NXDOMAIN"
        is_cut = self.truncates and not over_tcp
        answers = [] if is_cut or code else [each.to_wire() for each in found]
        flags = 0x8180 | _CODES[code or "NOERROR"] | (0x0200 if is_cut else 0)
        head = struct.pack("!HHHHHH", int.from_bytes(message[:2]), flags, 1, len(answers), 0, 0)
        return head + message[12:end] + b"".join(answers)


def _question(message: bytes) -> tuple[str, str, int]:
    labels, at = [], 12
    while size := message[at]:
        labels.append(message[at + 1 : at + 1 + size].decode())
        at += 1 + size
    return ".".join(labels).lower(), _NAMES[int.from_bytes(message[at + 1 : at + 3])], at + 5


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: Nameserver) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        if (reply := self._server.reply(data, over_tcp=False)) is not None:
            self._transport.sendto(reply, addr)


@contextlib.asynccontextmanager
async def nameserver() -> AsyncIterator[Nameserver]:
    """One on a free port of 127.0.0.1, UDP and TCP."""
    made: list[Nameserver] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        message = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
        if (reply := made[0].reply(message, over_tcp=True)) is not None:
            # In two pieces, as a network may bring it.
            writer.write(len(reply).to_bytes(2))
            await writer.drain()
            writer.write(reply)
            await writer.drain()

    stream = await Service(serve).listen()
    port = stream.port
    made.append(Nameserver(Address("127.0.0.1", port)))
    loop = asyncio.get_running_loop()
    datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(made[0]), local_addr=("127.0.0.1", port))
    try:
        yield made[0]
    finally:
        datagrams.close()
        await stream.close()
