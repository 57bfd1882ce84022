"""Text to settings: one file or several, by Xray's own rules; every problem at once, in the order of the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reachline.doors.addresses import is_public
from reachline.doors.findings import Finding, Findings
from reachline.doors.observatory.changing import Changes, changed
from reachline.doors.observatory.crossing import Places, cross
from reachline.doors.observatory.extras import read_extras
from reachline.doors.observatory.fields import Block, problem_of
from reachline.doors.observatory.merging import Merged, Source, merge, strange_keys
from reachline.doors.observatory.observing import read_observatories
from reachline.doors.observatory.outbounds import read_outbounds
from reachline.doors.observatory.relay import Core
from reachline.doors.observatory.routing import read_balancers, read_rules
from reachline.doors.observatory.values import Api, Inbound, Metrics, Settings
from reachline.doors.wording import nearest
from reachline.errors import ConfigError, Problem

__all__ = ["read"]

_INBOUNDS: Final = (
    "tunnel", "dokodemo-door", "http", "shadowsocks", "mixed", "socks", "vless", "vmess", "trojan", "wireguard", "hysteria", "tun",
)  # fmt: skip
_SERVICES: Final = (
    "HandlerService", "RoutingService", "ObservatoryService", "StatsService", "LoggerService", "ReflectionService",
)  # fmt: skip

_UNCHANGED: Final = Changes()


def read(
    document: str | Sequence[Source],
    *,
    name: str = "xray",
    remarks: str | None = None,
    strict: bool = False,
    core: Core | None = None,
    changes: Changes = _UNCHANGED,
) -> Settings:
    """The settings of a document, given as its text (`name` is its file's) or as several files in `-confdir`'s order.

    `remarks` names one of an array of documents. `strict` is Xray's behaviour exactly. `core` reaches outbounds that only a proxy
    core speaks; without it the document's own `reachline.core`. `changes` came over an API since. ConfigError holds every problem found.
    """
    sources = [Source(name, document)] if isinstance(document, str) else list(document)
    if not sources:
        raise ConfigError(Problem(place=name, path="", value="", rule="holds no document", hint="name a .json file"))
    merged = changed(merge(sources, remarks=remarks), changes)
    found = Findings()
    settings = _settings(merged, found, strict=strict, core=core)
    ordered = sorted(found, key=lambda each: merged.order(each.path))
    errors = [_problem(each, merged) for each in ordered if each.is_error]
    if errors:
        raise ConfigError(*errors)
    return replace(settings, warnings=tuple(_problem(each, merged) for each in ordered))


def _problem(found: Finding, merged: Merged) -> Problem:
    return problem_of(found, merged.value, merged.place(found.path, key=found.about_key))


def _settings(merged: Merged, found: Findings, *, strict: bool, core: Core | None) -> Settings:
    root = Block(merged.value, (), found)
    strange_keys(merged, found)
    extras = read_extras(root)
    outbounds = read_outbounds(root, core or extras.core)
    observatory, wasted = read_observatories(root, extras, strict=strict)
    routing = root.block("routing")
    balancers = read_balancers(routing, extras, strict=strict)
    rules = read_rules(routing)
    settings = Settings(
        outbounds=tuple(each for each, _ in outbounds),
        inbounds=tuple(map(_inbound, root.blocks("inbounds"))),
        observatory=observatory,
        wasted=wasted,
        balancers={each.tag: each for each, _ in balancers},
        rules=tuple(each for each, _ in rules),
        api=_api(root.block("api"), has_observatory=observatory is not None),
        metrics=_metrics(root.block("metrics")),
        remarks=root.text("remarks"),
        strict=strict,
    )
    for tag, _ in extras.balancers:
        if tag not in settings.balancers:
            close = nearest(tag, tuple(settings.balancers))
            hint = f"did you mean {close!r}?" if close else ""
            found.refuse(("reachline", "balancers", tag), "names no balancer of the document", hint, about_key=True)
    cross(root, settings, Places(outbounds, balancers, tuple(at for _, at in rules)))
    if isinstance(transport := root.peek("transport"), dict) and transport:
        root.refuse("transport", "was removed from Xray", "streamSettings of inbounds and outbounds say it")
    return settings


def _inbound(block: Block) -> Inbound:
    protocol = block.text("protocol", needed=True).lower()
    if protocol and protocol not in _INBOUNDS:
        close = nearest(protocol, _INBOUNDS)
        block.refuse(
            "protocol",
            "is no inbound protocol",
            f"did you mean {close}?" if close else f"known: {', '.join(_INBOUNDS)}",
        )
    port = block.raw("port")
    if isinstance(port, bool) or not isinstance(port, int | str | None):
        block.refuse("port", "must be a port, or a text with ports and ranges")
        port = None
    return Inbound(
        tag=block.text("tag"), protocol=protocol, listen=block.text("listen"), port="" if port is None else str(port)
    )


def _api(block: Block | None, *, has_observatory: bool) -> Api | None:
    if block is None:
        return None
    services = block.texts("services", is_list=True)
    known = {each.lower(): each for each in _SERVICES}
    for number, each in enumerate(services):
        if each.lower() not in known:
            close = nearest(each.lower(), tuple(known))
            hint = f"did you mean {known[close]}?" if close else f"known: {', '.join(_SERVICES)}"
            block.found.warn((*block.at("services"), number), "is no service", hint, about_key=False)
    if "observatoryservice" in {each.lower() for each in services} and not has_observatory:
        hint = "add observatory or burstObservatory; Xray stops here with 'not all dependencies are resolved'"
        block.refuse("services", "holds ObservatoryService, and the document has no observatory", hint)
    listen = _listen(block)
    found = Api(
        tag=block.text("tag", needed=True),
        listen=listen,
        services=tuple(known[each.lower()] for each in services if each.lower() in known),
    )
    block.done()
    return found


def _metrics(block: Block | None) -> Metrics | None:
    if block is None:
        return None
    found = Metrics(tag=block.text("tag"), listen=_listen(block))
    if not found.tag and not found.listen:
        block.refuse("listen", "is needed, or a tag that an inbound is routed to", '"127.0.0.1:11111"')
    block.done()
    return found


def _listen(block: Block) -> str:
    text = block.text("listen")
    if text and not text.startswith(("unix:", "/", "@")) and is_public(text):
        block.warn(
            "listen",
            "can be reached from other machines, and asks for no password",
            "127.0.0.1 is reached from this one alone",
        )
    return text
