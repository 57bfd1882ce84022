"""Where a job's packets go: numeric addresses at once, names by the resolver's cache. Waits for nothing."""

from __future__ import annotations

import socket
from typing import Final

from reachline.model import Endpoint
from reachline.net.attempt import Job, Route, SockAddr
from reachline.net.resolve import Answer, nameserver
from reachline.net.wheel import NEVER
from reachline.talk.secure import is_address
from reachline.talk.way import Way

__all__ = ["family_of", "numeric", "route"]

_NS: Final = 1_000_000_000
_SOON_NS: Final = 100_000_000
"""A stale answer serves this long while it is asked again."""
_NAMESERVER_NS: Final = 60 * _NS
"""How long the machine's own name server is taken for granted."""


def numeric(job: Job, now: int) -> Route | str | None:
    """The route of a job whose endpoint is an address; None: it is a name; a text: why there is none."""
    where = job.probe.where(job.endpoint)
    if where.host:
        return _to(job, where, where.host, NEVER) if is_address(where.host) else None
    own = nameserver()
    return _to(job, where, own, now + _NAMESERVER_NS) if own else "this machine has no name server in /etc/resolv.conf"


def route(job: Job, answer: Answer, now: int) -> Route | str:
    """The route by what the resolver says; a text: why there is none."""
    if not answer.addresses:
        return answer.error
    where = job.probe.where(job.endpoint)
    return _to(job, where, answer.addresses[0], max(int(answer.until * _NS), now + _SOON_NS))


def family_of(job: Job) -> int:
    """The family a name is asked for: the endpoint's own, else that of the source address, else either (0)."""
    where = job.probe.where(job.endpoint)
    if where.family or not job.source:
        return where.family
    return 6 if ":" in job.source else 4


def _to(job: Job, where: Endpoint, address: str, until: int) -> Route | str:
    try:
        # AI_NUMERICHOST: never asks anybody; it turns a zone index into its number.
        found = socket.getaddrinfo(address, where.port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    except OSError as error:
        return f"not an address here: {error.strerror or error}"
    family, _, _, _, sockaddr = found[0]
    probe = job.probe
    return Route(
        job=job,
        way=probe.way,
        family=int(family),
        address=_plain(sockaddr),
        bare=probe.way is Way.CONNECT and probe.secure is None and probe.talk(job.endpoint, 0) is None,
        bound=bool(job.source or job.interface),
        timeout_us=round(job.timeout * 1_000_000),
        timeout_ns=round(job.timeout * _NS),
        patience_ns=round(job.patience * _NS),
        until=until,
    )


def _plain(sockaddr: tuple[object, ...]) -> SockAddr:
    match sockaddr:
        case (str(host), int(port)):
            return host, port
        case (str(host), int(port), int(flow), int(scope)):
            return host, port, flow, scope
        case _:
            raise OSError(f"unknown address form {sockaddr!r}")
