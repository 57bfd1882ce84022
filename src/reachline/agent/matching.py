"""Which of the kernel's connections belong to which line: by destination, by mark, or by process. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reachline.errors import ConfigError, Problem
from reachline.talk.options import Options
from reachline.wire.frame import LinePlan, ProbePlan
from reachline.wire.sockdiag import Sock, Wanted

__all__ = ["WAYS", "Match", "Matcher", "Rule", "rule_of"]

WAYS = ("destination", "mark", "process")
_HIGHEST_MARK = 2**32 - 1


class Rule(NamedTuple):
    """What a line's plan says of the connections that are its own."""

    by_destination: bool = True
    """Whether they must go to the line's address and port; a line's own mark says it all."""
    mark: int | None = None
    process: str = ""


class Match(NamedTuple):
    """A rule with the addresses of the moment. `source` and `local` are the line's own; empty: any."""

    rule: Rule
    addresses: tuple[str, ...] = ()
    port: int = 0
    source: str = ""
    interface: int = 0
    local: frozenset[str] = frozenset()
    """Addresses of the line's interface, where it names one."""

    @property
    def is_narrow(self) -> bool:
        """Whether it says how connections leave: it then wins over a line that takes them all."""
        return bool(self.source or self.interface or self.local)

    def wanted(self) -> tuple[Wanted, ...]:
        """The kernel's filter for it; empty while no address is known."""
        if not self.rule.by_destination:
            return (Wanted(mark=self.rule.mark),)
        return tuple(
            Wanted(address=address, port=self.port, source=self.source, mark=self.rule.mark)
            for address in self.addresses
        )

    def leaves(self, sock: Sock) -> bool:
        """Whether the connection leaves as the line does."""
        if self.source and sock.local != self.source:
            return False
        if self.interface or self.local:
            return sock.interface == self.interface if sock.interface else sock.local in self.local
        return True


def rule_of(line: LinePlan, plan: ProbePlan) -> Rule:
    """The plan's options as a rule; ConfigError names each that is wrong."""
    options = Options(plan.kind.value, plan.options)
    way, process = options.text("match", WAYS[0]), options.text("process")
    mark = options.number("mark", line.mark, low=0, high=_HIGHEST_MARK)
    if way not in WAYS:
        options.refuse("match", f"must be one of {', '.join(WAYS)}")
    options.finish()
    if line.via != "direct":
        raise _refused("via", "a proxy stands between: the kernel sees connections to it only, of whatever line")
    if way == "mark" and not mark:
        raise _refused("mark", "is not known: say it at the line or in probes.passive")
    if way == "process" and not process:
        raise _refused("process", "is not known: say its name or number in probes.passive")
    return Rule(
        by_destination=way != "mark" or not line.mark,
        mark=(line.mark or mark) if way == "mark" else None,
        process=process if way == "process" else "",
    )


class Matcher:
    """All matches, and which connections are whose. Its positions are those of `matches`."""

    def __init__(self, matches: Sequence[Match]) -> None:
        self._matches = matches
        self._by_place = defaultdict[tuple[str, int], list[int]](list)
        self._by_mark = defaultdict[int, list[int]](list)
        for at, match in enumerate(matches):
            if not match.rule.by_destination:
                self._by_mark[match.rule.mark or 0].append(at)
            for address in match.addresses if match.rule.by_destination else ():
                self._by_place[address, match.port].append(at)

    def of(self, socks: Iterable[Sock], owned: Mapping[str, frozenset[int]]) -> dict[int, list[Sock]]:
        """The connections of each match that has some; `owned` has the inodes of each process that a rule names.

        One that fits several goes to those that say how it must leave; where none does, to all of them.
        """
        found = defaultdict[int, list[Sock]](list)
        for sock in socks:
            for at in self._takers(sock, owned):
                found[at].append(sock)
        return found

    def _takers(self, sock: Sock, owned: Mapping[str, frozenset[int]]) -> list[int]:
        known = (*self._by_place.get((sock.remote, sock.remote_port), ()), *self._by_mark.get(sock.mark or 0, ()))
        takers = [at for at in known if self._matches[at].leaves(sock) and _is_of(sock, self._matches[at].rule, owned)]
        return [at for at in takers if self._matches[at].is_narrow] or takers


def _is_of(sock: Sock, rule: Rule, owned: Mapping[str, frozenset[int]]) -> bool:
    if rule.mark is not None and sock.mark != rule.mark:
        return False
    return not rule.process or sock.inode in owned.get(rule.process, frozenset())


def _refused(name: str, rule: str) -> ConfigError:
    return ConfigError(Problem(place="passive probe", path=name, value="", rule=rule))
