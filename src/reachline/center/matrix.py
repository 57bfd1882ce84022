"""What agents found out of the ways between each other: the newest word of each of an ordered pair. For people, never evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from reachline.core import words
from reachline.core.direction import Way
from reachline.model import VantageId
from reachline.wire.frame import MeshReport
from reachline.wire.matrix import MeshWay

__all__ = ["MOST", "Matrix", "Ways", "is_troubled", "told_way"]

MOST: Final = 256
"""Others that one agent may tell of."""
_SILENT_MS: Final = 5_000
"""Without an answer for so long (25 probes at the usual pace) a way is silent."""
_WORDS: Final = {Way.NEITHER: "", Way.FORWARD: "forward", Way.REVERSE: "reverse", Way.BOTH: "both"}
_TURNED: Final = {Way.FORWARD: Way.REVERSE, Way.REVERSE: Way.FORWARD}


class _Told(NamedTuple):
    report: MeshReport
    at_ms: int


class _Side(NamedTuple):
    """One direction's figures, as the agent that asked tells them."""

    sent: int
    lost: int
    rise_us: int | None


class Matrix:
    """Written by the center's loop. Bounded by the agents that are kept, and `MOST` for each."""

    def __init__(self) -> None:
        self._told: dict[VantageId, dict[str, _Told]] = {}
        self._known: frozenset[VantageId] = frozenset()
        """Who was kept last: of these alone there are rows, but for what came since."""

    def take(self, vantage: VantageId, reports: Sequence[MeshReport], now_ms: int) -> None:
        """An agent's newest word on all others: what it no longer speaks of is forgotten."""
        if reports:
            self._told[vantage] = {each.peer: _Told(each, now_ms) for each in reports if each.peer != vantage}

    def keep(self, agents: Iterable[VantageId]) -> None:
        """These agents are there, and no others: who left tells nothing and nothing is told of it."""
        known = frozenset(agents)
        if known == self._known and known >= self._told.keys():
            return
        self._known = known
        self._told = {
            vantage: {peer: told for peer, told in row.items() if peer in known}
            for vantage, row in self._told.items()
            if vantage in known
        }

    def seen(self, now_ms: int, *, fresh_ms: int, silent_ms: int = _SILENT_MS) -> Ways:
        """All that was told, as of now; later words do not change it."""
        return Ways(dict(self._told), now_ms, fresh_ms, max(silent_ms, _SILENT_MS))


