"""One look at an outbound: a request to each of its targets, and enough of them must pass. What passes, and how failures are said."""

from __future__ import annotations

from typing import Final

from reachline.core.observing.rules import Care, ObserverRules
from reachline.core.observing.selecting import is_selected
from reachline.core.observing.values import Purpose, Result

__all__ = ["Aim", "Attempt", "aim_of"]


class Aim:
    """What the outbounds of a group are asked, and what passes."""

    __slots__ = ("expect", "quorum", "targets")

    def __init__(self, targets: tuple[str, ...], quorum: int, expect: tuple[tuple[int, int], ...]) -> None:
        self.targets: Final = targets
        self.quorum: Final = quorum
        self.expect: Final = expect

    def fault(self, result: Result) -> str:
        """Why it did not pass; empty: it did. A status nobody knows is none to judge by."""
        if not result.ok:
            return result.reason or "failed"
        if not self.expect or not result.status or any(low <= result.status <= high for low, high in self.expect):
            return ""
        wanted = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in self.expect)
        return f"answers status {result.status}, not {wanted}"


def aim_of(tag: str, rules: ObserverRules, care: Care) -> Aim:
    """That of the first group that selects the tag, else the document's own."""
    for group in care.groups:
        if is_selected(tag, group.selectors):
            return Aim(group.targets or (rules.target,), group.quorum, group.expect or care.expect)
    return Aim((rules.target,), 1, care.expect)


class Attempt:
    """Decided by the quorum's last pass, by the failure that makes it impossible, or by our own fault. Written by its observer."""

    __slots__ = ("_aim", "_failed", "_rtts", "is_decided", "purpose", "reason")

    def __init__(self, purpose: Purpose, aim: Aim) -> None:
        self.purpose: Final = purpose
        self._aim: Final = aim
        self._rtts: list[int] = []
        self._failed = 0
        self.reason = ""
        self.is_decided = False

    def ended(self, result: Result) -> bool:
        """One target answered, or did not; whether this decides it."""
        if self.is_decided:
            return False
        if fault := self._aim.fault(result):
            self._failed += 1
            self.reason = fault
        else:
            self._rtts.append(result.rtt)
        spare = len(self._aim.targets) - self._aim.quorum
        self.is_decided = len(self._rtts) >= self._aim.quorum or self._failed > spare
        return self.is_decided

    @property
    def passed(self) -> bool:
        return len(self._rtts) >= self._aim.quorum

    @property
    def rtt(self) -> int:
        """The middle one of those that passed."""
        return sorted(self._rtts)[len(self._rtts) // 2] if self._rtts else 0
