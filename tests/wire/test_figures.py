"""A heartbeat whose figures cannot be true is refused by name, before it is evidence."""

from __future__ import annotations

import pytest

from reachline.errors import RemoteProtocolError
from reachline.model import CENSORED_US, Counts, Kind, Reading
from reachline.testing import builders
from reachline.wire import frame
from reachline.wire.figures import MOST, wrong
from reachline.wire.frame import Heartbeat, Report

WELL = builders.reading()


def beat(reading: Reading, doubt: int = 0) -> bytes:
    reports = (Report(line="payments/a", reading=reading),)
    return frame.encode(Heartbeat(agent="one", boot="b", sequence=1, doubt=doubt, reports=reports))


@pytest.mark.parametrize("value", [-1, MOST + 1, 2**62])
@pytest.mark.parametrize("name", [*Counts._fields, *(one for one in Reading._fields[2:] if one != "void")])
def test_every_figure_has_its_bounds(name: str, value: int) -> None:
    if name in Counts._fields:
        reading = WELL._replace(counts=Counts(**{**WELL.counts._asdict(), name: value}))
    else:
        reading = Reading(**{**WELL._asdict(), name: value})
    if name.endswith("_us") and 0 <= value <= CENSORED_US:
        assert wrong(reading) == ""
        return

    with pytest.raises(RemoteProtocolError, match=f"payments/a: tcp: {name} is {value}, must be 0…"):
        frame.decode(beat(reading))


def test_what_can_be_true_is_taken() -> None:
    most = Reading._make(
        (Kind.ICMP, Counts(*[MOST] * 8), *[MOST] * 7, *[CENSORED_US] * 4, *[MOST] * 3, True, *[MOST] * 4)
    )
    none = Reading(Kind.TCP)

    assert [wrong(reading) for reading in (WELL, most, none)] == ["", "", ""]
    assert frame.decode(beat(most))


@pytest.mark.parametrize("doubt", [-1, 10**6])
def test_a_doubt_that_would_turn_a_vote_round_is_refused(doubt: int) -> None:
    with pytest.raises(RemoteProtocolError, match="doubt is"):
        frame.decode(beat(WELL, doubt))
