"""Engines are pure: no clock, randomness, socket, thread or file, and nothing that depends on the order of a set.

The same holds for the part of `wire` that engines use.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ordercast.engine

ROOT = Path(__file__).parents[2]
ENGINE = Path(ordercast.engine.__file__).parent
WIRE = ENGINE.parent / "wire"
MODULES = [
    *sorted(ENGINE.rglob("*.py")),
    *sorted((ENGINE.parent / "redundancy").rglob("*.py")),
    *sorted((ENGINE.parent / "corel").rglob("*.py")),
    *(WIRE / f"{name}.py" for name in ("chunk", "ids", "layout", "probe", "pack", "totem", "train")),
]
ALLOWED = {
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "ordercast",
    "struct",
}
ALLOWED |= {"typing"}
"""Everything else has to be argued for here: among what is missing are time, random, socket, asyncio and os."""
CALLS = {
    "open",
    "print",
    "input",
    "hash",
    "id",
    "eval",
    "exec",
    "compile",
    "__import__",
    "breakpoint",
    "globals",
    "vars",
}
ORDER_FREE = {"sorted", "set", "frozenset", "any", "all", "min", "max", "sum", "len"}
"""What takes an iterable and does not care for its order."""


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _is_set_annotation(node: ast.expr | None) -> bool:
    return node is not None and ast.unparse(node).split("[")[0] in ("set", "frozenset")


def set_names(trees: list[ast.AST]) -> set[str]:
    """Names and attributes that are annotated as sets everywhere, and functions that return them."""
    sets: set[str] = set()
    others: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            pairs: list[tuple[str, ast.expr | None]] = []
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name | ast.Attribute):
                target = node.target
                pairs = [(target.attr if isinstance(target, ast.Attribute) else target.id, node.annotation)]
            elif isinstance(node, ast.FunctionDef):
                pairs = [(node.name, node.returns)] + [(arg.arg, arg.annotation) for arg in node.args.args]
            for name, annotation in pairs:
                (sets if _is_set_annotation(annotation) else others).add(name)
    return sets - others


def is_set(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp):
        return is_set(node.left, names) or is_set(node.right, names)
    if isinstance(node, ast.Call):
        node = node.func
        if isinstance(node, ast.Name) and node.id in ("set", "frozenset"):
            return True
    return (isinstance(node, ast.Attribute) and node.attr in names) or (isinstance(node, ast.Name) and node.id in names)


def set_iterations(tree: ast.AST, names: set[str]) -> Iterator[int]:
    """Lines in which a set is iterated over and the order can be seen."""
    free = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDER_FREE:
            free |= {*node.args}
        if isinstance(node, ast.SetComp):
            free.add(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and is_set(node.iter, names):
            yield node.lineno
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and node not in free:
            yield from (node.lineno for generator in node.generators if is_set(generator.iter, names))
        elif isinstance(node, ast.Call) and node not in free and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name == "pop" and not node.args and isinstance(node.func, ast.Attribute):
                yield from [node.lineno] * is_set(node.func.value, names)
            elif name in ("list", "tuple", "iter", "next", "join", "enumerate", "map", "fromkeys", "extend"):
                yield from (node.lineno for arg in node.args if is_set(arg, names))
        elif isinstance(node, ast.Starred) and is_set(node.value, names):
            yield node.lineno


TREES = {path: ast.parse(path.read_text()) for path in MODULES}
SETS = set_names(list(TREES.values()))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ENGINE.parent)))
def test_imports_nothing_that_knows_the_world(path: Path) -> None:
    assert set(imports(TREES[path])) <= ALLOWED


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ENGINE.parent)))
def test_calls_nothing_that_knows_the_world_or_the_process(path: Path) -> None:
    assert not set(calls(TREES[path])) & CALLS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ENGINE.parent)))
def test_no_set_is_iterated_over_where_its_order_shows(path: Path) -> None:
    assert list(set_iterations(TREES[path], SETS)) == []


def test_sets_are_known_by_their_annotations() -> None:
    assert {"my_proc_set", "my_fail_set", "consensus", "members_wanted", "my_trans_memb", "proc_set"} <= SETS


@pytest.mark.parametrize(
    "code",
    [
        "for name in s.my_fail_set: pass",
        "x = [name for name in s.my_proc_set - s.my_fail_set]",
        "x = list(s.consensus)",
        "x = ','.join(s.members_wanted())",
        "x = s.my_fail_set.pop()",
        "x = [*s.consensus]",
        "d = dict.fromkeys({1, 2})",
    ],
)
def test_a_set_whose_order_shows_is_noticed(code: str) -> None:
    assert list(set_iterations(ast.parse(code), SETS))


@pytest.mark.parametrize(
    "code",
    ["x = sorted(s.my_fail_set)", "x = frozenset(n for n in s.consensus if n)", "x = min(s.consensus | {1})"],
)
def test_a_set_whose_order_does_not_show_is_let_pass(code: str) -> None:
    assert not list(set_iterations(ast.parse(code), SETS))


_STORY = """
import sys
sys.path.insert(0, "tests/paper")
from ring import Bench
bench = Bench("abcdefg")
bench.settle()
for name in "bdf":
    bench.say(name, "x", "y", safe=name == "d")
bench.partition("abc", "defg")
bench.settle("abc")
bench.settle("defg")
bench.heal()
bench.settle()
bench.crash("a")
bench.settle("bcdefg")
for process in bench.processes.values():
    for effect in process.effects:
        print(effect)
"""


def test_the_same_inputs_give_the_same_effects_whatever_the_hashes_of_strings_are() -> None:
    def effects(seed: str) -> str:
        path = str(Path(ordercast.engine.__file__).parents[2])
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        return subprocess.run(
            [sys.executable, "-c", _STORY], cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    one = effects("1")
    assert "Install" in one
    assert one == effects("2")
