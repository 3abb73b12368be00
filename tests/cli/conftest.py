from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cli.processes import ORDERCAST, PATIENT, Process


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts a command of ordercast; whatever happens it ends with the test."""
    yield from _starting(ORDERCAST)


@pytest.fixture
def start_patient() -> Iterator[Callable[..., Process]]:
    """The same with members that do not take one that waits for its turn for lost."""
    yield from _starting(PATIENT)


def _starting(command: Sequence[str]) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*arguments: str | Path, **env: str) -> Process:
        started.append(Process(*command, *arguments, **env))
        return started[-1]

    yield start
    for process in started:
        process.close()
