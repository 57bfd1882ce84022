"""Text to document, with everything that is wrong with it at once. The steps of `reach.read`, one function each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import SecretStr, ValidationError

from reachline.doors.addresses import has_login
from reachline.doors.checks import checked
from reachline.doors.composer import Composed, Trouble, compose, walk
from reachline.doors.origin import REFERENCE, Origin, Path, Places, read_secret, resolve
from reachline.doors.planning import kinds_known
from reachline.doors.problems import Finding, Located, Locator, dotted, explained
from reachline.doors.settings import AgentSettings, Center, Cluster, Document
from reachline.doors.upgrade import UPGRADES, upgrade
from reachline.errors import Problem

__all__ = ["Examined", "examine", "read_secret"]

TokenOwner = TypeVar("TokenOwner", AgentSettings, Center)
ProbesOwner = TypeVar("ProbesOwner", Document, Cluster)

_SMALLEST: Final = "the smallest is three lines: clusters:, a name with lines:, and a list of URLs"
_CAUSES: Final = {
    "lines": frozenset({"policy", "probes"}),
    "probes": frozenset({"lines"}),
    "from": frozenset({"agents"}),
}
"""What else a check of a block, or of a key, looks at."""
_ROUNDS: Final = 4
"""Times that a document is tried again without its wrong parts, so that what only shows in the whole is told too."""


class Examined(NamedTuple):
    """A document, or None and why not. Warnings are on the document."""

    document: Document | None
    problems: tuple[Problem, ...]


def examine(
    text: str, *, name: str, environ: Mapping[str, str], secret_file: Callable[[str], str] = read_secret
) -> Examined:
    """The document in `text` if it is right; else every problem, in the order of the file."""
    composed = compose(text, name=name)
    locator = Locator(value=composed.value, places=composed.places)
    broken = [_trouble(composed.places, trouble) for trouble in composed.troubles]
    if not composed.whole or not _is_mapping(composed, broken):
        return Examined(None, _ordered(broken))
    data, findings = upgrade(composed.value, UPGRADES)
    references, secrets = _references(data, environ, secret_file)
    origin = Origin(places=composed.places, locate=locator.path, secrets=secrets)
    document, wrong = _validated(data, locator, origin)
    findings = (*findings, *references, *wrong)
    errors = [*broken, *(locator.located(each) for each in findings if each.is_error)]
    if errors or document is None:
        return Examined(None, _ordered(errors))
    warnings = _ordered(locator.located(each) for each in findings if not each.is_error)
    return Examined(_filled(document, secrets).read_from(replace(origin, warnings=warnings)), ())


def _ordered(located: Iterable[Located]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(each.problem for each in sorted(located, key=lambda each: each.place)))


def _trouble(places: Places, trouble: Trouble) -> Located:
    place = places.text(trouble.place)
    problem = Problem(place=place, path=dotted(trouble.path), value="", rule=trouble.rule, hint=trouble.hint)
    return Located(trouble.place, problem)


def _is_mapping(composed: Composed, broken: list[Located]) -> bool:
    """Whether the document is a block of keys; what it is instead goes to `broken`."""
    if isinstance(composed.value, dict):
        return True
    rule = (
        "is empty"
        if composed.value is None
        else "is not a block of keys, but " + ("a list" if isinstance(composed.value, list) else "a single value")
    )
    finding = Finding(path=(), rule=rule, hint=_SMALLEST, about_key=True)
    broken.append(Locator(value=composed.value, places=composed.places).located(finding))
    return False


def _validated(data: dict[str, Any], locator: Locator, origin: Origin) -> tuple[Document | None, tuple[Finding, ...]]:
    """The settings and what is odd about them; or None, what is wrong, and what is wrong beside it elsewhere."""
    try:
        document = Document.model_validate(data).read_from(origin)
    except ValidationError as error:
        findings = _explained(error, locator)
        return None, (*findings, *_beside(data, locator, origin, findings))
    return document, tuple(checked(document))


def _explained(error: ValidationError, locator: Locator) -> list[Finding]:
    """Each error once: a list whose items are wrong is not also too short."""
    found = error.errors(include_url=False)
    return [explained(each, locator) for each in found if each["type"] != "too_short" or not each["input"]]


def _beside(data: dict[str, Any], locator: Locator, origin: Origin, found: list[Finding]) -> list[Finding]:
    """What the checks of the whole find where nothing is wrong yet: the wrong parts are left out and the rest is tried."""
    rest = copy.deepcopy(data)
    cut = [_cut(rest, locator.path(each.path)) for each in found]
    for _ in range(_ROUNDS):
        try:
            document = Document.model_validate(rest).read_from(origin)
        except ValidationError as error:
            again = _explained(error, Locator(value=rest, places=locator.places))
            cut += [_cut(rest, Locator(value=rest, places=locator.places).path(each.path)) for each in again]
            continue
        left_out = {_block(path) for path in cut}
        return [each for each in checked(document) if each.is_error and not _is_doubtful(each.path, left_out)]
    return []


def _block(path: Path) -> tuple[Path, str]:
    """The cluster a path lies in (empty: none) and the block there."""
    home = path[:2] if path[:1] == ("clusters",) else ()
    rest = path[len(home) :]
    return home, str(rest[0]) if rest else ""


def _is_doubtful(path: Path, left_out: Iterable[tuple[Path, str]]) -> bool:
    """Whether a finding may be there only because of what was left out: its own block, or one that it depends on."""
    home, key = _block(path)
    causes = {"", "preset", "class", key} | _CAUSES.get(key, frozenset()) | _CAUSES.get(str(path[-1]), frozenset())
    return any(cause in causes for at, cause in left_out if at in {home, ()})


def _cut(data: dict[str, Any], path: Path) -> Path:
    """Take the wrong part out: the key, or the whole block where one of its keys is missing."""
    here: Any = data
    for step in path[:-1]:
        if isinstance(here, dict) and step not in here:
            return path
        here = here[step]
    if isinstance(here, dict) and path:
        here.pop(path[-1], None)
    elif isinstance(here, list) and path and isinstance(path[-1], int):
        # The place stays, so that the paths of its neighbours stay.
        here[path[-1]] = f"icmp://left-out-{path[-1]}.invalid"
    return path


_MAY_REFER: Final = (
    "only via, headers, passwords, tokens and logins of redis:// are filled in; elsewhere write the value itself"
)


def _references(
    data: Any, environ: Mapping[str, str], secret_file: Callable[[str], str]
) -> tuple[tuple[Finding, ...], dict[str, str]]:
    """What every `${…}` stands for, and what is wrong with those that stand for nothing."""
    findings: list[Finding] = []
    secrets: dict[str, str] = {}
    for path, value in walk(data):
        for reference in REFERENCE.findall(value) if isinstance(value, str) else ():
            if not _may_refer(path, value):
                findings.append(Finding(path=path, rule="holds a reference where none is read", hint=_MAY_REFER))
                continue
            answer, (rule, hint) = resolve(reference, environ, secret_file)
            if answer is None:
                findings.append(Finding(path=path, rule=rule, hint=hint))
            else:
                secrets[reference] = answer
    return tuple(findings), secrets


def _may_refer(path: Path, value: str) -> bool:
    """Whether references are filled in here: in a way out, a token, a password, a header, and the login of a line's URL."""
    if path and path[-1] in {"via", "token", "password"}:
        return True
    if len(path) < 2:
        return False
    is_line = path[-1] == "to" or path[-2] == "lines"
    return path[-2] in {"via", "headers"} or (is_line and has_login(value))


