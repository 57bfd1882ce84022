"""How a probe's bytes travel: the engine has one machine for each."""

from __future__ import annotations

from enum import Enum

from reachline.model import Endpoint
from reachline.talk.options import Options

__all__ = ["Way", "needs_port"]


class Way(Enum):
    """What the engine opens, and what its round trip is."""

    CONNECT = 3
    """A TCP connection whose handshake is the round trip, whatever is said afterwards."""
    STREAM = 0
    """A TCP connection whose round trip is request -> first byte of the answer."""
    DATAGRAM = 1
    ECHO = 2


def needs_port(endpoint: Endpoint, options: Options) -> None:
    """A problem where the target names no port to connect to."""
    if not endpoint.port:
        options.refuse("to", f"{endpoint} names no port to connect to", f"write it as {endpoint.scheme}://host:port")
