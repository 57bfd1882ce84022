"""An Envoy as a vantage: what it is asked to probe of an agent's plan, and what its verdicts are as readings. Pure.

It says of an endpoint only whether the last probe went well, each time it reports. One such word, at the probe's own pace, is one
attempt; their windows are kept here as an agent keeps its own. No round trip, no packets: weaker evidence (quality 1).
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reachline.doors.addresses import parse_target
from reachline.errors import ConfigError
from reachline.model import Counts, Health, Kind, LineId, Reading
from reachline.talk import build
from reachline.talk.http import HttpProbe
from reachline.talk.secure import Secure
from reachline.talk.tcp import TcpProbe
from reachline.wire.frame import SLICE, Detail, LinePlan, Plan, ProbePlan, Report
from reachline.wire.hds import Ask, Asked, Secured, Verdict

__all__ = ["Asking", "Verdicts", "asking"]

_SOONEST_MS: Final = 500
"""Reports no oftener than the judge's shortest tick…"""
_LATEST_MS: Final = 10_000
"""…and no rarer than the default heartbeat."""
_SLACK: Final = 10
"""A probe's verdict is a new one a tenth of its interval early: timers of two processes drift."""
_UNDERWAY_MS: Final = 500
"""What is asked is there, and what is answered here, within this time."""
_ROUNDS: Final = 3
_RECENT: Final = 5
"""As many as a reading tells of (`model.Reading`)."""
_WELL: Final = frozenset({Health.HEALTHY, Health.DEGRADED})
_SILENT: Final = frozenset({Health.UNKNOWN, Health.DRAINING})
"""Not probed yet, or not meant to be judged."""
_SAID: Final = Detail()
_UNTOLD: Final = Detail(error="HDS says that the probe failed, not how")


Said = dict[str, dict[tuple[str, int], Health]]
"""What a report says, by the name it was asked under, then by address."""


class _Watched(NamedTuple):
    line: LineId
    plan: ProbePlan
    interval_ms: int


class Asking(NamedTuple):
    """What an Envoy is asked."""

    asks: tuple[Ask, ...]
    every_ms: int
    watched: Mapping[str, _Watched]
    """By the name that its verdicts come under."""
    excuses: tuple[Report, ...]
    """For people, in the place of readings that will not come."""


def asking(
    plan: Plan, addresses: Mapping[LineId, Sequence[tuple[str, int]]], suspects: Container[str] = frozenset()
) -> Asking:
    """An agent's plan (HTTP and TCP kinds only) as an Envoy can carry it out; `addresses` are those of lines reached directly.

    `suspects` are probed at their suspect interval, in place of an agent's bursts: Envoy makes one connection at a time.
    """
    asks: list[Ask] = []
    watched: dict[str, _Watched] = {}
    excuses: list[Report] = []
    for line in plan.lines:
        at = tuple(addresses.get(LineId(line.line), ()))
        for probe in line.probes:
            interval_ms = probe.suspect_interval_ms if line.line in suspects else probe.interval_ms
            found = _excuse(line, at) or _ask(line, probe, at, interval_ms)
            if isinstance(found, str):
                excuses.append(
                    Report(line=line.line, reading=Reading(probe.kind, void=True), detail=Detail(error=found))
                )
            else:
                asks.append(found)
                watched[found.name] = _Watched(LineId(line.line), probe, interval_ms)
    # As often as a line in doubt is probed, also while none is: a vantage whose pace changes would be missed for a while.
    fastest = min((each.plan.suspect_interval_ms for each in watched.values()), default=plan.heartbeat_ms)
    every_ms = min(max(min(plan.heartbeat_ms, fastest), _SOONEST_MS), _LATEST_MS)
    return Asking(tuple(asks), every_ms, watched, tuple(excuses))


def _excuse(line: LinePlan, at: Sequence[tuple[str, int]]) -> str:
    if line.via != "direct" or line.source or line.interface:
        return "an Envoy cannot leave by this line's proxy, source or interface; agents can"
    return "" if at else "its name has no address yet"


