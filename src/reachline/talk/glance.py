"""What a probe says and what it may take for a good answer at first sight: the rule, which nine probes of ten follow.

A glance only ever confirms what the whole talk would call ok; whatever it does not know is left to the talk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from reachline.model import Endpoint
from reachline.talk import Probe
from reachline.talk.dns import DnsProbe
from reachline.talk.http import HttpProbe, HttpTalk
from reachline.talk.way import Way
from reachline.wire import dns, http1

__all__ = ["DOUBT", "LARGEST", "Glance", "of"]

DOUBT: Final = -1
"""The talk must look."""
LARGEST: Final = 4096
"""Bytes of a request that the buffer of a fresh socket takes at once, whatever its settings."""


class Glance(NamedTuple):
    """A request ready to be sent, and a look at what comes back."""

    request: bytes
    """A datagram's without its first two bytes, the number that is new each time."""
    read: Callable[[bytes], int]
    """The status of a first piece that is the whole answer and ok; DOUBT otherwise."""


def of(probe: Probe, endpoint: Endpoint) -> Glance | None:
    """The glance at answers to `probe`; None where there is none: expectations beyond the status, TLS, another kind."""
    match probe:
        case HttpProbe(way=Way.STREAM, secure=None, body=b"") if len(probe.request) <= LARGEST:
            # Of an HTTP probe that speaks another version of it the talk is another.
            return _http(probe) if type(probe.talk(endpoint, 0)) is HttpTalk else None
        case DnsProbe(way=Way.DATAGRAM, expect=()) if not probe.minds_ttl:
            return _dns(probe)
        case _:
            return None


def _http(probe: HttpProbe) -> Glance:
    to_head, expect, whole = probe.to_head, probe.expect, http1.whole

    def read(data: bytes) -> int:
        status = whole(data, to_head=to_head)
        for low, high in expect:
            if low <= status <= high:
                return status
        return DOUBT

    return Glance(probe.request, read)


def _dns(probe: DnsProbe) -> Glance:
    query, question = dns.query(0, probe.name, probe.type, recurse=probe.recurse)
    rcode = next(number for number, name in dns.RCODES.items() if name == probe.rcode)

    def read(data: bytes) -> int:
        return rcode if dns.is_plain(data, question, rcode) else DOUBT

    return Glance(query[2:], read)
