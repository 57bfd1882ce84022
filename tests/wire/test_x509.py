from __future__ import annotations

import datetime as dt
import ssl

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import RemoteProtocolError
from reachline.wire.x509 import expires

CA = trustme.CA()


def der(end: dt.datetime) -> bytes:
    made = CA.issue_cert("a.test", not_before=dt.datetime(1999, 1, 1, tzinfo=dt.UTC), not_after=end)
    return ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())


@pytest.mark.parametrize(
    "end",
    [
        dt.datetime(2001, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
        dt.datetime(2049, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
        dt.datetime(2050, 1, 1, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
    ],
)
def test_a_certificates_end_is_read_in_both_forms_of_time(end):
    assert expires(der(end)) == int(end.timestamp())


GOOD = der(dt.datetime(2031, 1, 1, tzinfo=dt.UTC))


@pytest.mark.parametrize(
    "blob",
    [b"", b"\x30", b"\x30\x80", b"\x31\x00", b"\x30\x84\xff\xff\xff\xff", GOOD[:100], GOOD[4:]],
    # Named: GOOD is another certificate in each test process, and all must collect the same tests.
    ids=["nothing", "a tag", "no end", "another tag", "too long", "cut short", "its inside"],
)
def test_what_is_no_certificate_is_refused(blob):
    with pytest.raises(RemoteProtocolError):
        expires(blob)


@given(st.binary(max_size=300))
def test_garbage_is_refused_never_more(blob):
    with pytest.raises(RemoteProtocolError):
        expires(blob)


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), min_size=1, max_size=5))
def test_a_certificate_with_wrong_bytes_is_read_or_refused(changes):
    blob = bytearray(GOOD)
    for at, byte in changes:
        blob[at % len(blob)] = byte
    try:
        assert isinstance(expires(bytes(blob)), int)
    except RemoteProtocolError:
        return
