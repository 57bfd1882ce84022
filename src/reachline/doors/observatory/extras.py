"""The block `reachline` of a document, which Xray ignores: what decides beside Xray's own fields, and by which way foreign outbounds
are reached. Every field has a default that needs no such block.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from reachline.core.observing.rules import AllUnhealthy, Care, Group
from reachline.core.observing.values import MS
from reachline.doors.observatory.durations import SECOND
from reachline.doors.observatory.fields import Block
from reachline.doors.observatory.relay import Core
from reachline.doors.wording import nearest

__all__ = ["Choosing", "Extras", "probe_url", "read_extras"]

_MOST_STATUS: Final = 599
_MOST_GROUPS: Final = 128
"""Priorities of a balancer, groups of an observatory: xDS's own limit of priorities."""
_MOST_TARGETS: Final = 8
"""Targets of a group: each costs a request every time."""
_LONGEST_URL: Final = 2_000


class Choosing(NamedTuple):
    """Of one balancer. Empty texts and None: as the defaults have it."""

    groups: tuple[tuple[str, ...], ...] = ()
    all_unhealthy: AllUnhealthy = AllUnhealthy.LAST_GOOD
    advantage: int = 100
    least_advantage: int = 10 * MS


class Extras(NamedTuple):
    """What the block says."""

    care: Care = Care()
    says_expect: bool = False
    balancers: tuple[tuple[str, Choosing], ...] = ()
    core: Core | None = None


def read_extras(root: Block) -> Extras:
    """The block, or its defaults."""
    block = root.block("reachline")
    if block is None:
        return Extras()
    observing = block.block("observatory")
    care, says_expect = (Care(), False) if observing is None else _care(observing)
    balancers = tuple((tag, _choosing(each)) for tag, each in block.entries("balancers"))
    core = block.block("core")
    found = Extras(care, says_expect, balancers, None if core is None else _core(core))
    block.done(ours=True)
    return found


def _care(block: Block) -> tuple[Care, bool]:
    usual = Care()
    groups = tuple(map(_group, block.blocks("groups")))
    if len(groups) > _MOST_GROUPS:
        block.refuse("groups", f"must have at most {_MOST_GROUPS} items")
    expect = _expect(block)
    budget = block.whole("budgetPerMinute", usual.budget, least=1, most=100_000)
    care = Care(
        fall=block.whole("fall", usual.fall, least=1, most=5),
        rise=block.whole("rise", usual.rise, least=1, most=10),
        rechecks=block.whole("rechecks", usual.rechecks, least=0, most=5),
        spacing=_positive(block, "spacing", usual.spacing),
        patience=_positive(block, "patience", usual.patience),
        retry=_positive(block, "retry", usual.retry),
        budget=budget,
        reserve=max(1, min(usual.reserve, budget)),
        concurrency=block.whole("maxConcurrency", usual.concurrency, least=1, most=65_536),
        expect=expect or usual.expect,
        groups=groups[:_MOST_GROUPS],
    )
    if care.fall > care.rechecks + 1:
        block.refuse("fall", f"can never be reached: a failure and {care.rechecks} re-checks are {care.rechecks + 1}")
    block.done(ours=True)
    return care, bool(expect)


def _positive(block: Block, name: str, default: int) -> int:
    found = block.nanos(name, default)
    if not 100 * MS <= found <= 3_600 * SECOND:
        block.refuse(name, "must be from 100ms to 1h")
        return default
    return found


