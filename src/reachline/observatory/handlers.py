"""A document that changes while it is followed: by its files, and by outbounds that come and go over the API. One at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from reachline.doors.observatory import Changes, Outbound, Reach, Settings, Source, own_tags
from reachline.errors import ConfigError

__all__ = ["Handlers"]

_MOST: Final = 5_000
"""Outbounds that came over the API: as many as the largest lists that people observe; each costs a reading of all."""
_SILENT: Final = frozenset(("blackhole", "dns", "loopback"))
_NO_CLUE: Final = "not enough information for making a decision"
"""Xray's words where a tag is empty…"""
_EXISTING: Final = "existing tag found: "
"""…and where it is taken, which panels look for."""
T = TypeVar("T")


class Handlers(Generic[T]):
    """What a document was read as, `T`, with the changes since. Written by the loop that serves; `read` runs on a thread."""

    def __init__(
        self,
        sources: Sequence[Source],
        read: Callable[[Sequence[Source], Changes], T],
        settings: Callable[[T], Settings],
        *,
        remarks: str | None = None,
    ) -> None:
        """Reads at once; ConfigError as `read` raises it."""
        self._sources = sources
        self._changes = Changes()
        self._read: Final = read
        self._settings: Final = settings
        self._remarks: Final = remarks
        self._lock: Final = asyncio.Lock()  # guards all of this between a reading's begin and its end
        self.current: T = read(sources, self._changes)
        self.apply: Callable[[T], None] = lambda _: None
        """Makes what came over the API the one that is obeyed."""

    @property
    def sources(self) -> Sequence[Source]:
        """The files as they were read last."""
        return self._sources

    @property
    def settings(self) -> Settings:
        """Of what is obeyed now."""
        return self._settings(self.current)

    async def reread(self, sources: Sequence[Source]) -> T:
        """The files say this from now on, beside what came over the API. ConfigError: nothing changed. The caller applies it."""
        async with self._lock:
            changes = self._changes
            if changes != Changes():
                changes = changes.settled(own_tags(sources, remarks=self._remarks))
            self.current = await asyncio.to_thread(self._read, sources, changes)
            self._sources, self._changes = sources, changes
            return self.current

    async def add(self, outbound: Mapping[str, object]) -> None:
        """As a document has it. LookupError where its tag is taken, or where it cannot be had here: nothing changed."""
        async with self._lock:
            tag = outbound.get("tag")
            if tag and tag in self.settings.tags:
                raise LookupError(f"{_EXISTING}{tag}")
            if len(self._changes.back) >= _MOST:
                raise LookupError(f"at most {_MOST} outbounds are added")
            changes = self._changes.added(outbound)
            found = await self._candidate(changes)
            made = self._settings(found).outbounds[-1 if changes.front == self._changes.front else 0]
            if made.reach is not Reach.NATIVE and made.protocol not in _SILENT:
                raise LookupError(_unspoken(made))
            self._take(found, changes)

    async def remove(self, tag: str) -> None:
        """One that is not there is gone already. LookupError where the tag is empty, or where others go through it."""
        if not tag:
            raise LookupError(_NO_CLUE)
        async with self._lock:
            settings = self.settings
            if tag not in settings.tags:
                return
            changes = self._changes.without(tag, is_default=settings.outbounds[0].tag == tag)
            self._take(await self._candidate(changes), changes)

    async def _candidate(self, changes: Changes) -> T:
        try:
            return await asyncio.to_thread(self._read, self._sources, changes)
        except ConfigError as error:
            raise LookupError("; ".join(map(str, error.problems))) from error

    def _take(self, found: T, changes: Changes) -> None:
        self.current, self._changes = found, changes
        self.apply(found)


def _unspoken(outbound: Outbound) -> str:
    return f"outbound {outbound.tag!r} {outbound.why}, and what is added here is freedom, socks, http, blackhole, dns or loopback"
