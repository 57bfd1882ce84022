"""Loads that a cluster's endpoints report with their answers, and the weights that come of them. Pure but for what it remembers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from reachline.core.pick import Member
from reachline.core.pick.orca import Report, Reported, Weighing, learned, reweighed
from reachline.doors.envoy.fields import Block
from reachline.upstream.durations import seconds

__all__ = ["Reports", "weighing"]

T = TypeVar("T")

_POLICY: Final = "client_side_weighted_round_robin"
"""The policy that weighs by reports."""
_UPDATE_LEAST: Final = 0.1
"""Seconds; Envoy's own."""


def weighing(block: Block) -> Weighing | None:
    """The policy's fields, named as in Envoy; None where another policy is named."""
    if block.raw("name") != _POLICY:
        return None
    usual = Weighing()
    update = seconds(block, "weight_update_period", usual.update_ms / 1_000)
    return Weighing(
        blackout_ms=int(seconds(block, "blackout_period", usual.blackout_ms / 1_000) * 1_000),
        expiry_ms=int(seconds(block, "weight_expiration_period", usual.expiry_ms / 1_000) * 1_000),
        update_ms=int(max(update, _UPDATE_LEAST) * 1_000),
        penalty=block.number("error_utilization_penalty", usual.penalty),
        named=block.texts("metric_names_for_computing_utilization"),
    )


class Reports:
    """Written under its cluster's lock."""

    __slots__ = ("_known", "_weighing", "due_ms")

    due_ms: int | None
    """When weights are to be looked at again; None while nobody has reported."""

    def __init__(self, weighing: Weighing) -> None:
        self._weighing: Final = weighing
        self.forget()

    def forget(self) -> None:
        """In a forked child: what the parent's calls were told."""
        self._known: dict[str, Reported] = {}
        self.due_ms = None

    def told(self, key: str, report: Report, now_ms: int) -> None:
        """One endpoint's report, by what its calls are counted by."""
        known = learned(self._known.get(key), report, now_ms, self._weighing)
        if known is None:
            return
        self._known[key] = known
        if self.due_ms is None:
            self.due_ms = now_ms + self._weighing.update_ms

    def keep(self, keys: Iterable[str]) -> None:
        """Forget endpoints that are gone."""
        stay = set(keys)
        self._known = {key: known for key, known in self._known.items() if key in stay}

    def weigh(self, seats: Sequence[Member[T]], now_ms: int) -> Sequence[Member[T]]:
        """The endpoints with the weights that count now."""
        return reweighed(seats, self._known, now_ms, self._weighing)

    def turn(self, seats: Sequence[Member[T]], served: Sequence[int], now_ms: int) -> bool:
        """Whether the weights are others than those that are `served`; to be asked once `due_ms` has come."""
        self.due_ms = now_ms + self._weighing.update_ms if self._known else None
        return [each.weight for each in self.weigh(seats, now_ms)] != list(served)
