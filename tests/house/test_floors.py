"""The house stands as the design says: floors, what each floor may import, sizes, docstrings, public names."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "reachline"
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST_FUNCTION, LONGEST_MODULE, LONGEST_CORE = 40, 400, 250


def name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> Iterator[str]:
    """Top-level package of every import in the module, those inside functions included."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_imports_go_down_only(root: Path) -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool, "--no-logo", "--no-cache"], cwd=root, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "floor", ["core", "upstream", "client", "model.py", "errors.py", "abc.py", "wire/view.py", "cli/main.py"]
)
def test_what_a_base_install_imports_is_the_standard_library(floor: str) -> None:
    where = SOURCE / floor
    modules = [where] if where.is_file() else sorted(where.rglob("*.py"))

    foreign = {
        name(path): kinds
        for path in modules
        if (kinds := set(imported(path)) - sys.stdlib_module_names - {"reachline"})
    }

    assert modules
    assert not foreign


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Every function with the lines of its body; how a signature is broken is the formatter's doing, a docstring is no code."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            text = first.value if isinstance(first, ast.Expr) else None
            described = isinstance(text, ast.Constant) and isinstance(text.value, str)
            before = first.end_lineno if described else first.lineno - 1
            yield node.name, (node.end_lineno or 0) - (before or 0)


def public_names(tree: ast.Module) -> list[str] | None:
    """What `__all__` lists, or None where there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
        ):
            listed = ast.literal_eval(node.value)
            return [str(each) for each in listed]
    return None


def swallowed(tree: ast.Module) -> list[int]:
    """Lines where every error is caught and dropped."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}))
        and all(isinstance(each, ast.Pass) for each in node.body)
    ]


def test_modules_are_of_a_size_to_be_read() -> None:
    sizes = {path: path.read_text().count("\n") for path in MODULES}
    limits = {path: LONGEST_CORE if path.is_relative_to(SOURCE / "core") else LONGEST_MODULE for path in MODULES}

    assert {name(path): lines for path, lines in sizes.items() if lines > limits[path]} == {}


def test_functions_are_of_a_size_to_be_read() -> None:
    lengths = {f"{name(path)}:{function}": lines for path in MODULES for function, lines in functions(path)}

    assert {function: lines for function, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def bases() -> dict[str, list[str]]:
    """Every class with the names of what it inherits from."""
    return {
        node.name: [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    }


def roots(name: str, known: dict[str, list[str]]) -> set[str]:
    """What a class comes from in the end, outside our code."""
    return set().union(*(roots(base, known) for base in known[name])) if known.get(name) else {name}


def test_nothing_inherits_from_a_class_of_ours_but_settings_and_errors_nor_from_a_container() -> None:
    known = bases()
    ours = {
        name: sorted(parents & known.keys()) for name, found in known.items() if (parents := set(found)) & known.keys()
    }
    containers = {"dict", "list", "set", "tuple", "str", "bytes", "int", "float"}

    assert {
        name: parents
        for name, parents in ours.items()
        if not roots(name, known) <= {"BaseModel", "Exception", "Protocol"}
    } == {}
    assert {name: found for name, found in known.items() if containers & set(found)} == {}


def test_every_module_says_why_it_exists() -> None:
    assert [name(path) for path in MODULES if not ast.get_docstring(parsed(path))] == []


def test_every_module_lists_what_is_public() -> None:
    trees = {path: parsed(path) for path in MODULES if path.name != "__main__.py"}
    # A package that only holds others has nothing of its own to list.
    listing = {path: tree for path, tree in trees.items() if any(not isinstance(node, ast.Expr) for node in tree.body)}

    assert [name(path) for path, tree in listing.items() if public_names(tree) is None] == []


def test_no_module_swallows_errors() -> None:
    assert {name(path): lines for path in MODULES if (lines := swallowed(parsed(path)))} == {}


def test_no_module_leaves_work_open() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")

    assert [f"{name(path)}: {word}" for path in MODULES for word in words if word in path.read_text()] == []
