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
        tables: list[ast.expr] = []
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() | ast.Call() as table) if (
                    "UNSUPPORTED" in name
                ):
                    tables.append(table)
                case ast.Call(func=ast.Attribute(attr="unsupported"), args=[ast.Dict() as table]):
                    tables.append(table)
        for table in tables:
            for each in ast.walk(table):
                if isinstance(each, ast.Dict):
                    yield from ((path.stem, str(key.value)) for key in each.keys if isinstance(key, ast.Constant))
                elif isinstance(each, ast.Call):
                    texts = [part.value for part in ast.walk(each.args[0]) if isinstance(part, ast.Constant)]
                    yield from ((path.stem, str(text)) for text in texts)


def test_every_field_that_is_refused_by_name_stands_in_the_reference() -> None:
    text = REFERENCE.read_text()
    found = sorted({field for _, field in refused()})

    assert len(found) > 100
    assert [field for field in found if f"`{field}`" not in text] == []
