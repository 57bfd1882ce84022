"""A document as the connection path needs it: inbounds, rules, ways out and patience. Refuses what it could not do as written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from reachline.doors.findings import Findings
from reachline.doors.observatory.changing import Changes, changed
from reachline.doors.observatory.conditions import Geodata, read_conditions
from reachline.doors.observatory.document import read
from reachline.doors.observatory.fields import Block, problem_of
from reachline.doors.observatory.inbounds import Served, read_inbounds
from reachline.doors.observatory.matching import Conditions, Directed, Router, Strategy
from reachline.doors.observatory.merging import Merged, Source, merge
from reachline.doors.observatory.relay import Core
from reachline.doors.observatory.values import Outbound, Reach, Settings
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.talk.hop import Hop

__all__ = ["Carrying", "Counted", "Exit", "Patience", "Way", "read_carrying", "read_router"]


class Exit(Enum):
    """What becomes of a connection at an outbound."""

    GOES = "goes"
    """Straight or by proxies."""
    DROPS = "drops"
    """It is closed, after an answer where the document wants one."""
    LOOPS = "loops"
    """It is routed again, as if by another inbound."""
    CANNOT = "cannot"
    """Nobody here speaks it."""


class Way(NamedTuple):
    """One outbound."""

    tag: str
    exit: Exit
    hops: tuple[Hop, ...] = ()
    source: str = ""
    interface: str = ""
    families: tuple[int, ...] = ()
    """4 and 6 in the order in which addresses are tried, empty: as the system has them."""
    answer: bytes = b""
    """What a dropped connection is told."""
    inbound: str = ""
    """As whose it is routed again."""
    why: str = ""


class Patience(NamedTuple):
    """Of one level of the policy; Xray's defaults."""

    handshake: Seconds = 60.0
    idle: Seconds = 300.0
    uplink_only: Seconds = 1.0
    """Silence that is borne once the other side sends no more."""
    downlink_only: Seconds = 1.0
    """Silence that is borne once the client sends no more."""


class Counted(NamedTuple):
    """Whose bytes are counted: `policy.system`."""

    inbound_uplink: bool = False
    inbound_downlink: bool = False
    outbound_uplink: bool = False
    outbound_downlink: bool = False


class Carrying(NamedTuple):
    """The whole."""

    settings: Settings
    inbounds: tuple[Served, ...]
    router: Router
    ways: Mapping[str, Way]
    default: Way | None
    """The first outbound, for what meets no rule."""
    patience: Mapping[int, Patience]
    counted: Counted
    warnings: tuple[Problem, ...]


_USUAL: Final = Patience()
_UNCHANGED: Final = Changes()
_LONGEST: Final = 86_400
"""Seconds of a patience: a day."""
_FORBIDDEN: Final = (
    b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nCache-Control: max-age=3600, public\r\nContent-Length: 0\r\n\r\n"
)
"""What a blackhole answers whose response is `http`."""
_FAMILIES: Final[Mapping[str, tuple[int, ...]]] = {
    "asis": (), "useip": (), "forceip": (),
    "useipv4": (4,), "useipv6": (6,), "forceipv4": (4,), "forceipv6": (6,),
    "useipv4v6": (4, 6), "useipv6v4": (6, 4), "forceipv4v6": (4, 6), "forceipv6v4": (6, 4),
}  # fmt: skip


def read_carrying(
    document: str | Sequence[Source],
    *,
    name: str = "xray",
    load: Geodata,
    remarks: str | None = None,
    strict: bool = False,
    core: Core | None = None,
    changes: Changes = _UNCHANGED,
) -> Carrying:
    """What `read` reads, and what connections need beside it; `load` gives files of lists. ConfigError holds every problem."""
    sources = [Source(name, document)] if isinstance(document, str) else list(document)
    settings = read(sources, remarks=remarks, strict=strict, core=core, changes=changes)
    merged = changed(merge(sources, remarks=remarks), changes)
    found = Findings()
    carrying = _carrying(Block(merged.value, (), found), settings, load)
    warnings = _told(found, merged)
    return carrying._replace(warnings=(*settings.warnings, *warnings))


def read_router(
    document: str | Sequence[Source],
    settings: Settings,
    *,
    name: str = "xray",
    load: Geodata,
    remarks: str | None = None,
) -> Router:
    """The rules alone, of a document that `read` made `settings` of; ConfigError likewise."""
    sources = [Source(name, document)] if isinstance(document, str) else list(document)
    merged = merge(sources, remarks=remarks)
    found = Findings()
    router = _router(Block(merged.value, (), found), settings, load)
    _told(found, merged)
    return router


