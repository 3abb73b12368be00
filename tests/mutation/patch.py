"""Puts a mutant in the place of the engine: the source is changed while it is imported, no file is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from .mutant import Edit, Mutant

SOURCES = Path(__file__).parents[2] / "src"


class EditError(Exception):
    """The text that a mutant replaces does not stand in the engine exactly once: the mutant has to be brought along."""


def edited(source: str, edits: Sequence[Edit]) -> str:
    for edit in edits:
        found = source.count(edit.old)
        if found != 1:
            raise EditError(f"{edit.module}.py holds {found} times, not once:\n{edit.old}")
        source = source.replace(edit.old, edit.new)
    return source


def mutated_sources(mutant: Mutant) -> dict[str, str]:
    """The new text of every module that the mutant changes."""
    modules = dict.fromkeys(edit.module for edit in mutant.edits)
    folder = SOURCES.joinpath(*mutant.package.split("."))
    return {
        module: edited((folder / f"{module}.py").read_text(), [edit for edit in mutant.edits if edit.module == module])
        for module in modules
    }


def install(mutant: Mutant) -> None:
    """From here on an import of the engine gives the mutant."""
    if mutant.package in sys.modules:
        raise RuntimeError("the engine has been imported already")
    sys.meta_path.insert(0, _Finder(mutant.package, mutated_sources(mutant)))


class _Finder(MetaPathFinder):
    def __init__(self, package: str, sources: dict[str, str]) -> None:
        self.sources = {f"{package}.{module}": source for module, source in sources.items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.sources:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, self.sources[fullname])
        return spec


class _Loader(SourceFileLoader):
    """Compiles the changed text and leaves the cache of compiled files alone."""

    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self.source, self.path, "exec", dont_inherit=True)
        return code
