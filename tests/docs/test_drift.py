"""What the documents say about the code, compared with the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import corel_table
import pytest
import state_table

from ordercast.corel.messages import MessageKind

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "ordercast"
MARK = re.compile(r"\bdeviations? (D\d+(?:(?:, | and )D\d+)*)", re.IGNORECASE)
ENTRY = re.compile(r"^### (D\d+)\. ", re.MULTILINE)


def sources() -> Iterator[Path]:
    yield from sorted(PACKAGE.rglob("*.py"))


def rows(page: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """The rows of the table with these column heads, cells without their backquotes."""
    lines = iter(page.read_text().splitlines())
    head = f"| {' | '.join(columns)} |"
    assert head in lines, f"{page.name} has no table {head}"
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_state_event_table_is_the_engine_s() -> None:
    page = state_table.PAGE.read_text()
    assert page == state_table.rewritten(page), "run: PYTHONPATH=src python tests/docs/state_table.py"


def test_table_of_corel_is_the_layers() -> None:
    page = corel_table.PAGE.read_text()
    assert page == corel_table.rewritten(page), "run: PYTHONPATH=src python tests/docs/corel_table.py"


def test_messages_of_corel_are_all_on_its_page() -> None:
    named = {
        name for row in rows(corel_table.PAGE, ("message", "source → target", "when")) for name in row[0].split(", ")
    }
    assert named == {kind.name for kind in MessageKind}


def test_deviations_are_marked_in_the_code_and_argued_in_the_document() -> None:
    page = (DOCS / "deviations.md").read_text()
    entries = ENTRY.findall(page)
    assert len(entries) == len(set(entries)), "a number stands for two deviations"
    assert sorted(entries, key=lambda name: int(name[1:])) == [f"D{number + 1}" for number in range(len(entries))]
    marked: dict[str, str] = {}
    for path in sources():
        for found in MARK.findall(path.read_text()):
            marked |= dict.fromkeys(re.findall(r"D\d+", found), path.name)
    assert set(entries) - set(marked) == set(), "in docs/deviations.md and not marked in the code"
    assert set(marked) - set(entries) == set(), f"marked in the code and not in docs/deviations.md: {marked}"


def test_deviations_of_the_redundant_ring_are_marked_and_argued() -> None:
    entries = set(re.findall(r"^### (R\d+)\. ", (DOCS / "deviations.md").read_text(), re.MULTILINE))
    text = "".join(path.read_text() for path in sources())
    assert set(re.findall(r"\bdeviation (R\d+)", text, re.IGNORECASE)) == entries


def test_deviations_of_corel_are_marked_and_argued() -> None:
    entries = re.findall(r"^### (K\d+)\. ", (DOCS / "deviations.md").read_text(), re.MULTILINE)
    assert entries == [f"K{number + 1}" for number in range(len(entries))]
    text = "".join(path.read_text() for path in sources())
    assert set(re.findall(r"\bdeviation (K\d+)", text, re.IGNORECASE)) == set(entries)
    for page in DOCS.rglob("*.md"):
        assert set(re.findall(r"\bK\d+\b", page.read_text())) <= set(entries), page


def test_deviations_named_anywhere_in_the_documents_exist() -> None:
    entries = set(ENTRY.findall((DOCS / "deviations.md").read_text()))
    for page in DOCS.rglob("*.md"):
        named = set(re.findall(r"\bD\d+\b", page.read_text()))
        assert named <= entries, f"{page.name} names {named - entries}"


def test_errata_and_bugs_that_the_code_names_are_listed() -> None:
    page = DOCS / "deviations.md"
    errata = {row[0] for row in rows(page, ("erratum", "where", "problem", "decided in"))}
    bugs = {row[0] for row in rows(page, ("bug", "what happened", "shown by"))}
    for path in sources():
        text = path.read_text()
        assert set(re.findall(r"\berratum (\d+)", text, re.IGNORECASE)) <= errata, path
        assert set(re.findall(r"\bbug (\d+)", text, re.IGNORECASE)) <= bugs, path


def test_evidence_of_the_deviations_exists() -> None:
    """Tests by name or by its beginning, mutants and scenarios."""
    page = (DOCS / "deviations.md").read_text()
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for name in re.findall(r"`(test_\w+)`", page):
        assert name in tests, name
    for beginning in re.findall(r"`(test_\w+)\*`", page):
        assert any(name.startswith(beginning) for name in tests), beginning
    made = "".join(path.read_text() for path in (ROOT / "tests/mutation").glob("*mutants.py"))
    mutants = set(re.findall(r'_mutant\(\s*"([\w-]+)"', made))
    scenarios = {path.stem for path in (PACKAGE / "sim/scenarios").glob("*.txt")}
    for kind, known in (("mutant", mutants), ("scenario", scenarios)):
        for names in re.findall(rf"\b{kind}s? ((?:`[\w-]+`(?:,\s+|\s+and\s+)?)+)", page):
            for name in re.findall(r"`([\w-]+)`", names):
                assert name in known, f"{kind} {name}"


def test_limits_have_the_values_of_the_files() -> None:
    limits = rows(DOCS / "architecture.md", ("name", "value", "file"))
    for name, value, file in ([cell.strip("`") for cell in row] for row in limits):
        assignment = re.compile(rf"^ *{name}(?:: \w+)? = {re.escape(value)}(?:$|\s)", re.MULTILINE)
        assert assignment.search((PACKAGE / file).read_text()), f"{name} = {value} does not stand in {file}"


def test_constants_of_totem_are_all_in_the_table_of_limits() -> None:
    limits = {row[0].strip("`") for row in rows(DOCS / "architecture.md", ("name", "value", "file"))}
    text = (PACKAGE / "engine/totem/state.py").read_text()
    fields = text.partition("class TotemConfig")[2].partition("def __post_init__")[0]
    assert set(re.findall(r"^    (\w+): \w+ = ", fields, re.MULTILINE)) <= limits


@pytest.mark.parametrize("row", rows(DOCS / "architecture.md", ("room", "what it is", "its door", "may import")))
def test_rooms_import_only_what_the_map_allows(row: list[str]) -> None:
    room, allowed = row[0].strip("`"), set(re.findall(r"`(\w+)`", row[3]))
    if row[3] == "anything":
        return
    for path in (PACKAGE / room).rglob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) ordercast\.(\w+)", path.read_text(), re.MULTILINE)
        assert set(imported) - {room} <= allowed, f"{path} imports {set(imported) - {room} - allowed}"


def test_every_folder_of_tests_is_on_the_map() -> None:
    named = set(
        re.findall(
            r"`tests/(\w+)`", "".join(row[0] for row in rows(DOCS / "architecture.md", ("folder", "what it holds")))
        )
    )
    assert named == {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("*.py"))}


@pytest.mark.parametrize("target", re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
def test_make_targets_are_in_the_guide(target: str) -> None:
    assert f"| `make {target}` |" in (ROOT / "CONTRIBUTING.md").read_text()


def test_glossary_is_in_order() -> None:
    words = [row[0].lower() for row in rows(DOCS / "glossary.md", ("word", "meaning"))]
    assert words == sorted(words)
