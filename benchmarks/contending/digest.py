"""What a run depends on, as one short word: the code that makes its decisions and its world, and the scenario. Not the rest of the tree:
a stored run counts for as long as nothing changed that could have changed it.

Comments and docstrings do not count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from reachline.simulate.scenarios import Scenario

__all__ = ["digest", "modules"]

SOURCE = Path(__file__).parents[2] / "src"
WORLD = "reachline.simulate.score"
"""From here on imports are followed: the world, and how it is scored…"""
OURS = "reachline.simulate.reach"
PEERS = "reachline.simulate.peers"
CONTENDERS = {
    "reachline": f"{OURS}.contender",
    "reachline-literal": f"{OURS}.contender",
    "envoy-like": f"{PEERS}.envoy",
    "linkerd-like": f"{PEERS}.linkerd",
    "polaris-like": f"{PEERS}.polaris",
    "mwan3-like": f"{PEERS}.mwan3",
    "xray-leastping": f"{PEERS}.leastping",
    "xray-leastload": f"{PEERS}.leastload",
}
"""…and the contender. `none` and `oracle` are part of the world."""
DECIDING = ("core", "simulate", "upstream")
PRESETS = ("reachline.doors.presets", "reachline.doors.fast", "reachline.doors.judging", "reachline.doors.limits")
"""Of the doors only what sets numbers: how documents are read changes daily, and moves none of them."""
SHARED = "reachline.core.tiers"
"""All of the core that counts for those who are not Reachline: a policy's shares in health."""


def digest(scenario: Scenario, contender: str, mode: str = "fast") -> str:
    """Sixteen hex digits; the same for as long as the run would be the same."""
    made = hashlib.blake2b(digest_size=8)
    made.update(f"{contender} {mode if contender == 'reachline' else ''}\n".encode())
    made.update(scenario.model_dump_json(exclude={"rng_seeds", "limits", "title", "source"}).encode())
    made.update(_code(contender).encode())
    return made.hexdigest()


@cache
def _code(contender: str) -> str:
    made = hashlib.blake2b(digest_size=8)
    for name in modules(contender):
        made.update(f"{name}\n{_meaning(_file(name))}\n".encode())
    return made.hexdigest()


@cache
def modules(contender: str) -> tuple[str, ...]:
    """The modules that count for a contender, sorted. Others know nothing of Reachline's own: neither its center nor its clients."""
    ours = contender.startswith("reachline")
    roots = [WORLD, "reachline.simulate.world", *([CONTENDERS[contender]] if contender in CONTENDERS else [])]
    found = _closure([*roots, *(PRESETS if ours else ())], through_ours=ours)
    return tuple(sorted(found))


def _closure(roots: Iterable[str], *, through_ours: bool) -> set[str]:
    found, left = set[str](), list(roots)
    while left:
        name = left.pop()
        if name in found or not _counts(name, through_ours=through_ours):
            continue
        found.add(name)
        if name not in PRESETS:
            left += _imported(_file(name))
    return found


def _counts(name: str, *, through_ours: bool) -> bool:
    if name in PRESETS:
        return through_ours
    part = name.split(".")[1] if "." in name else ""
    if not through_ours and (name.startswith(OURS) or (part != "simulate" and name != SHARED)):
        return False
    return part in DECIDING and _file(name).is_file()


def _imported(path: Path) -> list[str]:
    """Absolute names; of `from a import b` both `a` and `a.b`, one of which is none."""
    found: list[str] = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
    return [name for name in found if name.startswith("reachline.") and _file(name).is_file()]


def _file(name: str) -> Path:
    path = SOURCE.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _meaning(path: Path) -> str:
    """The module without comments and docstrings."""
    tree = _tree(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not _is_said(one)]
    return ast.unparse(tree)


def _is_said(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
