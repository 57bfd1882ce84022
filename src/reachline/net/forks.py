"""What is to be done in a forked child: once in each, by the interpreter's own hook, or by uWSGI's where that forks without telling it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final

__all__ = ["FORKS", "Forks"]


class Forks:
    """Written by the thread that imports, and in a child by the only one there is."""

    __slots__ = ("_callbacks", "_is_told", "_pid")

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._callbacks: Final[list[Callable[[], None]]] = []
        self._is_told = False

    def add(self, callback: Callable[[], None]) -> None:
        """To be called in each child, after those added before."""
        self._callbacks.append(callback)

    def run(self) -> None:
        """In a child, by whichever hook comes first; nothing where it has run already."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            for each in self._callbacks:
                each()

    def tell_server(self) -> None:
        """Have uWSGI call `run` in its workers, where this is one of its masters: without `py-call-osafterfork` it tells nobody of a fork."""
        server: Any = sys.modules.get("uwsgi")
        if server is None or self._is_told:
            return
        self._is_told = True
        try:
            import uwsgidecorators  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415
        except Exception:  # noqa: BLE001 - it is missing, or refuses to be imported for there is no master
            before = getattr(server, "post_fork_hook", None)

            def both() -> None:
                if before is not None:
                    before()
                self.run()

            server.post_fork_hook = both
        else:
            # It owns the hook, and would take it back whenever it is imported later.
            uwsgidecorators.postfork_chain.append(self.run)


FORKS: Final = Forks()
"""Of this process."""
os.register_at_fork(after_in_child=FORKS.run)
