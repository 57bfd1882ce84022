"""What only shows between the blocks of a document: names that name nothing, selectors that mean more or less than they say, balancers
without the observations they choose by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from reachline.core.observing.rules import Strategy
from reachline.core.observing.selecting import is_selected, selected
from reachline.doors.findings import Findings
from reachline.doors.observatory.fields import Block
from reachline.doors.observatory.values import Balancer, Outbound, Reach, Settings
from reachline.doors.origin import Path
from reachline.doors.wording import nearest

__all__ = ["Places", "cross"]

_SHOWN: Final = 5
"""Tags named in one warning."""


class Places(NamedTuple):
    """Where the parts of the document stand."""

    outbounds: tuple[tuple[Outbound, Path], ...]
    balancers: tuple[tuple[Balancer, Path], ...]
    rules: tuple[Path, ...]


def cross(root: Block, settings: Settings, places: Places) -> None:
    """Everything that is told of the document as a whole."""
    found = root.found
    tags = settings.tags
    _observatory(root, settings, tags)
    for balancer, at in places.balancers:
        routing = (*at, "selector")
        _selector(found, routing, balancer.rules.selectors, tags, settings.balancers)
        if not selected(tags, balancer.rules.selectors) and balancer.rules.selectors:
            found.warn(routing, "selects no outbound: nothing is ever chosen", _known(tags))
        _needs(found, balancer, at, settings)
        _groups(found, balancer, tags)
    _fallbacks(found, places.balancers, settings, frozenset((*tags, *_virtual(root))))
    _rules(found, settings, places.rules, frozenset((*tags, *_virtual(root))))
    _unreached(found, places, settings)


def _observatory(root: Block, settings: Settings, tags: Sequence[str]) -> None:
    for each in (settings.observatory, settings.wasted):
        if each is None or not each.selectors:
            continue
        name = "burstObservatory" if each.is_burst else "observatory"
        at = (*root.at(name), "subjectSelector")
        _selector(root.found, at, each.selectors, tags, settings.balancers)
        if not selected(tags, each.selectors):
            root.found.warn(at, "selects no outbound: nothing is observed", _known(tags))


def _selector(
    found: Findings, at: Path, selectors: Sequence[str], tags: Sequence[str], balancers: Mapping[str, Balancer]
) -> None:
    """Selectors are beginnings of tags, which whoever writes a whole tag may not mean."""
    for number, each in enumerate(selectors):
        if each in balancers and not selected(tags, (each,)):
            hint = "a balancer falls back to another by fallbackTag (Xray: by a loopback outbound and a rule)"
            found.warn((*at, number), "is a balancer's tag: selectors choose among outbounds", hint)
        elif each in tags and (more := [tag for tag in selected(tags, (each,)) if tag != each]):
            found.warn(
                (*at, number),
                f"is an outbound's whole tag and the beginning of {_listed(more)} too",
                "rename one of them",
            )


def _needs(found: Findings, balancer: Balancer, at: Path, settings: Settings) -> None:
    rules = balancer.rules
    is_simple = rules.strategy in {Strategy.RANDOM, Strategy.ROUND_ROBIN}
    if settings.observatory is None:
        if not is_simple or rules.fallback:
            what = f"strategy {rules.strategy.value}{' with a fallbackTag' if is_simple else ''}"
            hint = "add observatory or burstObservatory; Xray stops here with 'not all dependencies are resolved'"
            found.refuse(at, f"needs an observatory, and the document has none: {what}", hint, about_key=True)
        return
    candidates = selected(settings.tags, rules.selectors)
    silent = {each.tag for each in settings.outbounds if each.reach is Reach.NONE}
    unseen = [tag for tag in candidates if not is_selected(tag, settings.observatory.selectors) and tag not in silent]
    if unseen and (not is_simple or rules.fallback or not rules.strict):
        found.warn(
            (*at, "selector"),
            f"selects {_listed(unseen)}, which the observatory does not observe",
            "widen its subjectSelector",
        )


def _groups(found: Findings, balancer: Balancer, tags: Sequence[str]) -> None:
    candidates = selected(tags, balancer.rules.selectors)
    for number, selectors in enumerate(balancer.rules.groups):
        if candidates and not selected(candidates, selectors):
            found.warn(
                ("reachline", "balancers", balancer.tag, "groups", number), "selects none of the balancer's outbounds"
            )


def _fallbacks(
    found: Findings, balancers: Iterable[tuple[Balancer, Path]], settings: Settings, outbounds: frozenset[str]
) -> None:
    for balancer, at in balancers:
        name, place = balancer.rules.fallback, (*at, "fallbackTag")
        if not name or name in outbounds:
            continue
        if name in settings.balancers and not settings.strict:
            if trail := _circle(balancer.tag, settings.balancers):
                found.refuse(
                    place, f"falls back to itself: {' → '.join(trail)}", "end the chain at an outbound, or nowhere"
                )
        elif name in settings.balancers:
            found.warn(place, "is a balancer's tag: Xray takes it for an outbound's and drops the connection")
        else:
            found.warn(place, "names no outbound: Xray drops such connections", _meant(name, outbounds))


def _circle(tag: str, balancers: Mapping[str, Balancer]) -> list[str]:
    """The balancers from `tag` back to itself; empty: it is on no circle."""
    trail = [tag]
    while (following := balancers[trail[-1]].rules.fallback) in balancers and following not in trail:
        trail.append(following)
    return [*trail, tag] if following == tag else []


def _rules(found: Findings, settings: Settings, places: Sequence[Path], outbounds: frozenset[str]) -> None:
    for rule, at in zip(settings.rules, places, strict=True):
        if rule.outbound and rule.outbound not in outbounds:
            found.warn(
                (*at, "outboundTag"), "names no outbound: Xray drops such connections", _meant(rule.outbound, outbounds)
            )
        if rule.balancer and rule.balancer not in settings.balancers:
            hint = _meant(rule.balancer, settings.balancers)
            found.warn((*at, "balancerTag"), "names no balancer: Xray drops such connections", hint)


def _unreached(found: Findings, places: Places, settings: Settings) -> None:
    """Outbounds that are to be observed and cannot be."""
    if settings.observatory is None:
        return
    for outbound, at in places.outbounds:
        if outbound.reach is Reach.NATIVE or outbound.hops or not outbound.tag:
            continue
        if not is_selected(outbound.tag, settings.observatory.selectors):
            continue
        hint = "" if outbound.reach is Reach.NONE else "name a core's SOCKS address under reachline.core"
        found.warn((*at, "protocol"), f"is selected and not observed: it {outbound.why}", hint)


def _virtual(root: Block) -> set[str]:
    """Tags that connections can be sent to and that no outbound has: of the API, the metrics, and reverse portals."""
    found = set()
    for name in ("api", "metrics"):
        block = root.peek(name)
        found.add(_text(block, "tag"))
    reverse = root.peek("reverse")
    for each in _items(_at(reverse, "portals")):
        found.add(_text(each, "tag"))
    for inbound in _items(root.peek("inbounds")):
        for client in _items(_at(_at(inbound, "settings"), "clients")):
            found.add(_text(_at(client, "reverse"), "tag"))
    return found - {""}


def _at(value: object, name: str) -> object:
    if not isinstance(value, Mapping):
        return None
    return next((each for key, each in value.items() if str(key).casefold() == name), None)


def _text(value: object, name: str) -> str:
    found = _at(value, name)
    return found if isinstance(found, str) else ""


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _meant(name: str, known: Iterable[str]) -> str:
    close = nearest(name, tuple(known))
    return f"did you mean {close!r}?" if close else ""


def _known(tags: Sequence[str]) -> str:
    return f"outbounds are {_listed(tags)}" if tags else "no outbound has a tag"


def _listed(tags: Sequence[str]) -> str:
    text = ", ".join(map(repr, tags[:_SHOWN]))
    return f"{text} and {len(tags) - _SHOWN} more" if len(tags) > _SHOWN else text
