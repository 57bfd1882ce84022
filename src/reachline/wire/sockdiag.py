"""What Linux tells of its own TCP sockets: requests of sock_diag (linux/inet_diag.h) and the answers, still pure.

A request carries its filter as the kernel's own byte code, so that a busy host sends us only the connections we ask for.
Every answer is read within its bounds; one that is cut short or claims lengths it has not is `RemoteProtocolError`.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from reachline.errors import RemoteProtocolError

__all__ = [
    "CONNECTING",
    "LIVE",
    "MOST_WANTED",
    "Done",
    "Message",
    "Refused",
    "Sock",
    "Wanted",
    "messages",
    "request",
]

_BY_FAMILY: Final = 20
"""SOCK_DIAG_BY_FAMILY: the message's type both ways."""
_ERROR, _DONE = 2, 3
_DUMP: Final = 0x301
"""NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH."""
_INTERRUPTED: Final = 0x10
"""NLM_F_DUMP_INTR: the table changed under the dump, which may have left out or doubled some."""
_HEADER: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port."""
_REQUEST: Final = struct.Struct("=BBBxI48x")
"""struct inet_diag_req_v2: family, protocol, wanted extensions, states; the socket's own id stays empty."""
_SOCK: Final = struct.Struct("=BBxx2s2s16s16sIQ12xII")
"""struct inet_diag_msg: family, state, both ports and addresses as in a packet, interface, cookie, uid, inode."""
_ATTRIBUTE: Final = struct.Struct("=HH")
_NUMBER: Final = struct.Struct("=I")
_CODE: Final = struct.Struct("=i")
_EXTENSION_INFO: Final = 2
"""INET_DIAG_INFO, which is asked for by its bit and comes back as an attribute of that type…"""
_MARK: Final = 15
"""…and INET_DIAG_MARK, which comes unasked, but only to those who may administer the network."""
_BYTECODE: Final = 1
_MAPPED: Final = bytes(10) + b"\xff\xff"
"""How an IPv4 address begins as an IPv6 one."""

_AF: Final = {4: 2, 6: 10}
"""AF_INET, AF_INET6 (linux/socket.h)."""
_TCP: Final = 6
_SYN_SENT: Final = 2
CONNECTING: Final = _SYN_SENT
"""tcpi_state of a connection that no answer has come for yet."""
LIVE: Final = tuple(1 << state for state in (1, _SYN_SENT, 4, 5, 8, 9, 11))
"""ESTABLISHED, SYN_SENT, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING: where something may still be on its way."""

# struct tcp_info (linux/tcp.h). It only ever grew at its end: what an older kernel does not send reads as 0.
_INFO: Final = struct.Struct("=2xBxB19xI16xI8xI8xII24xI16xQ20xI4xIQ")
"""Each at its place: consecutive retransmissions at 2, backoff 4, unacked 24, last_data_sent 44,
last_ack_recv 56, rtt 68, rttvar 72, total_retrans 100, bytes_acked 120, min_rtt 148, data_segs_out 156, delivery_rate 160."""
_REORDERED: Final = 220
_DUPLICATES: Final = 216

_OP: Final = struct.Struct("=BBH")
"""struct inet_diag_bc_op: code, how far to go on where it holds, how far where not."""
_HOST: Final = struct.Struct("=BBxxi")
"""struct inet_diag_hostcond before the address: family, prefix, port."""
_JUMP, _SOURCE, _TARGET, _MARKED, _TO_PORT = 1, 7, 8, 10, 12
_PAST: Final = 4
"""A jump this far beyond the end refuses the socket; one to the end takes it."""
_MARK_CONDITION: Final = struct.Struct("=II")
MOST_WANTED: Final = 256
"""Conditions of one filter: the kernel tries them one by one on every socket. Beyond it only ports are asked for, and beyond
that everything."""


class Wanted(NamedTuple):
    """Connections of one line: to an address and port, from an address; each may be left open. `mark` is (value, mask)."""

    address: str = ""
    port: int = 0
    source: str = ""
    mark: int | None = None


