"""What is forgotten of vantages that left: else whoever ever joined would be remembered of every line, and in every checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reachline.core.quorum import Ballot
from reachline.model import VantageId

if TYPE_CHECKING:
    from reachline.core.poll import Poll

__all__ = ["members"]


def members(poll: Poll, vantages: frozenset[VantageId], fresh_ms: int) -> None:
    """Who counts from now on. What others said is forgotten where it is too old to count, should they return; trust is not."""
    poll.vantages = vantages
    since_ms = poll.credit.closed_ms - fresh_ms
    kept = {line: _kept(cast, vantages, since_ms) for line, cast in poll.ballots.items()}
    if any(kept[line] is not cast for line, cast in poll.ballots.items()):
        poll.credit.bad, poll.credit.sees, poll.doubtful = {}, {}, set()
        poll.restore(kept)
    poll.beats = {name: beat for name, beat in poll.beats.items() if name in vantages or beat.at_ms >= since_ms}
    poll.habits.keep(vantages)


def _kept(cast: dict[VantageId, Ballot], vantages: frozenset[VantageId], since_ms: int) -> dict[VantageId, Ballot]:
    """The same where nothing is forgotten."""
    if vantages >= cast.keys():
        return cast
    found = {name: one for name, one in cast.items() if name in vantages or one.received_ms >= since_ms}
    return cast if len(found) == len(cast) else found
