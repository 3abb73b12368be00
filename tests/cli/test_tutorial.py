"""The tutorial's programs and commands, run as they stand; only the groups have names of their own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path

from cli.processes import DEADLINE_S, ROOT, environment, ordercast, wait_until
from ordercast.net.presence import pid_of

PAGE = ROOT / "docs" / "tutorial" / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = (
    (re.compile(r"\b\d+:n\d\.[0-9a-f]+"), "VIEW"),
    (re.compile(r"239\.\d+\.\d+\.\d+:\d+"), "GROUP"),
    (re.compile(r"127\.0\.0\.1:\d+"), "LINK"),
    (re.compile(r"^( +n\d +)\d+( .*operational)", re.MULTILINE), r"\1PID\2"),
    (re.compile(r"operational +VIEW +\d+"), "operational VIEW COUNT"),
    (re.compile(r"\bkey [0-9a-f]{8}\b"), "KEY"),
    (re.compile(r"ok, \d+ events"), "ok, N events"),
    (re.compile(r"-[0-9a-f]{12}\b"), ""),
    (re.compile(r"html: \d+ bytes"), "html: N bytes"),
    (re.compile(r"trace all, \d+ views"), "trace all, N views"),
    (re.compile(r" {2,}"), " "),
)
GROUPS = ("numbers", "greetings", "votes", "orders")


def settled(text: str) -> str:
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    return text


def run_page(page: Path, tmp_path: Path, here: Callable[[list[str]], str] | None = None) -> int:
    """Runs the page's blocks in their order, in one directory; how many. `here` runs jobs of Spark in this process."""
    suffix = f"-{uuid.uuid4().hex[:12]}"
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    env = environment(ORDERCAST_RUNTIME_DIR=str(runtime))
    directory = tmp_path / "work"
    directory.mkdir()
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, command in (("python", sys.executable), ("ordercast", f"{sys.executable} -m ordercast")):
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tools / name).chmod(0o755)
    env["PATH"] = f"{tools}:{env['PATH']}"
    try:
        ran = run_blocks(page, directory, env, suffix, here)
        idle = b"no members run on this machine\n"
        wait_until(lambda: ordercast("status", ORDERCAST_RUNTIME_DIR=str(runtime)).stdout == idle, "all have left")
    finally:
        for path in runtime.glob("*.member"):  # of a page that failed
            with suppress(ProcessLookupError):
                os.kill(pid_of(path), signal.SIGKILL)
    return ran


def run_blocks(
    page: Path, directory: Path, env: dict[str, str], suffix: str, here: Callable[[list[str]], str] | None
) -> int:
    ran = 0
    for kind, text in BLOCK.findall(page.read_text()):
        for group in GROUPS:
            text = re.sub(rf"\b{group}\b", group + suffix, text)
        if kind == "python":
            (directory / text.split()[1]).write_text(text)
        if kind != "console":
            continue
        lines = text.splitlines()
        commands = "\n".join(line[2:] for line in lines if line.startswith("$ "))
        expected = "".join(f"{line}\n" for line in lines if not line.startswith("$ "))
        if here is not None and commands.startswith(("ordercast spark", "python with_spark", "python publish")):
            with chdir(directory):
                printed, errors = here(shlex.split(commands)), ""
        else:
            result = subprocess.run(
                ["bash", "-c", f"set -m; {commands}"],
                cwd=directory,
                env=env,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            printed, errors = result.stdout, result.stderr
        assert settled(printed) == settled(expected), f"{commands}\n{errors}"
        ran += 1
    return ran


def test_every_command_prints_what_the_page_says(tmp_path):
    assert run_page(PAGE, tmp_path) >= 9
