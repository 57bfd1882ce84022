"""One DNS question to one name server: a datagram, then a stream where the answer does not fit one. Callbacks, no tasks."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

from reachline.errors import RemoteProtocolError
from reachline.members import Address
from reachline.model import Seconds
from reachline.wire.dns import Message, decode, query

__all__ = ["Exchange"]

_LARGEST: Final = 65_535
_SIZE: Final = 2
"""Bytes that say how long a message in a stream is."""


class Exchange:
    """Calls `then` once, on the loop: with the response, or with what went wrong in words. Never after `close`."""

    def __init__(
        self, server: Address, name: str, kind: str, *, wait: Seconds, then: Callable[[Message | str], None]
    ) -> None:
        """Asks at once. LocalProtocolError where `name` cannot be one."""
        self._server = server
        self._then = then
        # Not of a seed: whoever guesses the number may answer in the server's place.
        self._number = int.from_bytes(os.urandom(2))
        self._message, self._question = query(self._number, name, kind)
        self._heard = bytearray()
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = None
        self._timer = self._loop.call_later(wait, self._end, f"{server} does not answer")
        self._open(socket.SOCK_DGRAM)

    def close(self) -> None:
        """Give up. Idempotent."""
        self._timer.cancel()
        self._leave()

    def _leave(self) -> None:
        """Let go of the socket, if there is one."""
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._sock = None

    def _end(self, answer: Message | str) -> None:
        self.close()
        self._then(answer)

    def _open(self, kind: socket.SocketKind) -> None:
        family = socket.AF_INET6 if ":" in self._server.host else socket.AF_INET
        try:
            sock = self._sock = socket.socket(family, kind | socket.SOCK_NONBLOCK)
            if kind is socket.SOCK_DGRAM:
                # Connected: only the server itself is heard, and a closed port is an error at once.
                sock.connect(self._server)
                sock.send(self._message)
                self._loop.add_reader(sock, self._on_datagram, sock)
            else:
                sock.connect_ex(self._server)
                self._loop.add_writer(sock, self._on_connected, sock)
        except OSError as error:
            # Later, so that whoever asks holds this exchange before it is over.
            self._timer.cancel()
            self._timer = self._loop.call_later(0, self._end, self._told(error))

    def _told(self, error: OSError) -> str:
        return f"{self._server}: {error.strerror or error}"

    def _on_datagram(self, sock: socket.socket) -> None:
        data = self._received(sock)
        message = None if data is None else self._read(data)
        if message is None:
            return  # not an answer to us; the true one may still come
        if not message.truncated:
            self._end(message)
            return
        self._leave()
        self._open(socket.SOCK_STREAM)

    def _on_connected(self, sock: socket.socket) -> None:
        self._loop.remove_writer(sock)
        try:
            sock.send(len(self._message).to_bytes(_SIZE) + self._message)
        except OSError as error:
            self._end(self._told(error))
            return
        self._loop.add_reader(sock, self._on_stream, sock)

    def _on_stream(self, sock: socket.socket) -> None:
        data = self._received(sock)
        if data is None:
            return
        self._heard += data
        size = int.from_bytes(self._heard[:_SIZE])
        if len(self._heard) >= _SIZE + size and len(self._heard) >= _SIZE:
            self._end(self._read(bytes(self._heard[_SIZE : _SIZE + size])) or f"{self._server} answers something else")
        elif not data:
            self._end(f"{self._server} ended its answer early")

    def _received(self, sock: socket.socket) -> bytes | None:
        """What came; None where nothing has, or where that was the end."""
        try:
            return sock.recv(_LARGEST)
        except BlockingIOError:
            return None
        except OSError as error:
            self._end(self._told(error))
            return None

    def _read(self, data: bytes) -> Message | None:
        """The response to our question; None where it is none, or a forged one."""
        try:
            message = decode(data)
        except RemoteProtocolError:
            return None
        if message.number != self._number or message.question.lower() != self._question.lower():
            return None
        return message