class Ways(NamedTuple):
    """All that was told, as of one moment. To read all of many agents takes a while (10 us a way), which any thread may do."""

    told: Mapping[VantageId, Mapping[str, _Told]]
    now_ms: int
    fresh_ms: int
    silent_ms: int

    def rows(self, *, agent: str = "", only_trouble: bool = False) -> list[MeshWay]:
        """Every way that anybody knows of, or of one agent's, or of those in trouble, by vantage and peer."""
        pairs = {(str(one), other) for one, row in self.told.items() for other in row}
        pairs |= {(other, one) for one, other in pairs}
        ways = (self.way(*pair) for pair in sorted(pairs) if not agent or agent in pair)
        return [way for way in ways if not only_trouble or is_troubled(way)]

    def between(self, vantages: Iterable[str], ends: Collection[str]) -> Iterator[MeshWay]:
        """The ways from these vantages to these ends that anybody knows of."""
        pairs = ((one, other) for one in sorted(vantages) for other in sorted(ends) if one != other)
        return (self.way(*pair) for pair in pairs if self._word(*pair) or self._word(*reversed(pair)))

    def way(self, one: str, other: str) -> MeshWay:
        """The way from one to the other: its own word, or the other's read backwards where that alone is fresh or there."""
        own, mirrored = self._word(one, other), self._word(other, one)
        is_own = own is not None and (mirrored is None or self._is_fresh(own) or not self._is_fresh(mirrored))
        told = own if is_own else mirrored
        assert told is not None
        state = self._state(told)
        found = told.report
        there = _Side(found.sent, found.forward_lost, found.forward_rise_us)
        back = _Side(found.replied, found.reverse_lost, found.reverse_rise_us)
        loss, delay = Way(found.loss), Way(found.delay)
        if not is_own:
            there, back, loss, delay = back, there, _TURNED.get(loss, loss), _TURNED.get(delay, delay)
        elif state == "heard" and mirrored is not None and self._state(mirrored) == "heard":
            loss, back = _completed(loss, back, mirrored.report)
        if state == "silent":
            loss, delay = self._dead(one, other), Way.NEITHER
        return {
            "vantage": one,
            "peer": other,
            "told_by": one if is_own else other,
            "state": state,
            "age": round(max(self.now_ms - told.at_ms, 0) / 1_000, 3),
            "silent": None if found.silent_ms is None else found.silent_ms / 1_000,
            "error": found.error,
            "rtt": _seconds(found.rtt_us),
            "sent": there.sent,
            "lost": there.lost,
            "loss": _rate(there),
            "rise": _seconds(there.rise_us),
            "sent_back": back.sent,
            "lost_back": back.lost,
            "loss_back": _rate(back),
            "rise_back": _seconds(back.rise_us),
            "losing": "" if state == "stale" else _WORDS[loss],
            "delayed": "" if state == "stale" else _WORDS[delay],
            "drift": None if found.drift_ppb is None else found.drift_ppb / 1_000,
            "stepped": found.stepped,
        }

    def _word(self, one: str, other: str) -> _Told | None:
        return self.told.get(VantageId(one), {}).get(other)

    def _is_fresh(self, told: _Told) -> bool:
        return self.now_ms - told.at_ms <= self.fresh_ms

    def _state(self, told: _Told) -> str:
        if not self._is_fresh(told):
            return "stale"
        silent = told.report.silent_ms
        return "silent" if silent is None or silent > self.silent_ms else "heard"

    def _dead(self, one: str, other: str) -> Way:
        """Which way nothing comes through, by what arrives at either end.

        Nothing is said unless both speak of the silence: the last word of an agent that died is of before.
        """
        here, there = self._word(one, other), self._word(other, one)
        if here is None or there is None or not (self._is_silent(here) and self._is_silent(there)):
            return Way.NEITHER
        is_dead, is_dead_back = not self._arrives(there), not self._arrives(here)
        return Way(Way.FORWARD * is_dead | Way.REVERSE * is_dead_back)

    def _is_silent(self, told: _Told) -> bool:
        return self._state(told) == "silent"

    def _arrives(self, told: _Told) -> bool:
        """Whether the other one's questions come to who told this: half the silence is far from both, a moment ago and never."""
        asked = told.report.asked_ms
        return asked is not None and asked <= self.silent_ms // 2


def _completed(loss: Way, back: _Side, other: MeshReport) -> tuple[Way, _Side]:
    """The loss with what the other end is certain of on its way here.

    A probe that is lost on the way there never tried the way back: who asks sees an outage of both ways as one of the first alone.
    """
    if loss is not Way.FORWARD or not other.loss & Way.FORWARD:
        return loss, back
    return Way.BOTH, _Side(other.sent, other.forward_lost, back.rise_us)


def is_troubled(way: MeshWay) -> bool:
    """Whether there is more to say of it than its figures."""
    return way["state"] != "heard" or bool(way["losing"] or way["delayed"])


def told_way(way: MeshWay) -> str:
    """What is certain of a way, in words that follow the name of its vantage; empty where nothing is."""
    there, back = f"on the way to {way['peer']}", f"on the way back from {way['peer']}"
    if way["state"] == "silent":
        dead = {
            "forward": f"nothing gets through to {way['peer']}",
            "reverse": f"nothing comes back from {way['peer']}",
        }
        return dead.get(way["losing"], f"hears nothing from {way['peer']}")
    texts = []
    if way["losing"] in ("forward", "both"):
        texts.append(f"loses {way['lost']} of {way['sent']} probes {there}")
    if way["losing"] in ("reverse", "both"):
        texts.append(f"loses {way['lost_back']} of {way['sent_back']} {back}")
    if way["delayed"] in ("forward", "both"):
        texts.append(f"{words.milliseconds(round(1e6 * (way['rise'] or 0)))} slower than usual {there}")
    if way["delayed"] in ("reverse", "both"):
        texts.append(f"{words.milliseconds(round(1e6 * (way['rise_back'] or 0)))} slower than usual {back}")
    return ", ".join(texts)


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6


def _rate(side: _Side) -> float | None:
    return side.lost / side.sent if side.sent else None
