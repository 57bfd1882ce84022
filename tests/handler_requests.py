"""Requests of HandlerService as Xray's own clients make them, written by protobuf from its field numbers."""

from __future__ import annotations

import socket
from typing import Any

from tests.xray_messages import xray_messages

__all__ = ["add_inbound", "add_outbound", "client", "remove", "typed"]


def typed(name: str, message: Any) -> Any:
    """A TypedMessage; `name` is the message's full one."""
    return xray_messages()["TypedMessage"](type=name, value=message.SerializeToString())


def client(kind: str, host: str, port: int, *, user: str = "", password: str = "", **more: object) -> Any:
    """Settings of a socks or http outbound."""
    messages = xray_messages()
    try:
        address = messages["IPOrDomain"](ip=socket.inet_aton(host))
    except OSError:
        address = messages["IPOrDomain"](domain=host)
    server = messages["ServerEndpoint"](address=address, port=port)
    if user:
        account = typed(f"xray.proxy.{kind}.Account", messages["Account"](username=user, password=password))
        server.user.CopyFrom(messages["User"](account=account))
    return typed(f"xray.proxy.{kind}.ClientConfig", messages["ClientConfig"](server=server, **more))


def add_outbound(tag: str, settings: Any = None, **sender: object) -> bytes:
    """An AddOutboundRequest; without settings of freedom."""
    messages = xray_messages()
    own = settings if settings is not None else typed("xray.proxy.freedom.Config", messages["FreedomConfig"]())
    way = typed("xray.app.proxyman.SenderConfig", messages["SenderConfig"](**sender))
    outbound = messages["OutboundHandlerConfig"](tag=tag, sender_settings=way, proxy_settings=own)
    return bytes(messages["AddOutboundRequest"](outbound=outbound).SerializeToString())


def add_inbound(
    tag: str, settings: Any, *, host: str = "127.0.0.1", ports: tuple[tuple[int, int], ...], **receiver: object
) -> bytes:
    """An AddInboundRequest."""
    messages = xray_messages()
    spans = messages["PortList"](range=[messages["PortRange"](From=first, To=last) for first, last in ports])
    listen = messages["IPOrDomain"](ip=socket.inet_aton(host))
    found = messages["ReceiverConfig"](port_list=spans, listen=listen, **receiver)
    inbound = messages["InboundHandlerConfig"](
        tag=tag, receiver_settings=typed("xray.app.proxyman.ReceiverConfig", found), proxy_settings=settings
    )
    return bytes(messages["AddInboundRequest"](inbound=inbound).SerializeToString())


def remove(tag: str) -> bytes:
    """A RemoveOutboundRequest, a RemoveInboundRequest."""
    return bytes(xray_messages()["RemoveOutboundRequest"](tag=tag).SerializeToString())
