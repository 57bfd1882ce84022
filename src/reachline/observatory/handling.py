"""HandlerService as functions of bytes: outbounds of whoever keeps the document, inbounds of whoever serves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from reachline.doors.observatory import Outbound, Settings
from reachline.doors.observatory.inbounds import Served, read_inbound
from reachline.errors import ConfigError
from reachline.observatory.answers import Method
from reachline.wire import xray_handler as wire
from reachline.wire.xray_listed import Listening, Sending, inbounds_listed, outbounds_listed

__all__ = ["Inbounds", "Outbounds", "inbound_methods", "outbound_methods"]

_NO_CLUE: Final = "not enough information for making a decision"
"""Xray's words for an inbound that is not there."""


class Outbounds(Protocol):
    """Who keeps the document."""

    @property
    def settings(self) -> Settings:
        """What is obeyed now."""

    async def add(self, outbound: Mapping[str, object]) -> None:
        """LookupError where it cannot be had."""

    async def remove(self, tag: str) -> None:
        """LookupError where it cannot go."""


class Inbounds(Protocol):
    """Who listens."""

    def listening(self) -> Sequence[tuple[Served, tuple[int, ...]]]:
        """Inbounds with the ports that they have."""

    def listen(self, served: Served) -> None:
        """Take clients there too. LookupError where its tag is taken, ConfigError where its address is."""

    def unlisten(self, tag: str) -> bool:
        """Take none any more there; connections that are made stay. False: there is no such inbound."""


def outbound_methods(outbounds: Outbounds) -> dict[str, Method]:
    """By full name. What they refuse is a LookupError or a RemoteProtocolError."""

    async def add(request: bytes) -> bytes:
        await outbounds.add(wire.read_added_outbound(request))
        return b""

    async def remove(request: bytes) -> bytes:
        await outbounds.remove(wire.read_removed(request))
        return b""

    def listed(_: bytes) -> bytes:
        return outbounds_listed(map(_sending, _tagged(outbounds.settings)))

    return {
        **dict.fromkeys(wire.ADD_OUTBOUND, add),
        **dict.fromkeys(wire.REMOVE_OUTBOUND, remove),
        **dict.fromkeys(wire.LIST_OUTBOUNDS, listed),
    }


def inbound_methods(inbounds: Callable[[], Inbounds]) -> dict[str, Method]:
    """Likewise; `inbounds` raises LookupError while nobody listens yet."""

    def add(request: bytes) -> bytes:
        try:
            inbounds().listen(read_inbound(wire.read_added_inbound(request)))
        except ConfigError as error:
            raise LookupError("; ".join(map(str, error.problems))) from error
        return b""

    def remove(request: bytes) -> bytes:
        tag = wire.read_removed(request)
        if not tag or not inbounds().unlisten(tag):
            raise LookupError(_NO_CLUE)
        return b""

    def listed(request: bytes) -> bytes:
        only_tags = wire.read_only_tags(request)
        return inbounds_listed([_listening(*each) for each in inbounds().listening()], only_tags=only_tags)

    return {
        **dict.fromkeys(wire.ADD_INBOUND, add),
        **dict.fromkeys(wire.REMOVE_INBOUND, remove),
        **dict.fromkeys(wire.LIST_INBOUNDS, listed),
    }


def _tagged(settings: Settings) -> list[Outbound]:
    """Those without a tag are not told, as in Xray."""
    return [each for each in settings.outbounds if each.tag]


def _sending(outbound: Outbound) -> Sending:
    if not outbound.hops or outbound.protocol not in {"socks", "http"}:
        return Sending(outbound.tag, outbound.protocol, source=outbound.source, interface=outbound.interface)
    own = outbound.hops[-1]
    return Sending(
        outbound.tag,
        outbound.protocol,
        own.endpoint.host,
        own.endpoint.port,
        own.user,
        outbound.source,
        outbound.interface,
    )


def _listening(served: Served, ports: tuple[int, ...]) -> Listening:
    return Listening(
        served.tag,
        served.entry.value,
        served.host,
        ports,
        asks_password=bool(served.accounts),
        has_udp=served.has_udp,
        target=served.target,
        level=served.level,
    )
