"""Each room of the package imports what is below it and nothing else (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "ordercast"
BELOW: dict[str, set[str]] = {
    "wire": set(),
    "engine": {"wire"},
    "check": set(),
    "log": {"errors", "wire"},
    "serve": {"errors", "events", "log", "wire"},
    "redundancy": {"engine", "wire"},
    "corel": {"engine", "wire"},
    "sim": {"check", "corel", "engine", "errors", "log", "redundancy", "wire"},
    "net": {"check", "engine", "errors", "log", "wire"},
    "bench": {"events", "member", "net", "options", "wire"},
}
SURFACE = {path.stem for path in SRC.glob("*.py")} - {"__init__", "__main__"}
"""The modules of the public interface, which lie in no folder. They may import one another, in one direction."""
BELOW |= dict.fromkeys(SURFACE, {"corel", "engine", "log", "net", "redundancy", "serve", "wire"} | SURFACE)
TOP = {"cli", "__init__", "__main__"}
"""These may import anything; nothing imports `cli` but the last."""


def room_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> set[str]:
    """Rooms of the package that a module imports, wherever in it the import stands."""
    rooms = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import hides where it leads"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "ordercast" else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("ordercast.")}
    return rooms


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SRC)))
def test_imports_point_downward(path: Path) -> None:
    room = room_of(path)
    above = imported_rooms(ast.parse(path.read_text())) - {room} - BELOW.get(room, set())
    if room in TOP:
        assert "cli" not in above or room == "__main__"
    elif room in BELOW:
        assert not above
    else:
        # A room that this table does not know yet: at least the lower ones must not know it either.
        assert not above & TOP


def test_a_module_that_looks_upward_is_noticed() -> None:
    tree = ast.parse(
        "import ordercast.sim.world\nfrom ordercast import check\ndef f():\n    from ordercast.engine import x"
    )
    assert imported_rooms(tree) == {"sim", "check", "engine"}


def test_there_are_no_cycles_among_rooms_and_public_modules() -> None:
    rooms: dict[str, set[str]] = {}
    for path in modules():
        room = room_of(path)
        if room not in TOP:
            rooms.setdefault(room, set()).update(imported_rooms(ast.parse(path.read_text())) - {room, "__version__"})
    while rooms:
        free = [room for room, below in rooms.items() if not below & set(rooms)]
        assert free, f"a cycle among {sorted(rooms)}"
        for room in free:
            del rooms[room]
