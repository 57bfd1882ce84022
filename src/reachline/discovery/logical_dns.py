"""`logical_dns`: one endpoint, the first address of the newest answer; connections to older ones stay."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from random import Random
from typing import Final

from reachline.discovery.following import Following, NameView
from reachline.discovery.naming import DnsSettings
from reachline.errors import ConfigError
from reachline.members import Address, Member, Membership, Update, problems_of
from reachline.net.names import Names

__all__ = ["LOGICAL", "LogicalDns"]

LOGICAL: Final = DnsSettings(empty_for=math.inf)
"""Its defaults: an answer without addresses says nothing about the endpoint there was."""


class LogicalDns:
    """One endpoint by a name; a `Discovery`. The address of `target` is its name and port.

    The membership `lingers`: an endpoint that left is out of new connections only.
    """

    def __init__(
        self,
        target: Member,
        settings: DnsSettings = LOGICAL,
        *,
        rng: Random,
        base: Membership | None = None,
        names: Names | None = None,
    ) -> None:
        """`base` holds what is said of the cluster as a whole; `names` asks elsewhere than this machine does, for this one alone.

        ConfigError names every target that cannot be.
        """
        if problems := problems_of((target,), "logical_dns", named=True):
            raise ConfigError(*problems)
        self._target: Final = target
        self._base: Final = replace(base or Membership(), lingers=True)
        self._following: Final = Following((target,), settings, rng=rng, names=names, build=self._built)

    def watch(self) -> AsyncGenerator[Update, None]:
        """As `abc.Discovery` says."""
        return self._following.watch()

    def names(self) -> tuple[NameView, ...]:
        """How the name fares."""
        return self._following.view()

    def _built(self, addresses: Mapping[str, tuple[str, ...]]) -> tuple[Membership, tuple[str, ...]]:
        name, port = self._target.address
        members = tuple(
            replace(self._target, address=Address(host, port), hostname=self._target.hostname or name)
            for host in addresses[name][:1]
        )
        return replace(self._base, members=members), ()
