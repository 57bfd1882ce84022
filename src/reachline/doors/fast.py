"""What `mode: fast` makes of a cluster's settings: the questions asked, their dwell, and the limits that agents count by."""

from __future__ import annotations

from typing import Final, NamedTuple

from reachline.core import baseline
from reachline.core.cusum import QUESTIONS, Question
from reachline.core.rules import Patience
from reachline.doors.effective import Effective
from reachline.doors.presets import LONG_HAUL
from reachline.model import Zone

__all__ = ["Slow", "patience", "questions", "raised", "slow"]

_LONE: Final = 2
"""Times the dwell that one vantage needs which nobody can second (`core.cusum.asked`): it never takes fewer ticks."""
_MICRO: Final = 1_000_000


class Slow(NamedTuple):
    """From which round trip on an answer counts as slow and as crawling, microseconds; 0: none does."""

    degraded_us: int = 0
    failed_us: int = 0


def slow(found: Effective) -> Slow:
    """The limits of P95, by which agents count single answers; none in `literal` mode, where nobody asks."""
    if found.settings.mode != "fast":
        return Slow()
    limit = found.settings.limits.p95
    return Slow(round((limit.degraded or 0) * _MICRO), round((limit.failed or 0) * _MICRO))


def raised(limits: Slow, usual_us: int | None, found: Effective) -> Slow:
    """These limits, or the multiples of a long haul's usual round trip where they are higher."""
    if usual_us is None or found.settings.service_class != "long_haul":
        return limits
    return Slow(
        baseline.raised(limits.degraded_us or None, usual_us, LONG_HAUL.degraded_milli) or 0,
        baseline.raised(limits.failed_us or None, usual_us, LONG_HAUL.failed_milli) or 0,
    )


def questions(found: Effective) -> tuple[Question, ...]:
    """What is asked of the evidence; nothing in `literal` mode. The document's patience is how long each must dwell.

    Where no round trip is a reason to call a line degraded, or failed, that is not asked.
    """
    if found.settings.mode != "fast":
        return ()
    ticks = {Zone.D: found.settings.patience.degraded, Zone.F: found.settings.patience.failed}
    mute = {what for what, limit in zip(("slow", "crawl"), slow(found), strict=True) if not limit}
    return tuple(one._replace(dwell=ticks[one.zone]) for one in QUESTIONS if one.what not in mute)


def patience(found: Effective) -> Patience:
    """Ticks of a zone until it is believed. In `fast` mode the dwell of the questions has been waited for by then."""
    said = found.settings.patience
    if found.settings.mode != "fast":
        return Patience(said.degraded, said.failed, said.recover, said.lone_failed)
    return Patience(1, 1, said.recover, 1 + max(0, said.lone_failed - _LONE * said.failed))
