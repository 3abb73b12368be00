"""What the source must not contain: pickle and its like anywhere, and entropy or a clock of its own in `wire`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ordercast

SOURCE = Path(ordercast.__file__).parent
UNPACKERS = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml"}
IMPURE = {"os", "time", "random", "secrets", "socket", "asyncio", "threading", "datetime", "uuid", "subprocess"}
FILES = sorted(SOURCE.rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_turns_bytes_into_code_or_objects(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not UNPACKERS & set(imported(tree))
    assert not {"eval", "exec", "compile", "__import__"} & set(called(tree))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not {"loads_pickle", "allow_pickle", "unsafe_load"} & names


@pytest.mark.parametrize("path", sorted((SOURCE / "wire").rglob("*.py")), ids=lambda path: path.name)
def test_the_wire_has_no_entropy_and_no_clock_of_its_own(path: Path) -> None:
    assert not IMPURE & set(imported(ast.parse(path.read_text())))


def test_the_walk_sees_what_it_is_for() -> None:
    assert "pickle" in set(imported(ast.parse("def f():\n    from pickle import loads")))
    assert "os" in set(imported(ast.parse("import os.path")))
    assert "eval" in set(called(ast.parse("lambda: eval('1')")))
    assert len(FILES) > 30
