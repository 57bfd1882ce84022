"""The reference names every field that is refused by name: the list is that of the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOOR = ROOT / "src/reachline/doors/envoy"
REFERENCE = ROOT / "docs/reference/envoy.md"


def refused() -> Iterator[tuple[str, str]]:
    """(module, field) of every field that a block calls unsupported."""
    for path in sorted(DOOR.glob("*.py")):
        for table in _tables(ast.parse(path.read_text())):
            for each in ast.walk(table):
                yield from ((path.stem, field) for field in _fields(each))


def _tables(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            if "UNSUPPORTED" in node.target.id:
                yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsupported":
            yield from node.args


def _fields(node: ast.AST) -> Iterator[str]:
    """Of a literal, and of `dict.fromkeys((…), "")`."""
    if isinstance(node, ast.Dict):
        yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))
    elif isinstance(node, ast.Call):
        yield from (str(part.value) for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant))


def test_every_field_that_is_refused_by_name_stands_in_the_reference() -> None:
    text = REFERENCE.read_text()
    found = sorted({field for _, field in refused()})

    assert len(found) > 100
    assert [field for field in found if f"`{field}`" not in text] == []
