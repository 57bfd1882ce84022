"""`routing`: balancers, and rules as far as they say where connections go."""

from __future__ import annotations

import re
from typing import Final

from reachline.core.observing.rules import BalancerRules, Cost, LeastLoad, Strategy, float32
from reachline.doors.observatory.extras import Choosing, Extras
from reachline.doors.observatory.fields import Block
from reachline.doors.observatory.values import Balancer, Rule
from reachline.doors.origin import Path
from reachline.doors.wording import nearest

__all__ = ["CONDITIONS", "read_balancers", "read_rules"]

_STRATEGIES: Final = {each.value.lower(): each for each in Strategy}
CONDITIONS: Final = (
    "domain", "domains", "ip", "port", "network", "sourceIP", "source", "sourcePort", "user", "vlessRoute", "inboundTag", "protocol",
    "localIP", "localPort", "process",
)  # fmt: skip
"""Fields of a rule that must all match; lists, or one text parted by commas."""
_LONGEST_PATTERN: Final = 200
"""Characters of a pattern: Python's engine may take long for what RE2 does quickly, and tags are short."""
_LARGEST: Final = 3.402_823_466_385_288_6e38
"""What Go keeps as a single holds no more, and refuses more."""
_NO_CHOICE: Final = Choosing()


def read_balancers(routing: Block | None, extras: Extras, *, strict: bool) -> tuple[tuple[Balancer, Path], ...]:
    """All of them with their places, in the document's order."""
    if routing is None:
        return ()
    choosing = dict(extras.balancers)
    found: dict[str, tuple[Balancer, Path]] = {}
    for block in routing.blocks("balancers"):
        tag = block.text("tag")
        if not tag:
            block.refuse("tag", "is needed and must not be empty", "Xray says: empty balancer tag")
        elif tag in found:
            block.refuse("tag", "stands here a second time", "each balancer has a tag of its own")
        else:
            found[tag] = (
                Balancer(tag=tag, rules=_balancer(block, tag, choosing.get(tag, _NO_CHOICE), strict=strict)),
                block.path,
            )
    return tuple(found.values())


def _balancer(block: Block, tag: str, choosing: Choosing, *, strict: bool) -> BalancerRules:
    selectors = block.texts("selector")
    if not selectors:
        block.refuse("selector", "is needed and must not be empty", "Xray says: empty selector list")
    strategy, load = _strategy(block.block("strategy"))
    fallback = block.text("fallbackTag")
    block.done()
    return BalancerRules(
        tag=tag,
        selectors=selectors,
        strategy=strategy,
        load=load,
        fallback=fallback,
        strict=strict,
        groups=choosing.groups,
        all_unhealthy=choosing.all_unhealthy,
        advantage=choosing.advantage,
        least_advantage=choosing.least_advantage,
    )


def _strategy(block: Block | None) -> tuple[Strategy, LeastLoad]:
    if block is None:
        return Strategy.RANDOM, LeastLoad()
    word = block.text("type")
    strategy = _STRATEGIES.get(word.lower()) if word else Strategy.RANDOM
    if strategy is None:
        close = nearest(word.lower(), tuple(_STRATEGIES))
        hint = f"did you mean {_STRATEGIES[close].value}?" if close else ""
        block.refuse("type", f"must be {' or '.join(each.value for each in Strategy)}", hint)
    settings = block.block("settings")
    load = LeastLoad()
    if settings is not None and strategy is Strategy.LEAST_LOAD:
        load = _load(settings)
    block.done()
    return strategy or Strategy.RANDOM, load


def _load(block: Block) -> LeastLoad:
    """Normalised as Xray does: limits clamped, baselines that are none dropped."""
    tolerance = float32(min(1.0, max(0.0, block.number("tolerance"))))
    found = LeastLoad(
        costs=tuple(map(_cost, block.blocks("costs"))),
        baselines=tuple(each for each in block.durations("baselines") if each > 0),
        expected=max(0, block.whole("expected")),
        max_rtt=max(0, block.nanos("maxRTT")),
        tolerance=tolerance,
    )
    block.aside("healthCheck", "observerTag", "aliveOnly")
    block.done()
    return found


def _cost(block: Block) -> Cost:
    match, is_pattern = block.text("match"), block.flag("regexp")
    value = block.number("value")
    if abs(value) > _LARGEST:
        block.refuse("value", f"must be a number of at most {_LARGEST:.3g}")
        value = 0.0
    if is_pattern:
        _pattern(block, match)
    block.done()
    return Cost(match, value, is_pattern)


def _pattern(block: Block, match: str) -> None:
    if len(match) > _LONGEST_PATTERN:
        block.refuse("match", f"must be a pattern of at most {_LONGEST_PATTERN} characters")
        return
    try:
        re.compile(match)
    except (re.error, RecursionError, OverflowError) as error:
        block.warn("match", f"is no pattern that can be used here ({error}): it matches nothing")


def read_rules(routing: Block | None) -> tuple[tuple[Rule, Path], ...]:
    """All of them with their places. Conditions are kept as they stand there, and are not judged."""
    return () if routing is None else tuple((_rule(block), block.path) for block in routing.blocks("rules"))


def _rule(block: Block) -> Rule:
    outbound, balancer = block.text("outboundTag"), block.text("balancerTag")
    if not outbound and not balancer:
        block.refuse("outboundTag", "is needed, or balancerTag", "Xray says: neither is specified in routing rule")
    if outbound and balancer:
        block.warn("balancerTag", "has no effect beside outboundTag", "keep one of them")
    conditions = {name: _condition(block, name) for name in CONDITIONS if block.has(name)}
    block.aside(*CONDITIONS, "attrs", "webhook", "type", "domainMatcher", "enabled")
    tag = block.text("ruleTag")
    block.done()
    return Rule(tag=tag, outbound=outbound, balancer="" if outbound else balancer, conditions=conditions)


def _condition(block: Block, name: str) -> tuple[str, ...]:
    """Ports may be numbers."""
    value = block.peek(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return (str(value),)
    return block.texts(name)
