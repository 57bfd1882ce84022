"""The document that a proxy core is given beside the user's own, so that Reachline reaches what only that core speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reachline.doors.findings import Findings
from reachline.doors.observatory.document import read
from reachline.doors.observatory.extras import read_extras
from reachline.doors.observatory.fields import Block
from reachline.doors.observatory.merging import Source, merge
from reachline.doors.observatory.relay import document
from reachline.doors.observatory.values import Reach
from reachline.errors import ConfigError, Problem

__all__ = ["relayed"]

_HINT = '"reachline": {"core": {"socks": "127.0.0.1:10808", "password": "…"}}'


def relayed(sources: Sequence[Source], *, remarks: str | None = None) -> dict[str, object]:
    """For the core at `reachline.core`, ready for a JSON encoder; ConfigError where the document is wrong or needs none."""
    settings = read(sources, remarks=remarks)
    value = merge(sources, remarks=remarks).value
    core = read_extras(Block(value, (), Findings())).core
    if core is None:
        rule = "is needed: at which address the core is to listen, and by which password"
        raise ConfigError(Problem(place=sources[0].name, path="reachline.core", value="", rule=rule, hint=_HINT))
    tags = [each.tag for each in settings.outbounds if each.reach is Reach.CORE and each.tag]
    if not tags:
        rule = "need no core: all of them are reached from here, or carry nothing"
        raise ConfigError(Problem(place=sources[0].name, path="outbounds", value="", rule=rule))
    routing = value.get("routing")
    return document(tags, core, routing=routing if isinstance(routing, Mapping) else None)