class Sock(NamedTuple):
    """One connection as the kernel knows it. Times in milliseconds unless they say `_us`, rates in bytes a second."""

    state: int
    family: int
    local: str
    local_port: int
    remote: str
    remote_port: int
    interface: int
    """Of a socket bound to one; 0: as routed."""
    cookie: int
    """Names the socket as long as the kernel runs."""
    inode: int
    """0: the process has closed it."""
    uid: int
    mark: int | None
    """None: we are not told."""
    pending: int
    """Retransmissions in a row without an answer…"""
    backoff: int
    """…and how often the timer was doubled for it."""
    unacked: int
    """Segments on their way."""
    sent_ago: int
    """Since data was last sent…"""
    heard_ago: int
    """…and since an acknowledgement last came."""
    rtt_us: int
    """Smoothed; 0: nothing was measured yet."""
    deviation_us: int
    retransmitted: int
    """Segments sent again, SYNs with them, since it was opened."""
    acked: int
    """Bytes the peer confirmed."""
    lowest_us: int
    segments: int
    """Data segments sent, those sent again with them."""
    delivery: int
    duplicates: int
    """Segments that the peer says it got twice."""
    reordered: int
    """Times the path was seen to change the order of segments."""


class Done(NamedTuple):
    """The dump is over; `whole` False: the table changed meanwhile."""

    whole: bool


class Refused(NamedTuple):
    """The kernel refuses the request, by errno."""

    code: int


Message = Sock | Done | Refused


def request(family: int, wanted: Sequence[Wanted], *, sequence: int) -> bytes | None:
    """The request for all live TCP sockets of one family (4 or 6) that any of `wanted` describes; all of them where there are
    too many to say. None where no socket of the family can be meant.
    """
    fit = [one for one in wanted if family == 6 or ":" not in one.address + one.source]
    if not fit:
        return None
    filter_ = _wide(fit) if len(fit) > MOST_WANTED else _any_of(fit)
    extra = b"" if not filter_ else _ATTRIBUTE.pack(_ATTRIBUTE.size + len(filter_), _BYTECODE) + filter_
    body = _REQUEST.pack(_AF[family], _TCP, 1 << _EXTENSION_INFO - 1, sum(LIVE)) + extra
    return _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _DUMP, sequence, 0) + body


def messages(data: bytes, *, sequence: int) -> Iterator[Message]:
    """The answers in one datagram; those to other requests are passed over. RemoteProtocolError where it is malformed."""
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER.size:
            raise RemoteProtocolError(f"sock_diag: {len(data) - at} bytes are no message")
        length, kind, flags, number, _ = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= length <= len(data) - at:
            raise RemoteProtocolError(f"sock_diag: a message of {length} bytes, {len(data) - at} are left")
        body = data[at + _HEADER.size : at + length]
        at += _aligned(length)
        if number == sequence and (found := _message(kind, flags, body)) is not None:
            yield found


def _message(kind: int, flags: int, body: bytes) -> Message | None:
    if kind == _BY_FAMILY:
        return _sock(body)
    if kind == _DONE:
        return Done(whole=not flags & _INTERRUPTED)
    if kind == _ERROR:
        if len(body) < _CODE.size:
            raise RemoteProtocolError("sock_diag: an error without its number")
        return Refused(-_CODE.unpack_from(body)[0])
    return None


def _sock(body: bytes) -> Sock | None:
    """None where the kernel gives no figures of it (a listener, a socket just closed)."""
    if len(body) < _SOCK.size:
        raise RemoteProtocolError(f"sock_diag: a socket of {len(body)} bytes, {_SOCK.size} at least are one")
    family, state, local_port, remote_port, local, remote, interface, cookie, uid, inode = _SOCK.unpack_from(body)
    info, mark = _attributes(body)
    if len(info) < _INFO.size:
        return None
    ends = _address(family, local), _port(local_port), _address(family, remote), _port(remote_port)
    grown = _grown(info, _DUPLICATES), _grown(info, _REORDERED)
    # By place: a host may have ten thousand of them, and names would double what each costs.
    head = (state, family, *ends, interface, cookie, inode, uid, mark)
    return Sock._make((*head, *_INFO.unpack_from(info), *grown))


