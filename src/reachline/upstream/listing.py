"""The line list as values: what was published, what may be picked, and the terms of the group formulas. No clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from reachline.core.regroup import Term, Terms, agrees
from reachline.core.rules import FaultRules, LocalRules
from reachline.core.tiers import Share
from reachline.model import Gate, Health, LineId, Ratio, Role, Seconds, Version

if TYPE_CHECKING:
    from reachline.upstream.care import Care

__all__ = ["Admitted", "Key", "LineList", "Listed", "Pick", "Target", "is_pick", "picks_of", "target", "terms"]

Key = int | str | bytes | None
"""What keeps callers together under hash policies: 64 bits, or a text that is hashed as Envoy hashes it."""

_PORTS: Final = {"http": 80, "https": 443}

_COOLDOWN_MS: Final = 60_000
"""The document's cooldown, for an open line whose list does not say when it ends."""


class Target(NamedTuple):
    """An address as the document wrote it, taken apart. `address` is None where it names no host and port."""

    text: str
    address: tuple[str, int] | None
    url: str
    """Scheme, host and port without the path; the text itself where it is no URL."""


class Listed(NamedTuple):
    """One line as published; instants are Unix seconds of the center's clock."""

    line: LineId
    target: Target
    weight: int
    base: int
    via: str = "direct"
    roles: frozenset[Role] = frozenset()
    provider: str = ""
    groups: tuple[str, ...] = ()
    health: Health = Health.UNKNOWN
    breaker: Gate = Gate.CLOSED
    step: int = 0
    score: int = 0
    reason: str = ""
    since: Seconds | None = None
    next: Seconds | None = None
    window: int = 0
    """Id of the center's running trial window; outcomes echo it."""
    is_drained: bool = False
    is_blind: bool = False
    faults: int = 0
    """In millionths, for the formula."""
    share: Ratio = 1.0
    """What the center's breaker admits."""
    region: str = ""


class Admitted(NamedTuple):
    """What the plan across regions leaves a cluster: `share` of its calls, and of those each region's share in millionths."""

    share: Ratio
    regions: Mapping[str, int]
    priority: int = 0
    reason: str = ""


class Pick(NamedTuple):
    """A chosen line: where to connect (`address`, `url`) and by way of what (`via`: an outbound URL, or `direct`)."""

    line: LineId
    address: tuple[str, int] | None
    url: str
    via: str
    target: str
    """The address as the document wrote it, path included."""
    window: int = 0
    generation: int = 0
    """Which trip of the local breaker this choice was made after."""
    is_trial: bool = False
    """The one call by which a line that was out here is tried again."""
    hostname: str = ""
    """The name it was found by, for TLS; empty where there is none."""
    key: str = ""
    """What a kept cluster counts its calls by."""
    care: Care | None = None
    """For who holds connections and counts calls in flight, of a line that was open or returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineList:
    """A cluster's lines in the order published; `version` None: given by the caller, no center ever said so."""

    cluster: str
    lines: tuple[Listed, ...]
    version: Version | None = None
    issued: Seconds | None = None
    ttl: Seconds = 300.0
    """Without a word from a center for this long, the list is stale."""
    policy: tuple[str, ...] = ("weighted",)
    panic: str = ""
    local: LocalRules = LocalRules()
    faults: FaultRules = field(default_factory=FaultRules)
    """Only its `cost` table is read."""
    slow: Seconds | None = None
    """Calls that took longer are counted as slow…"""
    crawl: Seconds | None = None
    """…or as crawling; None: nobody asks."""
    plan: Admitted | None = None
    """None: the regions carry everything, by weight."""


def target(text: str) -> Target:
    """An address taken apart; never an error, for a line that we cannot read is still a line that others can."""
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return Target(text, None, text)
    address = (host, port) if host and port else None
    url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.scheme and parts.netloc else text
    return Target(text, address, url)


def is_pick(pick: object) -> bool:
    """Whether it is what `pick` returned; a caller without a type checker may pass the None it got."""
    return isinstance(pick, Pick)


def picks_of(lines: LineList) -> tuple[Pick, ...]:
    """What may be picked of a list, in its order."""
    return tuple(
        Pick(each.line, each.target.address, each.target.url, each.via, each.target.text, each.window)
        for each in lines.lines
    )


def terms(lines: LineList) -> Terms:
    """What `core.regroup` needs of a list."""
    found = Terms(
        lines=tuple(_term(each) for each in lines.lines),
        policy=lines.policy,
        faults=lines.faults,
    )
    if lines.panic or not agrees(found):
        return found
    return Terms(lines=found.lines, policy=found.policy, faults=found.faults, is_grouped=True)


def _term(each: Listed) -> Term:
    if each.is_drained:
        return Term(each.line, each.weight, None, _COOLDOWN_MS)
    share = Share(each.base, each.roles, each.health, each.breaker, each.faults, round(each.share * 1_000))
    return Term(each.line, each.weight, share, _cooldown_ms(each))


def _cooldown_ms(each: Listed) -> int:
    if each.breaker is not Gate.OPEN or each.since is None or each.next is None or each.next <= each.since:
        return _COOLDOWN_MS
    return round((each.next - each.since) * 1_000)
