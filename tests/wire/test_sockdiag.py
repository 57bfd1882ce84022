"""sock_diag: what the kernel says of a connection, read within its bounds; and filters, run as the kernel runs them."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import RemoteProtocolError
from reachline.wire.sockdiag import MOST_WANTED, Done, Message, Refused, Sock, Wanted, messages, request

BY_FAMILY, DONE, ERROR = 20, 3, 2
SEQUENCE = 7
INFO = {
    "pending": (2, "B", 3), "backoff": (4, "B", 2), "unacked": (24, "I", 5), "sent_ago": (44, "I", 1_200),
    "heard_ago": (56, "I", 1_900), "rtt_us": (68, "I", 20_097), "deviation_us": (72, "I", 410),
    "retransmitted": (100, "I", 9), "acked": (120, "Q", 2**40), "lowest_us": (148, "I", 19_800),
    "segments": (156, "I", 700), "delivery": (160, "Q", 2**33), "duplicates": (216, "I", 4), "reordered": (220, "I", 1),
}  # fmt: skip
"""struct tcp_info: where each figure stands, and what this test puts there."""


def info(size: int = 232) -> bytes:
    raw = bytearray(size)
    for at, kind, value in INFO.values():
        if at + struct.calcsize(kind) <= size:
            struct.pack_into(f"={kind}", raw, at, value)
    return bytes(raw)


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def sock(family: int, local: str, remote: str, *attributes: bytes, state: int = 1) -> bytes:
    ends = b"".join(ipaddress.ip_address(end).packed.ljust(16, b"\0") for end in (local, remote))
    head = struct.pack("=BBBB", family, state, 0, 0) + struct.pack("!HH", 40_000, 443) + ends
    return head + struct.pack("=IQIIIII", 3, 2**50 + 1, 0, 0, 0, 1_000, 4_242) + b"".join(attributes)


def message(kind: int, body: bytes, *, flags: int = 2, sequence: int = SEQUENCE) -> bytes:
    raw = struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 99) + body
    return raw + bytes(-len(raw) % 4)


def heard(data: bytes) -> list[Message]:
    return list(messages(data, sequence=SEQUENCE))


def test_a_socket_is_read_with_all_its_figures() -> None:
    body = sock(
        2, "10.0.0.3", "10.20.30.40", attribute(8, b"\0"), attribute(2, info()), attribute(15, struct.pack("=I", 77))
    )

    (found,) = heard(message(BY_FAMILY, body))

    assert isinstance(found, Sock)
    assert (found.local, found.local_port, found.remote, found.remote_port) == ("10.0.0.3", 40_000, "10.20.30.40", 443)
    assert (found.state, found.interface, found.cookie, found.uid, found.inode) == (1, 3, 2**50 + 1, 1_000, 4_242)
    assert found.mark == 77
    assert {name: getattr(found, name) for name in INFO} == {name: value for name, (_, _, value) in INFO.items()}


def test_an_ipv4_peer_of_an_ipv6_socket_is_the_ipv4_address_it_is() -> None:
    body = sock(10, "::ffff:10.0.0.3", "::ffff:10.20.30.40", attribute(2, info()))

    (found,) = heard(message(BY_FAMILY, body))

    assert isinstance(found, Sock)
    assert (found.local, found.remote, found.mark) == ("10.0.0.3", "10.20.30.40", None)


def test_what_an_older_kernel_does_not_tell_reads_as_nothing() -> None:
    older = sock(2, "10.0.0.3", "10.20.30.40", attribute(2, info(168)))
    oldest = sock(2, "10.0.0.3", "10.20.30.40", attribute(2, info(104)))

    (found,) = heard(message(BY_FAMILY, older) + message(BY_FAMILY, oldest))

    assert isinstance(found, Sock)
    assert (found.delivery, found.duplicates, found.reordered) == (2**33, 0, 0)


def test_the_end_an_interrupted_end_and_a_refusal_are_told_apart_and_other_requests_answers_passed_over() -> None:
    data = (
        message(DONE, struct.pack("=i", 0))
        + message(DONE, struct.pack("=i", 0), flags=0x12)
        + message(ERROR, struct.pack("=i", -1))
        + message(DONE, struct.pack("=i", 0), sequence=SEQUENCE - 1)
    )

    assert heard(data) == [Done(whole=True), Done(whole=False), Refused(1)]


GOOD = message(BY_FAMILY, sock(2, "10.0.0.3", "10.20.30.40", attribute(2, info())))


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 8,
        GOOD[:-4],
        struct.pack("=IHHII", 8, DONE, 0, SEQUENCE, 0),
        struct.pack("=IHHII", 0, DONE, 0, SEQUENCE, 0),
        message(BY_FAMILY, b"\2\1" + bytes(40)),
        message(BY_FAMILY, sock(2, "1.1.1.1", "2.2.2.2", struct.pack("=HH", 60, 2))),
        message(BY_FAMILY, sock(2, "1.1.1.1", "2.2.2.2", struct.pack("=HH", 3, 2))),
        message(BY_FAMILY, sock(2, "1.1.1.1", "2.2.2.2", b"\4\0")),
        message(ERROR, b"\1"),
    ],
    ids=["short", "cut", "less than a header", "no length", "half a socket", "attribute too long", "too short", "cut off", "no number"],
)  # fmt: skip
def test_what_is_cut_short_or_claims_what_it_has_not_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="sock_diag"):
        heard(data)


@given(at=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255), cut=st.integers(0, len(GOOD)))
def test_garbage_is_read_or_refused_never_more(at: int, byte: int, cut: int) -> None:
    data = (GOOD[:at] + bytes([byte]) + GOOD[at + 1 :])[:cut]

    try:
        assert len(heard(data)) <= 2
    except RemoteProtocolError:
        return


# -- filters ---------------------------------------------------------------------------------------------------------------


def filter_of(family: int, wanted: list[Wanted]) -> bytes | None:
    """The byte code in a request, empty where it asks for all; None where there is nothing to ask."""
    raw = request(family, wanted, sequence=1)
    if raw is None:
        return None
    assert len(raw) == struct.unpack_from("=I", raw)[0]
    rest = raw[16 + 56 :]
    if not rest:
        return b""
    length, kind = struct.unpack_from("=HH", rest)
    assert (length, kind) == (len(rest), 1)
    return rest[4:]


def runs(code: bytes, family: int, local: str, remote: str, port: int, mark: int = 0) -> bool:
    """The kernel's own machine (net/ipv4/inet_diag.c, inet_diag_bc_run), over one socket."""
    ends = {7: ipaddress.ip_address(local), 8: ipaddress.ip_address(remote)}
    at, left = 0, len(code)
    while left > 0:
        kind, yes, no = struct.unpack_from("=BBH", code, at)
        holds = False
        if kind in ends:
            af, prefix, asked = struct.unpack_from("=BBxxi", code, at + 4)
            address, end = code[at + 12 : at + 12 + prefix // 8], ends[kind]
            fits = af == 0 or address == end.packed
            holds = fits and asked in {-1, port if kind == 8 else 40_000}
        elif kind == 10:
            holds = mark & struct.unpack_from("=I", code, at + 8)[0] == struct.unpack_from("=I", code, at + 4)[0]
        elif kind == 12:
            holds = port == struct.unpack_from("=BBH", code, at + 4)[2]
        else:
            assert kind == 1, f"no such operation: {kind}"
        step = yes if holds else no
        assert step >= 4
        assert step % 4 == 0
        at, left = at + step, left - step
    return left == 0


ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"])
WANTED = st.builds(
    Wanted,
    address=ADDRESSES | st.just(""),
    port=st.sampled_from([0, 80, 443]),
    source=st.sampled_from(["", "10.9.9.9", "fd00::9"]),
    mark=st.sampled_from([None, 5, 6]),
)


def fits(one: Wanted, local: str, remote: str, port: int, mark: int) -> bool:
    return (
        one.address in {"", remote} and one.port in {0, port} and one.source in {"", local} and one.mark in {None, mark}
    )


@given(
    wanted=st.lists(WANTED, max_size=6), local=st.sampled_from(["10.9.9.9", "fd00::9"]), remote=ADDRESSES,
    port=st.sampled_from([80, 443, 8_080]), mark=st.sampled_from([0, 5]),
)  # fmt: skip
def test_a_filter_takes_exactly_what_any_condition_describes(
    wanted: list[Wanted], local: str, remote: str, port: int, mark: int
) -> None:
    family = 6 if ":" in local + remote else 4

    code = filter_of(family, wanted)

    taken = code is not None and runs(code, family, local, remote, port, mark)
    assert taken is any(fits(one, local, remote, port, mark) for one in wanted)


@pytest.mark.parametrize(
    ("addresses", "ports", "operations"), [(MOST_WANTED, 1, {1, 8}), (MOST_WANTED + 1, 1, {12}), (300, 300, set())]
)
def test_too_many_conditions_become_ports_and_too_many_ports_become_everything(
    addresses: int, ports: int, operations: set[int]
) -> None:
    wanted = [Wanted(address=f"10.0.{at // 250}.{at % 250 + 1}", port=1 + at % ports) for at in range(addresses)]

    code = filter_of(4, wanted)

    assert code is not None
    assert runs(code, 4, "10.9.9.9", "10.0.0.1", 1)
    assert set(code[:1]) <= operations
    assert bool(code) is bool(operations)