def _ask(line: LinePlan, probe: ProbePlan, at: tuple[tuple[str, int], ...], interval_ms: int) -> Ask | str:
    """The check, or why an Envoy cannot make it."""
    endpoint = parse_target(line.target)
    try:
        said = build(probe.kind, endpoint, probe.options)
    except ConfigError as error:
        return f"cannot be asked of an Envoy: {error}"[:300]
    name = f"{line.line} {probe.kind.value}"
    match said:
        case HttpProbe() if said.asked.body:
            return "an Envoy sends no body with its checks"
        case HttpProbe():
            # How long a body is, is said for there is none.
            headers = tuple(each for each in said.asked.headers if each[0].lower() != "content-length")
            request = said.asked._replace(headers=headers)
            http = Asked(request=request, expect=said.expect, body=said.body, is_second=said.is_second)
            return Ask(
                name=name, addresses=at, interval_ms=interval_ms, timeout_ms=probe.timeout_ms, http=http,
                secured=_secured(said.secure),
            )  # fmt: skip
        case TcpProbe():
            return Ask(
                name=name, addresses=at, interval_ms=interval_ms, timeout_ms=probe.timeout_ms,
                send=said.send, receive=said.expect, secured=_secured(said.secure),
            )  # fmt: skip
        case _:
            return f"an Envoy cannot probe {probe.kind.value}"


def _secured(secure: Secure | None) -> Secured | None:
    return None if secure is None else Secured(secure.server_name, secure.alpn)


@dataclass(slots=True)
class _Window:
    """The verdicts on one line by one kind."""

    plan: ProbePlan
    rounds: deque[tuple[int, int, int, int]] = field(default_factory=deque)
    """When, and of its addresses how many were ok, timed out, failed…"""
    ok: int = 0
    """…and their sums."""
    late: int = 0
    failed: int = 0
    health: dict[tuple[str, int], Health] = field(default_factory=dict)
    fresh_ok: int = 0
    fresh_failed: int = 0

    def take(self, said: Mapping[tuple[str, int], Health], now_ms: int, interval_ms: int) -> None:
        """What one report says: a new round where the probe was due again, or says something else."""
        known = {at: health for at, health in said.items() if health not in _SILENT}
        rounds = self.rounds
        is_due = not rounds or now_ms - rounds[-1][0] >= interval_ms - interval_ms // _SLACK
        if known and (is_due or known != self.health):
            ok = sum([health in _WELL for health in known.values()])
            late = sum([health is Health.TIMEOUT for health in known.values()])
            self._count(now_ms, ok, late, len(known) - ok - late)
            self.fresh_ok += ok
            self.fresh_failed += len(known) - ok
            self.health = known
        while rounds and (now_ms - rounds[0][0] > self.plan.max_age_ms or len(rounds) > self.plan.window):
            _, ok, late, failed = rounds.popleft()
            self.ok, self.late, self.failed = self.ok - ok, self.late - late, self.failed - failed

    def _count(self, now_ms: int, ok: int, late: int, failed: int) -> None:
        self.rounds.append((now_ms, ok, late, failed))
        self.ok, self.late, self.failed = self.ok + ok, self.late + late, self.failed + failed

    def reading(self, now_ms: int) -> Reading:
        """The window as it is now."""
        rounds, is_http = self.rounds, self.plan.kind is Kind.HTTP
        newest = [rounds[place] for place in range(max(-_RECENT, -len(rounds)), 0)]
        recent = [bad for _, ok, late, failed in newest for bad in (*(0,) * ok, *(1,) * (late + failed))][-_RECENT:]
        found = Reading(
            kind=self.plan.kind,
            counts=Counts(
                ok=self.ok,
                late=self.late,
                errors=self.failed if is_http else 0,
                refused=0 if is_http else self.failed,
            ),
            rounds=len(newest[-_ROUNDS:]),
            rounds_ok=sum([each[1] > 0 for each in newest[-_ROUNDS:]]),
            recent=len(recent) if is_http else 0,
            recent_bad=sum(recent) if is_http else 0,
            fresh_ok=self.fresh_ok,
            fresh_failed=self.fresh_failed,
            covered_ms=now_ms - rounds[0][0] if rounds else 0,
            quality=1,
        )
        self.fresh_ok = self.fresh_failed = 0
        return found


