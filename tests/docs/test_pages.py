"""The pages by themselves: links that lead somewhere, commands that work, an index that is complete."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(page: Path) -> list[str]:
    """The lines with a prompt in the blocks of a page, without their comments."""
    return [line[2:].partition("  #")[0].strip() for line in page.read_text().splitlines() if line.startswith("$ ")]


def shown(page: Path) -> dict[str, list[str]]:
    """What a page prints below each command, without what it leaves out."""
    found: dict[str, list[str]] = {}
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            found[command.partition("  #")[0].strip()] = [line for line in output.splitlines() if line != "…"]
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_named_in_pages_exist(page: Path) -> None:
    assert set(re.findall(r"`make ([a-z-]+)", page.read_text())) <= MAKE_TARGETS


def test_every_design_note_is_in_the_index() -> None:
    index = (ROOT / "docs/design/README.md").read_text()
    notes = {path.name for path in (ROOT / "docs/design").glob("*.md")} - {"README.md"}
    assert notes <= set(LINK.findall(index))


def test_commands_of_the_readme_work(tmp_path: Path) -> None:
    """In their order, in one directory, as a reader would type them; of campaigns the first seeds, no Spark."""
    lines, printed = commands(ROOT / "README.md"), shown(ROOT / "README.md")
    assert len(lines) > 4
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for line in lines:
        program, *arguments = shlex.split(line)
        if program == "make":
            assert set(arguments) <= MAKE_TARGETS, line
            continue
        assert program == "ordercast", line
        arguments = [re.sub(r"^0:\d+$", "0:2", argument) for argument in arguments]
        if arguments == ["demo"]:
            arguments.append("--no-report")  # tests/spark makes one
        same = arguments == shlex.split(line)[1:]  # what a seed prints is the same every time
        done = subprocess.run(
            [sys.executable, "-m", "ordercast", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        rest = iter(done.stdout.splitlines())
        for expected in printed[line] if same else ():
            assert expected in rest, f"{line} does not print {expected!r} there, but\n{done.stdout}"
