"""By which outbound a connection would go now: the rules, their balancers, and names resolved where rules ask for that."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Final

from reachline.doors.observatory.matching import Directed, Ip, Question, Router
from reachline.model import Seconds
from reachline.net.resolve import Resolver
from reachline.passage.dialing import resolve
from reachline.passage.guide import Guide

__all__ = ["Routes"]

_ANY: Final = 0
_PATIENCE: Final[Seconds] = 4.0
"""For what a name means to rules, Xray's own for a question of DNS; then it means nothing, as a name does that is not there."""
_NO_RULE: Final = "not enough information for making a decision"
_NOBODY: Final = "balancing strategy returns empty tag"


class Routes:
    """Asks `router` for the rules of now, each time."""

    def __init__(
        self, router: Callable[[], Router], guide: Guide, resolver: Resolver, *, patience: Seconds = _PATIENCE
    ) -> None:
        self._router: Final = router
        self._guide: Final = guide
        self._resolver: Final = resolver
        self._patience: Final = patience

    async def directed(self, question: Question) -> Directed | None:
        """The rule that it meets."""
        router = self._router()
        decision = router.route(question)
        if decision.resolve:
            decision = router.route(question._replace(addresses=await self._addresses(question.domain)))
        return None if decision.rule is None else router.rules[decision.rule]

    async def outbound_of(self, question: Question) -> str:
        """The tag of the outbound; LookupError, in Xray's words, where no rule gives one."""
        rule = await self.directed(question)
        if rule is None:
            raise LookupError(_NO_RULE)
        tag = self._guide.pick(rule.balancer, frozenset()) if rule.balancer else rule.outbound
        if tag is None:
            raise LookupError(_NOBODY)
        return tag

    async def _addresses(self, host: str) -> tuple[Ip, ...]:
        try:
            async with asyncio.timeout(self._patience):
                answer = await resolve(self._resolver, host, _ANY)
        except TimeoutError:
            return ()
        return tuple(ipaddress.ip_address(each.partition("%")[0]) for each in answer.addresses)
