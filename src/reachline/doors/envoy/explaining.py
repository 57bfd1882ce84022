"""The way of one request through a document, told aloud: listener, chain, virtual host, route, cluster, endpoints, the pick and why.

The same functions decide here as in traffic; what they decide is only put into words. Endpoints are as the document has them:
no name is resolved, nothing is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from reachline.core.pick import Member, Memory, Policy, build
from reachline.doors.envoy.asked import Connection, Request
from reachline.doors.envoy.chain import Chain, FilterChain, HttpManager, Listener, RouteSource, TcpProxy
from reachline.doors.envoy.chains import LEVELS, chain_for, narrowed
from reachline.doors.envoy.domains import host_for, without_port
from reachline.doors.envoy.fitting import misfit
from reachline.doors.envoy.phrases import answered, domain_of, forwarded, passed_over, rule_of, said
from reachline.doors.envoy.routes import VirtualHost
from reachline.doors.envoy.routing import Answered, Decision, Missing, Redirected, Routes, Sent, decide, hashed, routes
from reachline.doors.envoy.ruling import rules
from reachline.doors.envoy.values import Cluster, Type
from reachline.model import Health

__all__ = ["Arrive", "Candidate", "Question", "Step", "explained"]

_DRAWN: Final = 1_000
"""Picks that are made to say what share each endpoint gets: a share of a percent shows."""
_SHOWN: Final = 12
"""Routes that are passed over and told one by one; the others are counted."""
_HEALTHS: Final = {Health.UNKNOWN: "healthy"}


class Question(NamedTuple):
    """What is asked."""

    request: Request
    port: int
    """That the client connects to."""
    listener: str = ""
    """Of this one, whatever its port; empty: by port."""
    seed: int = 0
    """Of the chances that are taken."""


class Step(NamedTuple):
    """One thing that is said: about what, and what."""

    about: str
    text: str


Arrive = Callable[[HttpManager, "Question"], tuple[Request | None, tuple[str, ...]]]
"""What a manager makes of a request before it is routed, and what is to be said of that; None: it is answered at once."""


class Candidate(NamedTuple):
    """An endpoint of the cluster, and its share of the picks as things stand."""

    address: str
    health: str
    weight: int
    priority: int
    share: float
    is_picked: bool


def _as_it_is(manager: HttpManager, question: Question) -> tuple[Request | None, tuple[str, ...]]:
    del manager
    return question.request, ()


def explained(chain: Chain, question: Question, *, arrive: Arrive = _as_it_is) -> tuple[list[Step], list[Candidate]]:
    """Everything that happens to the request, in order; the candidates where it comes to endpoints."""
    steps: list[Step] = []
    listener = _listener(chain, question, steps)
    place = None if listener is None else _chain(listener, question, steps)
    if place is None:
        return steps, []
    if isinstance(place.handler, TcpProxy):
        return steps, _tcp(chain, place.handler, question, steps)
    request, told = arrive(place.handler, question)
    steps += (Step("arrival", text) for text in told)
    if request is None:
        return steps, []
    question = question._replace(request=request)
    decision = _routed(place.handler, question, steps)
    if not isinstance(decision, Sent):
        return steps, []
    if decision.cluster not in chain.settings.clusters:
        named = f"there is none of the name {decision.cluster!r}" if decision.cluster else "no cluster is named"
        steps.append(Step("cluster", f"{named}: {decision.action.not_found}"))
        return steps, []
    steps += (Step(about, text) for about, text in forwarded(decision, question.request))
    key = hashed(decision.action.hash, question.request)
    return steps, _picked(chain, decision.cluster, key, question, steps)


def _listener(chain: Chain, question: Question, steps: list[Step]) -> Listener | None:
    known = ", ".join(f"{each.name or 'without a name'} on {each.address}" for each in chain.listeners) or "none"
    if question.listener:
        found = next((each for each in chain.listeners if each.name == question.listener), None)
        why = "as asked for"
    else:
        found = next((each for each in chain.listeners if _is_at(each, question.port)), None)
        why = f"it has port {question.port}"
        if found is None and len(chain.listeners) == 1:
            (found,), why = chain.listeners, f"the only one, though its port is not {question.port}"
    if found is None:
        wanted = repr(question.listener) if question.listener else f"on port {question.port}"
        steps.append(Step("listener", f"there is none {wanted}; the document has {known}"))
        return None
    steps.append(Step("listener", f"{found.name or 'without a name'} on {found.address}: {why}"))
    return found


def _is_at(listener: Listener, port: int) -> bool:
    return port in (each.port for each in (listener.address, *listener.more_addresses))


def _chain(listener: Listener, question: Question, steps: list[Step]) -> FilterChain | None:
    request = question.request
    is_tls = request.scheme == "https"
    name = request.authority.rpartition(":")[0] or request.authority
    source = listener.address._replace(host=request.source_ip or "127.0.0.1", port=0)
    connection = Connection(
        destination=listener.address._replace(port=listener.address.port or question.port),
        source=source,
        server_name=name if is_tls else "",
        transport="tls" if is_tls else "raw_buffer",
        alpn=("h2", "http/1.1") if is_tls else (),
    )
    left = narrowed(listener, connection)
    for (field, _), before, after in zip(LEVELS, left, left[1:], strict=False):
        if len(after) < len(before):
            steps.append(Step("chain", f"{field} leaves {len(after)} of {len(before)} filter chains"))
    found = chain_for(listener, connection)
    if found is None:
        steps.append(Step("chain", "no filter chain takes the connection, and there is no default one: it is closed"))
        return None
    kind = "http_connection_manager" if isinstance(found.handler, HttpManager) else "tcp_proxy"
    which = (
        "the default one" if found is listener.default else "the only one" if len(listener.chains) == 1 else "this one"
    )
    name = f"{found.name}, " if found.name else ""
    steps.append(Step("chain", f"{name}{which}: {kind} {found.handler.stat_prefix}"))
    if (found.tls is not None) is not is_tls:
        speaks = "TLS" if found.tls is not None else "plain text"
        steps.append(Step("chain", f"it speaks {speaks}, and {request.scheme} does not: the connection fails"))
        return None
    return found


def _routed(manager: HttpManager, question: Question, steps: list[Step]) -> Decision | None:
    if isinstance(manager.routes, RouteSource):
        steps.append(
            Step("host", f"its routes come as {manager.routes.name} from elsewhere: they are not in the document")
        )
        return None
    table = routes(manager.routes, respect_expected=manager.respect_expected_timeout)
    chance = Random(question.seed).getrandbits(64)
    decision = decide(table, question.request, chance=chance)
    host = decision.host
    if host is None:
        bare = without_port(question.request.authority)
        would = host_for(table.domains, bare)
        hint = f"; {would.name} has one for {bare!r}, without the port" if would is not None else ""
        steps.append(Step("host", f"no virtual host has a domain for {question.request.authority!r}: 404{hint}"))
        return decision
    steps.append(Step("host", f"{host.name}: its domain {domain_of(host, table, question.request)}"))
    steps += (Step("route", text) for text in _walked(table, host, decision, question.request, chance))
    if isinstance(decision, Redirected | Answered):
        steps.append(Step("answer", answered(decision)))
    return decision


def _walked(table: Routes, host: VirtualHost, decision: Decision, request: Request, chance: int) -> Iterator[str]:
    """The routes one after the other, up to the one that is taken."""
    if isinstance(decision, Redirected) and decision.route is None:
        yield f"none is asked: the virtual host has require_tls {host.require_tls}"
        return
    taken = None if isinstance(decision, Missing) else decision.route
    ignore = table.config.ignore_path_parameters
    passed = 0
    for route in host.routes:
        why = misfit(route.match, request, chance, without_parameters=ignore)
        if route is taken or why is None:
            if passed > _SHOWN:
                yield f"and {passed - _SHOWN} more that do not fit"
            blocked = "" if route is taken else ", and it is not to be taken: 503"
            yield f"{said(route)}: the first that fits ({rule_of(route.match)}){blocked}"
            return
        passed += 1
        if passed <= _SHOWN:
            yield f"not {said(route)}: {passed_over(why, request)}"
    if passed > _SHOWN:
        yield f"and {passed - _SHOWN} more that do not fit"
    yield f"none of {len(host.routes)} fits: 404"


def _tcp(chain: Chain, proxy: TcpProxy, question: Question, steps: list[Step]) -> list[Candidate]:
    name = proxy.cluster
    if proxy.weighted:
        left = Random(question.seed).randrange(sum(each.weight for each in proxy.weighted))
        for each in proxy.weighted:
            name, left = each.name, left - each.weight
            if left < 0:
                break
        steps.append(Step("cluster", f"{name}: by chance, of {len(proxy.weighted)} in shares"))
    if name not in chain.settings.clusters:
        steps.append(Step("cluster", f"there is none of the name {name!r}: the connection is closed"))
        return []
    return _picked(chain, name, hashed(proxy.hash, question.request), question, steps)


def _picked(chain: Chain, name: str, key: int | None, question: Question, steps: list[Step]) -> list[Candidate]:
    cluster = chain.settings.clusters[name]
    members = _members(cluster)
    steps.append(Step("cluster", f"{name}, {cluster.type.value}: {_counted(cluster, members)}"))
    if not members:
        steps.append(Step("pick", "nobody: 503, no healthy upstream"))
        return []
    policy = rules(chain.settings, name).policy
    picker = build(members, policy, Memory(), Random(question.seed))
    if key is not None:
        steps.append(Step("key", f"{key:#018x}, of what the route's hash_policy names"))
    choice = picker.pick(Random(question.seed), key)
    rng = Random(question.seed)
    counts = Counter(picker.pick(rng, None if key is None else rng.getrandbits(64)) for _ in range(_DRAWN))
    steps.append(
        Step("pick", "nobody: 503, no healthy upstream" if choice is None else f"{choice}: {_why(policy, key)}")
    )
    return [
        Candidate(
            each.item, _HEALTHS.get(each.health, each.health.name.lower()), each.weight, each.priority,
            counts[each.item] / _DRAWN, each.item == choice,
        )
        for each in members
    ]  # fmt: skip


def _members(cluster: Cluster) -> list[Member[str]]:
    found = []
    for each in cluster.membership.members:
        metadata = _texts(each.metadata.get("envoy.lb"))
        key = metadata.get("hash_key") or (each.hostname if cluster.hash_hostnames else "") or str(each.address)
        member = Member(
            str(each.address), key, each.weight, each.health, each.health is Health.DRAINING, each.priority, each.locality,
            metadata,
        )  # fmt: skip
        found.append(member)
    return found


def _texts(value: object) -> Mapping[str, str]:
    return {str(key): str(each) for key, each in value.items()} if isinstance(value, Mapping) else {}


def _counted(cluster: Cluster, members: Sequence[Member[str]]) -> str:
    if cluster.type is Type.EDS and not members:
        return "its endpoints come by EDS, they are not in the document"
    names = ", names that are yet to be resolved" if cluster.type in (Type.STRICT_DNS, Type.LOGICAL_DNS) else ""
    checked = "; a check is yet to say which are well" if cluster.check is not None else ""
    return f"{len(members)} endpoint{'' if len(members) == 1 else 's'}{names}{checked}"


_WHYS: Final = {
    "round_robin": "its turn by weight, from a start taken by chance", "random": "by chance", "least_request": "of some drawn by chance, the one with the fewest requests; here there are none",
    "ring_hash": "its place on the ring", "maglev": "its place in the table",
}  # fmt: skip


def _why(policy: Policy, key: int | None) -> str:
    why = _WHYS.get(policy.name, policy.name)
    if policy.name in ("ring_hash", "maglev"):
        return (
            f"{policy.name}, {why} by the key"
            if key is not None
            else f"{policy.name}, by chance: the request has no key"
        )
    return f"{policy.name}, {why}"
