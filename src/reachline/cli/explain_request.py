"""`reachline explain --request 'GET http://host/path' -f bootstrap.yaml`: the way of one request through a document, aloud."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Final
from urllib.parse import urlsplit

from reachline.cli.documents import bootstrap_in
from reachline.cli.render import Output, write_json
from reachline.doors.envoy.asked import Request
from reachline.doors.envoy.chain import Chain, HttpManager, RouteSource
from reachline.doors.envoy.explaining import Candidate, Question, Step, explained
from reachline.doors.envoy.values import Type
from reachline.errors import ConfigError, Problem
from reachline.members import is_numeric
from reachline.net.reload import text_of
from reachline.proxy.arrival import Arrivals, Peer
from reachline.proxy.message import Request as Arriving

__all__ = ["explain", "question_of"]

_REQUEST: Final = re.compile(r"(?:([A-Z]+)\s+)?(https?://\S+)")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):\s*(.*)")
_PORTS: Final = {"http": 80, "https": 443}


def explain(
    text: str, file: str, *, headers: Sequence[str], source: str, listener: str, seed: int, output: Output
) -> None:
    """Prints the way; the document is read first, and all that is wrong with it is told."""
    question = question_of(text, headers=headers, source=source, listener=listener, seed=seed)
    steps, candidates = explained(_whole(bootstrap_in(text_of(file), file), file), question, arrive=arrived)
    if output is Output.JSON:
        write_json({"steps": [each._asdict() for each in steps], "endpoints": [each._asdict() for each in candidates]})
        return
    for line in lines(text, steps, candidates):
        print(line)


def _whole(chain: Chain, file: str) -> Chain:
    """With what comes from elsewhere, where something does."""
    by_name = any(each.type is Type.EDS for each in chain.settings.clusters.values())
    handlers = [each.handler for one in chain.listeners for each in one.chains]
    by_name |= any(isinstance(each, HttpManager) and isinstance(each.routes, RouteSource) for each in handlers)
    if chain.lds is None and chain.cds is None and not by_name:
        return chain
    from reachline.cli.explain_plane import completed  # noqa: PLC0415  (protobuf and gRPC, and only here)

    return completed(chain, file)


def question_of(
    text: str, *, headers: Sequence[str] = (), source: str = "", listener: str = "", seed: int = 0
) -> Question:
    """What was asked; ConfigError where it is no request."""
    found = _REQUEST.fullmatch(text.strip())
    if found is None:
        raise _refused("--request", text, "is no request", "write 'GET http://host:port/path?query'")
    try:
        url = urlsplit(found[2])
        port = url.port or _PORTS[url.scheme]
    except ValueError as error:
        raise _refused(
            "--request", text, f"is no request: {error}", "write 'GET http://host:port/path?query'"
        ) from None
    if source and not is_numeric(source):
        raise _refused("--from", source, "is no address", "write 10.0.0.1")
    said = _headers(headers)
    authority = said.pop("host", [url.netloc.rpartition("@")[2]])[-1]
    request = Request(
        method=found[1] or "GET",
        scheme=url.scheme,
        authority=authority,
        path=(url.path or "/") + (f"?{url.query}" if url.query else ""),
        headers=said,
        source_ip=source or "127.0.0.1",
    )
    return Question(request, port, listener, seed)


def _headers(texts: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in texts:
        parts = _HEADER.fullmatch(text)
        if parts is None:
            raise _refused("--header", text, "is no header", "write 'name: value'")
        found.setdefault(parts[1].lower(), []).append(parts[2].strip())
    return found


def arrived(manager: HttpManager, question: Question) -> tuple[Request | None, tuple[str, ...]]:
    """What the proxy's own manager makes of the request."""
    asked = question.request
    own = Arriving(0.0)
    own.method, own.path, own.authority = asked.method.encode(), asked.path.encode(), asked.authority.encode()
    own.headers = [(name.encode(), value.encode()) for name, values in asked.headers.items() for value in values]
    arrivals = Arrivals(manager, Random(question.seed).getrandbits)
    path = arrivals.path_of(own)
    if path is None:
        return None, ("400: its path holds an escaped slash, and path_with_escaped_slashes_action refuses that",)
    if path != own.path and manager.escaped_slashes == "UNESCAPE_AND_REDIRECT" and b"%" in own.path:
        return None, (f"307, location {path.decode()}: its path holds an escaped slash",)
    own.path = path
    peer = Peer(asked.source_ip, 0, question.port, asked.scheme == "https")
    is_internal = arrivals.take(own, peer)
    headers: dict[str, list[str]] = {}
    for name, value in own.headers:
        headers.setdefault(name.decode(), []).append(value.decode())
    scheme = headers.get("x-forwarded-proto", [asked.scheme])[-1]
    found = replace(
        asked,
        path=path.decode(),
        authority=own.authority.decode(),
        headers=headers,
        scheme=scheme if scheme in _PORTS else asked.scheme,
        is_internal=is_internal,
    )
    return found, tuple(_said(asked, found))


def _said(before: Request, after: Request) -> Iterator[str]:
    if after.path != before.path:
        yield f"path {after.path}, was {before.path}"
    if after.authority != before.authority:
        yield f"authority {after.authority}, was {before.authority}"
    if after.is_internal:
        yield "from inside: its x-envoy- headers count"
    gone = sorted(set(before.headers) - set(after.headers))
    if gone:
        yield f"from outside: without {', '.join(gone)}"


def lines(text: str, steps: Sequence[Step], candidates: Sequence[Candidate]) -> list[str]:
    """For people: what it is about only where that changes, endpoints before the pick."""
    found, last = [text.strip()], ""
    for step in steps:
        if step.about == "pick":
            found += _endpoints(candidates)
        found.append(f"{'' if step.about == last else step.about:<10} {step.text}")
        last = step.about
    return found


def _endpoints(candidates: Sequence[Candidate]) -> list[str]:
    """One line each. The share is of calls like this one with any key."""
    widest = max((len(each.address) for each in candidates), default=0)
    return [
        f"{'endpoints' if not at else '':<10} {each.address:<{widest}}  {each.health:<9}  weight {each.weight}"
        f"  priority {each.priority}  {each.share:.0%}{'  <- this one' if each.is_picked else ''}"
        for at, each in enumerate(candidates)
    ]


def _refused(path: str, value: str, rule: str, hint: str) -> ConfigError:
    return ConfigError(Problem(place="explain", path=path, value=value, rule=rule, hint=hint))
