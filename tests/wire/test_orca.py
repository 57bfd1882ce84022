"""Load reports as endpoints send them, in all the ways they may."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.pick.orca import Report
from reachline.wire.orca import BINARY, HEADER, SIZE_MOST, load_report, report_in

WHOLE = Report(
    qps=100.5,
    eps=2.0,
    application=0.7,
    cpu=0.5,
    named={
        "named_metrics.queue": 3.0,
        "utilization.disk": 0.25,
        "cpu_utilization": 0.5,
        "application_utilization": 0.7,
    },
)


def message() -> bytes:
    """The same by protobuf's own encoder, with a field besides that nobody weighs by."""
    orca = pytest.importorskip("xds.data.orca.v3.orca_load_report_pb2")
    made = orca.OrcaLoadReport(
        rps_fractional=100.5, eps=2.0, application_utilization=0.7, cpu_utilization=0.5, rps=7, request_cost={}
    )
    made.named_metrics["queue"] = 3.0
    made.utilization["disk"] = 0.25
    return bytes(made.SerializeToString())


def test_a_report_reads_alike_in_every_form() -> None:
    text = (
        "rps_fractional=100.5, eps=2, application_utilization=0.7,cpu_utilization=0.5,"
        "named_metrics.queue=3,utilization.disk=0.25"
    )
    json = (
        '{"rps_fractional": 100.5, "eps": 2, "applicationUtilization": 0.7, "cpu_utilization": "0.5",'
        ' "named_metrics": {"queue": 3}, "utilization": {"disk": 0.25}}'
    )
    binary = base64.b64encode(message()).decode()

    assert load_report(f"TEXT {text}") == load_report(text) == WHOLE
    assert load_report(f"JSON {json}") == WHOLE
    assert load_report(f"BIN {binary}") == load_report(f"BIN {binary.rstrip('=')}") == WHOLE
    assert load_report(binary, is_binary=True) == load_report(message(), is_binary=True) == WHOLE


def test_the_header_is_found_by_either_name_and_the_first_counts() -> None:
    binary = base64.b64encode(message()).decode()

    assert report_in({HEADER: "TEXT eps=1", BINARY: binary}.get) == Report(eps=1.0)
    assert report_in({BINARY: binary}.get) == WHOLE
    assert report_in({BINARY: message()}.get) == WHOLE
    assert report_in(dict[str, str]().get) is None


def test_whole_calls_of_older_reporters_count_where_there_is_nothing_finer() -> None:
    orca = pytest.importorskip("xds.data.orca.v3.orca_load_report_pb2")
    old = bytes(orca.OrcaLoadReport(rps=7, cpu_utilization=0.5).SerializeToString())

    found = load_report(old, is_binary=True)

    assert found is not None
    assert (found.qps, found.cpu) == (7.0, 0.5)


@pytest.mark.parametrize(
    "text",
    [
        "TEXT cpu_utilization",
        "TEXT cpu_utilization=a",
        "TEXT unknown=1",
        "TEXT unknown.key=1",
        "JSON [1]",
        "JSON {",
        'JSON {"unknown": 1}',
        'JSON {"eps": true}',
        'JSON {"eps": null}',
        'JSON {"eps": {"a": 1}}',
        "JSON " + "[" * 4_000,
        'JSON {"eps": 1' + "0" * 400 + "}",
        "BIN !!!",
        "BIN " + base64.b64encode(b"\x09\x00").decode(),
        "BIN " + base64.b64encode(b"\xff" * 11).decode(),
        "BIN " + base64.b64encode(b"\x0b").decode(),
        "TEXT eps=1" + " " * SIZE_MOST,
        "BIN \N{SNOWMAN}",
    ],
)
def test_what_cannot_be_read_is_no_report(text: str) -> None:
    assert load_report(text) is None


@given(st.text() | st.binary(), st.booleans())
def test_nothing_that_is_sent_raises(said: str | bytes, is_binary: bool) -> None:
    load_report(said, is_binary=is_binary)


@given(st.sampled_from(["TEXT ", "JSON ", "BIN "]), st.text(alphabet='eps=1.,{}:"NaN[]cu_tilzao', max_size=40))
def test_nor_does_what_begins_well(kind: str, rest: str) -> None:
    load_report(kind + rest)