def _filled(document: Document, secrets: Mapping[str, str]) -> Document:
    """The document with its tokens and headers filled in. A proxy's URL stays as written: `Document.revealed` fills it."""
    if not secrets:
        return document
    return document.model_copy(
        update={
            "agents": {name: _with_token(agent, secrets) for name, agent in document.agents.items()},
            "center": _with_token(document.center, secrets),
            "probes": _with_secrets(document, secrets).probes,
            "clusters": {name: _with_secrets(cluster, secrets) for name, cluster in document.clusters.items()},
        }
    )


def _fill(secret: SecretStr, secrets: Mapping[str, str]) -> SecretStr:
    return SecretStr(REFERENCE.sub(lambda found: secrets[found[1]], secret.get_secret_value()))


def _with_token(owner: TokenOwner, secrets: Mapping[str, str]) -> TokenOwner:
    return owner if owner.token is None else owner.model_copy(update={"token": _fill(owner.token, secrets)})


def _with_secrets(owner: ProbesOwner, secrets: Mapping[str, str]) -> ProbesOwner:
    """Every secret of every kind's block: header values and passwords."""
    blocks = {}
    for kind in kinds_known():
        block = owner.probes.of(kind)
        filled = {name: found for name in type(block).model_fields if (found := _secret(getattr(block, name), secrets))}
        if filled:
            blocks[kind.value] = block.model_copy(update=filled)
    return owner.model_copy(update={"probes": owner.probes.model_copy(update=blocks)}) if blocks else owner


def _secret(value: object, secrets: Mapping[str, str]) -> SecretStr | dict[object, object] | None:
    """The setting filled in; None where it holds no secret."""
    match value:
        case SecretStr():
            return _fill(value, secrets)
        case dict() if value:
            return {name: _fill(one, secrets) if isinstance(one, SecretStr) else one for name, one in value.items()}
        case _:
            return None
