from __future__ import annotations

import pytest

from reachline.model import Clock
from reachline.net.clocks import Clocks

MS = 1_000_000


class Watch:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.mono, self.real = 1_000 * MS, 5_000_000 * MS

    def clocks(self) -> Clocks:
        made = Clocks(lambda: self.real, away=10_000_000)
        made.ns = lambda: self.mono
        return made

    def pass_by(self, ns: int, *, step: int = 0) -> None:
        self.mono += ns
        self.real += ns + step


def test_a_stamp_is_believed_whatever_our_own_watch_says():
    watch = Watch()
    clocks = watch.clocks()
    began = (watch.mono, watch.real)
    watch.pass_by(90 * MS)

    rtt, clock, took = clocks.measure(*began, began[1] + 20 * MS)

    assert (rtt, clock, took) == (20_000, Clock.RX_STAMP, 20_000)


@pytest.mark.parametrize("step_ms", [-3_600_000, -2, 2, 3_600_000])
def test_a_stepped_wall_clock_makes_us_use_our_own_watch(step_ms):
    watch = Watch()
    clocks = watch.clocks()
    began = (watch.mono, watch.real)
    clocks.look(alive=False)
    watch.pass_by(5 * MS, step=step_ms * MS)

    rtt, clock, _ = clocks.measure(*began, began[1] + 4 * MS)

    assert (rtt, clock) == (5_000, Clock.APP)
    assert clocks.stepped == 1


def test_being_sent_away_between_two_readings_is_no_step():
    watch = Watch()
    clocks = watch.clocks()
    began = (watch.mono, watch.real)
    watch.pass_by(5 * MS)
    away = iter([0, 3 * MS])

    def late() -> int:
        watch.pass_by(next(away, 0))
        return watch.mono

    clocks.ns = late

    assert clocks.measure(*began, began[1] + 4 * MS) == (4_000, Clock.RX_STAMP, 4_000)
    assert clocks.stepped == 0


@pytest.mark.parametrize("away_us", [[3_000], [90], [90, 40], [30, 90, 90]])
def test_nor_is_it_where_a_question_is_asked(away_us):
    watch = Watch()
    clocks = watch.clocks()
    away = iter(each * 1_000 for each in away_us)

    def late() -> int:
        watch.pass_by(next(away, 0))
        return watch.real

    clocks.wall = late
    clocks.sync()

    assert 0 <= clocks.offset - (watch.real - watch.mono) <= 30_000

    began = (watch.mono, watch.real)
    watch.pass_by(5 * MS)

    assert clocks.measure(*began, watch.real - MS) == (4_000, Clock.RX_STAMP, 4_000)
    assert clocks.stepped == 0


def test_a_stamp_from_before_the_question_is_not_believed():
    watch = Watch()
    clocks = watch.clocks()
    clocks.look(alive=False)

    rtt, clock, _ = clocks.measure(watch.mono, watch.real, watch.real - 1)

    assert (rtt, clock) == (0, Clock.APP)


def test_without_a_stamp_an_absence_of_ours_leaves_no_rtt_and_is_the_lines_gain():
    watch = Watch()
    clocks = watch.clocks()
    clocks.look(alive=False)
    began = (watch.mono, watch.real)
    watch.pass_by(40 * MS)
    clocks.look(alive=True)

    rtt, clock, took = clocks.measure(*began, None)

    assert (rtt, clock, took) == (None, Clock.APP, 0)
    assert clocks.blurred == 1
    assert clocks.elapsed(began[0]) == 0


def test_a_short_absence_is_believed():
    watch = Watch()
    clocks = watch.clocks()
    clocks.look(alive=False)
    began = (watch.mono, watch.real)
    watch.pass_by(9 * MS)
    clocks.look(alive=True)

    assert clocks.measure(*began, None)[0] == 9_000
    assert clocks.blurred == 0