def _told(found: Findings, merged: Merged) -> tuple[Problem, ...]:
    """The warnings, in the order of the files; ConfigError where there is more than that."""
    ordered = sorted(found, key=lambda each: merged.order(each.path))
    told = [
        (each.is_error, problem_of(each, merged.value, merged.place(each.path, key=each.about_key))) for each in ordered
    ]
    if errors := [problem for is_error, problem in told if is_error]:
        raise ConfigError(*errors)
    return tuple(problem for _, problem in told)


def _carrying(root: Block, settings: Settings, load: Geodata) -> Carrying:
    inbounds = read_inbounds(root)
    ways = [_way(block, each) for block, each in zip(root.blocks("outbounds"), settings.outbounds, strict=True)]
    if not ways:
        root.refuse("outbounds", "is needed: without one nothing can leave", '[{"protocol": "freedom"}]')
    patience, counted = _policy(root.block("policy"))
    return Carrying(
        settings,
        inbounds,
        _router(root, settings, load),
        {each.tag: each for each in ways if each.tag},
        ways[0] if ways else None,
        patience,
        counted,
        (),
    )


def _router(root: Block, settings: Settings, load: Geodata) -> Router:
    routing = root.block("routing") or Block({}, ("routing",), root.found)
    word = routing.text("domainStrategy")
    words = {each.value.lower(): each for each in Strategy}
    if word and word.lower() not in words:
        routing.warn(
            "domainStrategy", "is none of " + ", ".join(each.value for each in Strategy), "Xray takes it for AsIs"
        )
    sniffs = any(
        (sniffing := each.block("sniffing")) is not None and sniffing.flag("enabled")
        for each in root.blocks("inbounds")
    )
    blocks = routing.blocks("rules")
    read_ = [read_conditions(each, load, sniffs=sniffs) or Conditions() for each in blocks]
    # A rule about what is never looked into matches nothing.
    kept = zip(blocks, read_, settings.rules, strict=True)
    rules = [Directed(each, rule.outbound, rule.balancer) for block, each, rule in kept if not block.has("protocol")]
    return Router(rules, words.get(word.lower(), Strategy.AS_IS))


def _way(block: Block, outbound: Outbound) -> Way:
    settings = block.block("settings") or Block({}, block.at("settings"), block.found)
    tag = outbound.tag
    if outbound.protocol == "blackhole":
        response = settings.block("response")
        kind = "" if response is None else response.text("type").lower()
        return Way(tag, Exit.DROPS, answer=_FORBIDDEN if kind == "http" else b"")
    if outbound.protocol == "loopback":
        return Way(tag, Exit.LOOPS, inbound=settings.text("inboundTag"))
    if outbound.reach is Reach.NONE or (outbound.reach is Reach.CORE and not outbound.hops):
        return Way(tag, Exit.CANNOT, why=outbound.why)
    families = _families(block, settings) if outbound.protocol == "freedom" else ()
    return Way(tag, Exit.GOES, outbound.hops, outbound.source, outbound.interface, families)


def _families(block: Block, settings: Block) -> tuple[int, ...]:
    at = settings if settings.has("domainStrategy") else block
    name = "domainStrategy" if settings.has("domainStrategy") else "targetStrategy"
    word = at.text(name, "AsIs")
    if word.lower() not in _FAMILIES:
        at.refuse(name, "is no strategy", "AsIs, UseIP, UseIPv4, UseIPv6, ForceIPv4, …")
    for each in ("fragment", "noises"):
        if settings.has(each):
            settings.warn(each, "is not done here: connections leave as they are")
    return _FAMILIES.get(word.lower(), ())


def _policy(block: Block | None) -> tuple[Mapping[int, Patience], Counted]:
    if block is None:
        return {}, Counted()
    system = block.block("system") or Block({}, block.at("system"), block.found)
    counted = Counted(
        system.flag("statsInboundUplink"),
        system.flag("statsInboundDownlink"),
        system.flag("statsOutboundUplink"),
        system.flag("statsOutboundDownlink"),
    )
    levels: dict[int, Patience] = {}
    for key, each in block.entries("levels"):
        if not (key.isdecimal() and key.isascii() and len(key) <= 9):
            each.found.refuse(each.path, "must be the number of a level", '"0"', about_key=True)
            continue
        levels[int(key)] = _patience(each)
    return levels, counted


def _patience(block: Block) -> Patience:
    def seconds(name: str, usual: Seconds) -> Seconds:
        return float(block.whole(name, round(usual), least=0, most=_LONGEST))

    return Patience(
        handshake=max(1.0, seconds("handshake", _USUAL.handshake)),
        idle=max(1.0, seconds("connIdle", _USUAL.idle)),
        uplink_only=seconds("uplinkOnly", _USUAL.uplink_only),
        downlink_only=seconds("downlinkOnly", _USUAL.downlink_only),
    )
