"""Subsets: balancing among the endpoints whose metadata a call names, each subset with a picker of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, Generic, TypeVar

from reachline.core.pick.build import build
from reachline.core.pick.member import Member, Memory, Picker, checked
from reachline.core.pick.policy import Fallback, Policy, Selector, Subsets
from reachline.core.pick.uniform import Uniform

__all__ = ["Subsetting"]

T = TypeVar("T")

_Named = frozenset[tuple[str, str]]


class Subsetting(Generic[T]):
    """All subsets of one snapshot. A call asks for its picker by `of`, and picks by that."""

    __slots__ = ("_any", "_default", "_nobody", "_pickers", "_selectors", "_subsets")

    def __init__(
        self,
        members: Sequence[Member[T]],
        subsets: Subsets,
        policy: Policy,
        memory: Memory,
        rng: Random,
        *,
        now_ms: int = 0,
    ) -> None:
        """ConfigError as of `build`. Priorities, panic and localities are a subset's own, by its own members."""
        known = checked(members)

        def made(some: Sequence[Member[T]], part: object) -> Picker[T]:
            return build(some, policy, memory, rng, now_ms=now_ms, part=part)

        groups: dict[_Named, list[Member[T]]] = {}
        for selector in subsets.selectors:
            seen: dict[_Named, list[Member[T]]] = {}
            for member in known:
                if selector.keys and selector.keys <= member.metadata.keys():
                    seen.setdefault(frozenset((key, member.metadata[key]) for key in selector.keys), []).append(member)
            groups.update(seen)
        default = [each for each in known if subsets.default.items() <= each.metadata.items()]
        self._nobody: Final[Picker[T]] = Uniform(())
        self._subsets: Final = subsets
        self._selectors: Final = {selector.keys: selector for selector in reversed(subsets.selectors)}
        self._pickers: Final = {named: made(some, named) for named, some in groups.items()}
        asked = {subsets.fallback, *(each.fallback for each in subsets.selectors)}
        self._any: Final = made(known, Fallback.ANY) if Fallback.ANY in asked or subsets.panic_any else self._nobody
        self._default: Final = made(default, Fallback.DEFAULT) if Fallback.DEFAULT in asked else self._nobody

    def of(self, wanted: Mapping[str, str]) -> Picker[T]:
        """The picker for a call that names this metadata: its subset's, or that of the fallback; never fails.

        A subset that exists is final, also while all in it are down.
        """
        if self._subsets.redundant_keys:
            keys = next((each.keys for each in self._subsets.selectors if each.keys <= wanted.keys()), None)
            wanted = wanted if keys is None else {key: wanted[key] for key in keys}
        found = self._pickers.get(frozenset(wanted.items()))
        if found is not None:
            return found
        selector = self._selectors.get(frozenset(wanted))
        if selector is None or selector.fallback is Fallback.UNSAID:
            return self._fallen_back()
        return self._by_selector(selector, wanted)

    def _by_selector(self, selector: Selector, wanted: Mapping[str, str]) -> Picker[T]:
        match selector.fallback:
            case Fallback.ANY:
                return self._any
            case Fallback.DEFAULT:
                return self._default
            case Fallback.KEYS if selector.fallback_keys < selector.keys:
                return self.of({key: wanted[key] for key in selector.fallback_keys})
            case _:
                return self._nobody

    def _fallen_back(self) -> Picker[T]:
        match self._subsets.fallback:
            case Fallback.ANY:
                found = self._any
            case Fallback.DEFAULT:
                found = self._default
            case _:
                return self._nobody
        return found if found.items or not self._subsets.panic_any else self._any