def _attributes(body: bytes) -> tuple[bytes, int | None]:
    """tcp_info and the mark, as far as they are told."""
    at, end = _SOCK.size, len(body)
    info, mark = b"", None
    while at < end:
        if end - at < _ATTRIBUTE.size:
            raise RemoteProtocolError(f"sock_diag: {end - at} bytes are no attribute")
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if not _ATTRIBUTE.size <= length <= end - at:
            raise RemoteProtocolError(f"sock_diag: an attribute of {length} bytes, {end - at} are left")
        if kind == _EXTENSION_INFO:
            info = body[at + _ATTRIBUTE.size : at + length]
        elif kind == _MARK and length >= _ATTRIBUTE.size + _NUMBER.size:
            mark = int(_NUMBER.unpack_from(body, at + _ATTRIBUTE.size)[0])
        at += _aligned(length)
    return info, mark


def _aligned(length: int) -> int:
    """Netlink puts everything at multiples of four."""
    return length + 3 & ~3


def _port(raw: bytes) -> int:
    return raw[0] << 8 | raw[1]


def _address(family: int, raw: bytes) -> str:
    """As people write it; an IPv4 peer of an IPv6 socket as the IPv4 address it is."""
    if family == _AF[4]:
        return ".".join(map(str, raw[:4]))
    if raw[:12] == _MAPPED:
        return ".".join(map(str, raw[12:]))
    return str(ipaddress.IPv6Address(raw))


def _grown(info: bytes, at: int) -> int:
    return int(_NUMBER.unpack_from(info, at)[0]) if len(info) >= at + _NUMBER.size else 0


# -- the filter ------------------------------------------------------------------------------------------------------------


def _any_of(wanted: Sequence[Wanted]) -> bytes:
    """Byte code that takes a socket if any of them describes it; empty: it takes all."""
    conditions = [_condition(one) for one in wanted]
    return b"" if b"" in conditions else _any(conditions)


def _wide(wanted: Sequence[Wanted]) -> bytes:
    """Byte code that takes a socket if it goes to a port of any of them; empty: it takes all, where there are too many."""
    ports = {one.port for one in wanted}
    return _any([_to_port(port) for port in sorted(ports)]) if 0 not in ports and len(ports) <= MOST_WANTED else b""


def _condition(wanted: Wanted) -> bytes:
    """All that one `Wanted` asks for."""
    tests = []
    for code, address, port in ((_TARGET, wanted.address, wanted.port), (_SOURCE, wanted.source, 0)):
        parsed = ipaddress.ip_address(address) if address else None
        if parsed is not None or port:
            tests.append(_host(code, parsed, port))
    if wanted.mark is not None:
        tests.append((_MARKED, _MARK_CONDITION.pack(wanted.mark, 2**32 - 1)))
    return _all(tests)


def _host(code: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int) -> tuple[int, bytes]:
    """An IPv4 condition holds for IPv6 sockets with an IPv4 peer too: that is the kernel's own rule."""
    raw = address.packed if address else b""
    return code, _HOST.pack(_AF[address.version] if address else 0, 8 * len(raw), port or -1) + raw


def _all(tests: Sequence[tuple[int, bytes]]) -> bytes:
    """Tests that must all hold: one that does not goes past the end of all of them."""
    code, rest = b"", sum(_OP.size + len(operand) for _, operand in tests)
    for kind, operand in tests:
        size = _OP.size + len(operand)
        code += _OP.pack(kind, size, rest + _PAST) + operand
        rest -= size
    return code


def _any(conditions: Sequence[bytes]) -> bytes:
    """One must hold: behind each stands a jump to the end, and what fails it lands just behind that jump, at the next."""
    code = b""
    for condition in reversed(conditions):
        code = condition + (_OP.pack(_JUMP, _OP.size, len(code) + _OP.size) + code if code else b"")
    return code


def _to_port(port: int) -> bytes:
    return _all([(_TO_PORT, _OP.pack(0, 0, port))])