def _group(block: Block) -> Group:
    selectors, targets = block.texts("selector"), block.texts("targets")
    if not selectors:
        block.refuse("selector", "must not be empty")
    if len(targets) > _MOST_TARGETS:
        block.refuse("targets", f"must have at most {_MOST_TARGETS} items")
    for url in targets:
        probe_url(block, "targets", url)
    quorum = block.whole("quorum", len(targets) // 2 + 1 if targets else 1, least=1, most=max(1, len(targets)))
    found = Group(selectors, targets[:_MOST_TARGETS], quorum, _expect(block))
    block.done(ours=True)
    return found


def _expect(block: Block) -> tuple[tuple[int, int], ...]:
    """`[204, "200-299"]`."""
    value = block.raw("expectStatus")
    items = value if isinstance(value, list) else [] if value is None else [value]
    found = [_status(each) for each in items]
    if any(each is None for each in found):
        block.refuse("expectStatus", "must be statuses and ranges of them, from 100 to 599", '[204, "200-299"]')
    return tuple(each for each in found if each is not None)


def _status(value: object) -> tuple[int, int] | None:
    parts = str(value).split("-") if isinstance(value, int | str) and not isinstance(value, bool) else []
    if not 1 <= len(parts) <= 2 or not all(part.isdecimal() and len(part) == 3 for part in parts):
        return None
    low, high = int(parts[0]), int(parts[-1])
    return (low, high) if 100 <= low <= high <= _MOST_STATUS else None


def _choosing(block: Block) -> Choosing:
    usual = Choosing()
    word = block.text("allUnhealthy", usual.all_unhealthy.value)
    words = {each.value: each for each in AllUnhealthy}
    if word not in words:
        close = nearest(word, tuple(words))
        block.refuse("allUnhealthy", f"must be {' or '.join(words)}", f"did you mean {close}?" if close else "")
    share = block.number("advantage", usual.advantage / 1_000)
    if not 0 <= share < 1:
        block.refuse("advantage", "must be a share from 0 to below 1")
        share = usual.advantage / 1_000
    least = block.nanos("leastAdvantage", usual.least_advantage)
    if least < 0:
        block.refuse("leastAdvantage", "must not be negative")
    found = Choosing(_groups(block), words.get(word, usual.all_unhealthy), round(share * 1_000), max(0, least))
    block.done(ours=True)
    return found


def _groups(block: Block) -> tuple[tuple[str, ...], ...]:
    """`[["fast-"], ["slow-", "old-"]]`: selectors of each group, the best first."""
    value = block.raw("groups")
    items = [] if value is None else value
    if not isinstance(items, list) or len(items) > _MOST_GROUPS:
        block.refuse("groups", f"must be a list of at most {_MOST_GROUPS} lists of selectors")
        return ()
    if not all(isinstance(each, list) and each and all(isinstance(text, str) for text in each) for each in items):
        block.refuse("groups", "must be lists of selectors, none of them empty", '[["fast-"], ["slow-", "old-"]]')
        return ()
    return tuple(tuple(each) for each in items)


def _core(block: Block) -> Core | None:
    socks, password = block.text("socks", needed=True), block.text("password", needed=True)
    block.done(ours=True)
    parts = urlsplit(f"tcp://{socks}")
    try:
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        host, port = "", 0
    if not host or not port or parts.path or parts.username is not None:
        block.refuse("socks", "must be the host:port of the core's SOCKS inbound", "127.0.0.1:10808")
        return None
    return Core(host, port, password)


def probe_url(block: Block, name: str, url: str) -> None:
    """Refuse what cannot be asked: an http or https URL without a login."""
    try:
        scheme, user, host, port = _parts(url)
    except ValueError:
        scheme, user, host, port = "", None, None, None
    is_fit = url.isascii() and url.isprintable() and " " not in url and len(url) <= _LONGEST_URL
    if not is_fit or scheme not in {"http", "https"} or not host or port == 0:
        block.refuse(name, "must be an http:// or https:// URL", "https://www.gstatic.com/generate_204")
    elif user is not None:
        block.found.refuse(block.at(name), "must not hold a user or password", about_key=True)


def _parts(url: str) -> tuple[str, str | None, str | None, int | None]:
    """Scheme, user, host and port; ValueError where it is no URL."""
    parts = urlsplit(url)
    return parts.scheme, parts.username, parts.hostname, parts.port