class Verdicts:
    """The windows of one Envoy. Written by the stream that hears it."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}
        self._watched: Mapping[str, _Watched] = {}
        self._asked: frozenset[tuple[str, str, int]] = frozenset()
        """Names with the addresses that are probed under them."""
        self._new: dict[tuple[str, str, int], int] = {}
        """Endpoints that may not have been probed yet, and until when: Envoy says UNHEALTHY of these."""

    def ask(self, asking: Asking, now_ms: int) -> None:
        """Other checks are asked from here on; windows of those that stay as they were are kept."""
        kept = {
            name
            for name, each in asking.watched.items()
            if name in self._watched and each.plan == self._watched[name].plan
        }
        self._new = {
            (ask.name, *at): self._new.get((ask.name, *at), 0)
            if ask.name in kept and (ask.name, *at) in self._asked
            else now_ms + ask.timeout_ms + _UNDERWAY_MS
            for ask in asking.asks
            for at in ask.addresses
        }
        self._new = {key: until_ms for key, until_ms in self._new.items() if until_ms > now_ms}
        self._asked = frozenset((ask.name, *at) for ask in asking.asks for at in ask.addresses)
        self._watched = asking.watched
        self._windows = {
            name: known
            for name, known in self._windows.items()
            if name in asking.watched and known.plan == asking.watched[name].plan
        }

    def sort(self, verdicts: Iterable[Verdict], now_ms: int) -> tuple[list[Said], int]:
        """A report's verdicts in slices of lines, for `take`, and how many were of nothing that was asked: of another name, or of an
        address that the line has no more.
        """
        said: Said = {}
        unknown, asked = 0, self._asked
        for name, address, port, health in verdicts:
            at = name, address, port
            if at not in asked and (at := (name, _canonical(address), port)) not in asked:
                unknown += 1
            elif not (self._new and self._is_unprobed(at, health, now_ms)):
                said.setdefault(name, {})[at[1:]] = health
        return list(self._sliced(said)), unknown

    def _sliced(self, said: Said) -> Iterator[Said]:
        """As many lines at a time as a heartbeat's part has; all kinds of a line in one of them."""
        found: Said = {}
        lines: set[LineId] = set()
        for name in sorted(said):
            line = self._watched[name].line
            if line not in lines and len(lines) == SLICE:
                yield found
                found, lines = {}, set()
            lines.add(line)
            found[name] = said[name]
        if found:
            yield found

    def take(self, said: Said, now_ms: int) -> list[Report]:
        """A slice as readings, each line's together."""
        found: list[Report] = []
        for name, healths in said.items():
            if (watched := self._watched.get(name)) is None:
                continue
            line, plan, interval_ms = watched
            window = self._windows.get(name) or _Window(plan)
            self._windows[name] = window
            window.take(healths, now_ms, interval_ms)
            if window.rounds:
                detail = _SAID if _WELL.issuperset(window.health.values()) else _UNTOLD
                found.append(Report(line=line, reading=window.reading(now_ms), detail=detail))
        return found

    def _is_unprobed(self, at: tuple[str, str, int], health: Health, now_ms: int) -> bool:
        until_ms = self._new.get(at, 0)
        if health is Health.UNHEALTHY and now_ms < until_ms:
            return True
        self._new.pop(at, None)
        return False


def _canonical(address: str) -> str:
    """The address as lines have theirs: Envoy writes an IPv4 address within IPv6 otherwise. Any other text as it is."""
    if not address.startswith("::ffff:"):
        return address
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
