"""`strict_dns`: every address of every name is an endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from reachline.discovery.following import Following, NameView
from reachline.discovery.naming import DnsSettings
from reachline.errors import ConfigError
from reachline.members import Address, Member, Membership, Update, problems_of
from reachline.net.names import Names

__all__ = ["StrictDns"]


class StrictDns:
    """Endpoints by names; a `Discovery`. The address of a target is its name and port; all else its endpoints inherit.

    An address that two names give is one endpoint, of the first of them.
    """

    def __init__(
        self,
        targets: Sequence[Member],
        settings: DnsSettings | None = None,
        *,
        rng: Random,
        base: Membership | None = None,
        names: Names | None = None,
    ) -> None:
        """`base` holds what is said of the cluster as a whole; `names` asks elsewhere than this machine does, for this one alone.

        ConfigError names every target that cannot be.
        """
        if problems := problems_of(targets, "strict_dns", named=True):
            raise ConfigError(*problems)
        self._targets: Final = tuple(targets)
        self._base: Final = base or Membership()
        self._following: Final = Following(targets, settings or DnsSettings(), rng=rng, names=names, build=self._built)

    def watch(self) -> AsyncGenerator[Update, None]:
        """As `abc.Discovery` says."""
        return self._following.watch()

    def names(self) -> tuple[NameView, ...]:
        """How each name fares."""
        return self._following.view()

    def _built(self, addresses: Mapping[str, tuple[str, ...]]) -> tuple[Membership, tuple[str, ...]]:
        members: dict[Address, Member] = {}
        notices: list[str] = []
        for target in self._targets:
            name, port = target.address
            for host in sorted(addresses[name]):
                member = replace(target, address=Address(host, port), hostname=target.hostname or name)
                first = members.setdefault(member.address, member)
                if first is not member:
                    notices.append(f"{member.address} is given by {first.hostname} and by {name}: the first one counts")
        return replace(self._base, members=tuple(members.values())), tuple(notices)
