"""The port of a connect that is to have one before its target is known: one of the odd ones, by chance.

Connect itself has the even ones only. Asking bind for any port would do, but then the kernel looks for one that no connection
to whatever target holds: with seven thousand in TIME_WAIT that takes 4 ms a connect, 200 ms at worst, in which the loop stands
still. A port that is named is had at once, and is shared among connections to different targets; where somebody listens at it
or did not say that it may be shared, bind refuses it.
"""

from __future__ import annotations

import errno
import functools
import itertools
import socket
from collections.abc import Iterator
from random import SystemRandom
from typing import Final

from reachline.net import budget, kernel

__all__ = ["EARLY", "bind"]

EARLY: Final = -1
"""Among source ports: one is chosen at bind."""

_TRIES: Final = 4
"""Other programs' ports that are met in a row before connect chooses: with half of all ports in use once in sixteen."""
_LEFT: Final = 4
"""One odd port of so many is left alone: other programs whose bind looks for one find it near by. The others are more than wait
out their minute toward one target while connections to it are closed by FIN (`budget.FULL` of all ports, half of them odd)."""


def bind(sock: socket.SocketType, family: int, source: str, interface: str, port: int) -> None:
    """As `kernel.bind`; with EARLY from an odd port, or, where those are other programs', from one that connect chooses."""
    if port != EARLY:
        kernel.bind(sock, family, source, interface, port)
        return
    for odd in itertools.islice(_odd(), _TRIES):
        try:
            kernel.bind(sock, family, source, interface, odd)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            interface = ""  # it is bound to that already, and may not be told so twice without CAP_NET_RAW
        else:
            return
    kernel.bind(sock, family, source, interface)


@functools.cache
def _odd() -> Iterator[int]:
    """Those we take, again and again, the same ones while this process lives: none comes back before all others had their turn."""
    odd = [port for port in budget.free() if port % 2]
    return itertools.cycle(SystemRandom().sample(odd, len(odd) - len(odd) // _LEFT))
