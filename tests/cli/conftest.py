from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.processes import ORDERCAST, Process


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts a command of ordercast; whatever happens it ends with the test."""
    started: list[Process] = []

    def start(*arguments: str | Path, **env: str) -> Process:
        started.append(Process(*ORDERCAST, *arguments, **env))
        return started[-1]

    yield start
    for process in started:
        process.close()
