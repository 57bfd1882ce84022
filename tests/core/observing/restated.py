"""What Xray does, written down once more from the specification alone: slow, without state between questions, and with nothing of
the machines but their values. A history of what was stored and removed is written first; every question folds it from its beginning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from tests.core.observing.world import EPOCH, World

from reachline.core.observing.rules import BalancerRules, LeastLoad, ObserverRules, Strategy, float32
from reachline.core.observing.values import MS, SECOND, Ping, Status

Changes = Mapping[int, Iterable[str]]


class Stored(NamedTuple):
    """A result of `tag` at a moment; None: failed. Or, `keep` being set, the removal of all but those."""

    at: int
    tag: str = ""
    rtt: int | None = None
    reason: str = ""
    keep: tuple[str, ...] | None = None


def matching(tags: Iterable[str], selectors: Sequence[str]) -> list[str]:
    return sorted({tag for tag in tags if tag and any(tag.startswith(each) for each in selectors)})


def present(changes: Changes, at: int) -> list[str]:
    """Outbounds at a moment: those of the last change before it or at it."""
    second = max(each for each in changes if EPOCH + each * SECOND <= at)
    return list(changes[second])


# -- the standard observer -----------------------------------------------------------------------------------------------------


def standard_history(rules: ObserverRules, world: World, changes: Changes, end: int) -> list[Stored]:
    found: list[Stored] = []
    now = EPOCH
    while now <= end:
        tags = matching(present(changes, now), rules.selectors)
        found.append(Stored(now, keep=tuple(tags)))
        if not tags and rules.concurrent:
            now += rules.interval
        elif not tags:
            later = [EPOCH + each * SECOND for each in changes if EPOCH + each * SECOND > now]
            now = min(later, default=end + 1)
        elif rules.concurrent:
            stored = sorted(_probe(rules, world, tag, now) for tag in tags)
            found += stored
            now = stored[-1].at + rules.interval
        else:
            for tag in tags:
                found.append(_probe(rules, world, tag, now))
                now = found[-1].at + rules.interval
    return found


def _probe(rules: ObserverRules, world: World, tag: str, at: int) -> Stored:
    took, result = world.answer(tag, rules.target, at, rules.timeout)
    if took >= rules.timeout:
        return Stored(at + rules.timeout, tag, None, "context deadline exceeded")
    return Stored(at + took, tag, result.rtt if result.ok else None, result.reason)


def standard_statuses(history: Sequence[Stored], rules: ObserverRules, now: int) -> list[Status]:
    found: dict[str, Status] = {}
    for each in history:
        if each.at > now:
            continue
        if each.keep is not None:
            found = {tag: status for tag, status in found.items() if tag in each.keep}
        elif each.rtt is not None:
            second = each.at // SECOND
            found[each.tag] = Status(each.tag, True, each.rtt // MS, "", second, second)
        else:
            seen = found[each.tag].seen if each.tag in found else 0
            text = (
                f"the outbound {each.tag} is dead: GET request failed:app/observatory: outbound failed to relay connection > "
                f'Get "{rules.target}": {each.reason}with outbound handler report underlying connection failed'
            )
            found[each.tag] = Status(each.tag, False, 99_999_999, text, seen, each.at // SECOND)
    return list(found.values())


# -- the burst observer --------------------------------------------------------------------------------------------------------


def burst_history(rules: ObserverRules, world: World, changes: Changes, end: int, seed: int) -> list[Stored]:
    rng = Random(seed)
    window = rules.interval * rules.sampling
    found = [
        each for tag in matching(present(changes, EPOCH), rules.selectors) for each in _ping(rules, world, tag, EPOCH)
    ]
    begin = EPOCH
    while begin <= end:
        tags = matching(present(changes, begin), rules.selectors)
        moments = [(tag, begin + rng.randrange(window)) for tag in tags for _ in range(rules.sampling)]
        pings = [_ping(rules, world, tag, at) for tag, at in moments]
        last = max((ping[-1].at for ping in pings), default=begin)
        found += [each for ping in pings for each in ping if each.at <= begin + window]
        found.append(Stored(min(last, begin + window), keep=tuple(tags)))
        begin += window
    # What happens at one moment was stored before it was cleaned up.
    return sorted(
        (each for each in found if each.reason != "not stored"), key=lambda each: (each.at, each.keep is not None)
    )


def _ping(rules: ObserverRules, world: World, tag: str, at: int) -> list[Stored]:
    """What one request stores; one that stores nothing has ended at its moment all the same."""
    took, result = world.answer(tag, rules.target, at, rules.timeout)
    if took < rules.timeout and result.ok:
        return [Stored(at + took, tag, result.rtt)]
    ended = at + min(took, rules.timeout)
    if not rules.connectivity:
        return [Stored(ended, tag)]
    took, result = world.answer("", rules.connectivity, ended, rules.timeout)
    ended += min(took, rules.timeout)
    return [Stored(ended, tag, None, "" if result.ok and took < rules.timeout else "not stored")]


def rings(history: Sequence[Stored]) -> dict[str, list[Stored]]:
    """All results of each outbound since its ring was made, oldest first."""
    found: dict[str, list[Stored]] = {}
    for each in history:
        if each.keep is not None:
            found = {tag: stored for tag, stored in found.items() if tag in each.keep}
        else:
            found.setdefault(each.tag, []).append(each)
    return found


def burst_statuses(now_rings: Mapping[str, Sequence[Stored]], rules: ObserverRules, now: int) -> list[Status]:
    validity = 2 * rules.interval * rules.sampling
    found = []
    for tag, stored in sorted(now_rings.items()):
        valid = [each for each in stored[-rules.sampling :] if now - each.at <= validity]
        ping = figures(slots_in_order(stored, rules.sampling, valid))
        found.append(Status(tag, ping.all != ping.fail, ping.average // MS, "", 0, 0, ping))
    return found


def slots_in_order(stored: Sequence[Stored], capacity: int, valid: Sequence[Stored]) -> list[int | None]:
    """The valid results as they lie in the ring: the n-th result ever is in slot n mod capacity."""
    newest = range(max(0, len(stored) - capacity), len(stored))
    first = len(stored) - len(valid)
    return [stored[n].rtt for n in sorted(newest, key=lambda n: n % capacity) if n >= first]


def figures(results: Sequence[int | None]) -> Ping:
    ok = [each for each in results if each is not None]
    fail = len(results) - len(ok)
    if not ok:
        return Ping(all=fail, fail=fail)
    average = sum(ok) // len(ok)
    deviation = average // 2 if len(ok) == 1 else int(math.sqrt(sum(float(x - average) ** 2 for x in ok) / len(ok)))
    return Ping(all=len(results), fail=fail, deviation=deviation, average=average, max=max(ok), min=min(ok))


# -- balancers -----------------------------------------------------------------------------------------------------------------


def choice(rules: BalancerRules, statuses: Sequence[Status] | None, outbounds: Sequence[str]) -> list[str]:
    """Tags that a pick is uniform (or takes turns) among, best first; none: the fallback, or else the first outbound."""
    candidates = matching(outbounds, rules.selectors)
    if rules.strategy in (Strategy.RANDOM, Strategy.ROUND_ROBIN):
        if not rules.fallback:
            return candidates
        return [tag for tag in candidates if all(each.alive for each in statuses or () if each.tag == tag)]
    if rules.strategy is Strategy.LEAST_PING:
        best = None
        for each in statuses or ():
            if each.tag in candidates and each.alive and each.delay < (best.delay if best else 99_999_999):
                best = each
        return [best.tag] if best else []
    return least_load(rules.load, statuses or (), candidates)


def qualified(load: LeastLoad, status: Status, candidates: Sequence[str]) -> bool:
    if not status.alive or status.tag not in candidates:
        return False
    if load.max_rtt != 0 and status.delay >= load.max_rtt // 1_000_000:
        return False
    ping = status.ping
    return not (ping and ping.all > 0 and load.tolerance > 0 and ping.fail / ping.all > float32(load.tolerance))


def least_load(load: LeastLoad, statuses: Iterable[Status], candidates: Sequence[str]) -> list[str]:
    nodes = []
    for each in statuses:
        if not qualified(load, each, candidates):
            continue
        root = math.sqrt(weight(load, each.tag))
        if each.ping:
            nodes.append((int(each.ping.deviation * root), each.ping.average, each.ping.fail, -each.ping.all, each.tag))
        else:
            nodes.append((int(each.delay * MS * root), each.delay * MS, 1, -1, each.tag))
    nodes.sort()
    return [node[-1] for node in nodes[: taken(load, [node[0] for node in nodes])]]


def taken(load: LeastLoad, costs: Sequence[int]) -> int:
    if not costs or load.expected > len(costs):
        return len(costs)
    wanted = max(load.expected, 1)
    if not load.baselines:
        return wanted
    count = 0
    for baseline in load.baselines:
        below = [number for number, cost in enumerate(costs) if cost < baseline]
        count = max(count, len(below))
        if count >= wanted:
            break
    return load.expected if load.expected > 0 and count < load.expected else count


def weight(load: LeastLoad, tag: str) -> float:
    for cost in load.costs:
        if cost.is_pattern:
            found = re.search(cost.match, tag)
            matched = found.group() if found else ""
        else:
            matched = cost.match if cost.match in tag else ""
        if matched:
            if cost.value > 0:
                return float32(cost.value)
            number = re.search(r"\d+(\.\d+)?", matched)
            return float(number.group()) if number else 1.0
    return 1.0
