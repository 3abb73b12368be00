"""A group on hosts with several networks, and what is done to the networks: cables, interfaces, whole switches."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from ordercast.bench.hosts import PREFIX, Place
from ordercast.bench.network_node import NetworkNodeOptions
from ordercast.bench.processes import RunFailed, python
from ordercast.wire.keys import Cipher, generate_key

ANSWER_S = 30.0
"""How long a node may take to answer, and the group to see a fault or a repair."""


class Party:
    """One process a place, told what to do line by line."""

    def __init__(
        self,
        places: Sequence[Place],
        directory: Path,
        *,
        replication: str,
        rate: float,
        size: int = 1000,
        token_loss_us: int | None = None,
    ) -> None:
        self.places = places
        group = f"networks-{os.getpid()}-{time.monotonic_ns():x}"
        key = generate_key(os.urandom, Cipher.AES_256_GCM).decode()
        self._processes: list[subprocess.Popen[str]] = []
        for number, place in enumerate(places, 1):
            options: NetworkNodeOptions = {
                "group": group,
                "name": f"n{number}",
                "nodes": len(places),
                "size": size,
                "rate": rate,
                "networks": place.addresses,
                "replication": replication,
                "key": key,
                "data_dir": str(directory),
                "token_loss_us": token_loss_us,
            }
            command = python("ordercast.bench.network_node", options)
            self._processes.append(place.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def __enter__(self) -> Self:
        try:
            self._answers()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def ask(self, order: str) -> list[dict[str, Any]]:
        """Each node's answer to an order."""
        self._tell(order)
        return self._answers()

    def leave(self) -> None:
        self._tell("leave")
        for process in self._processes:
            if status := process.wait(ANSWER_S):
                raise RunFailed(f"a node has ended with status {status}")

    def wait(self, what: str, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Figures until something is so at all nodes; the stalls of all that were asked for on the way."""
        until = time.monotonic() + ANSWER_S
        stalls: list[list[float]] = [[] for _ in self._processes]
        while True:
            figures = self.ask("figures")
            for longest, each in zip(stalls, figures, strict=True):
                longest += each["stalls_ms"]
                each["stalls_ms"] = sorted(longest, reverse=True)
            if holds(figures):
                return figures
            if time.monotonic() > until:
                raise RunFailed(f"after {ANSWER_S:.0f} s it is not so that {what}")
            time.sleep(0.1)

    def wait_for_state(self, state: str, numbers: Iterable[int]) -> list[dict[str, Any]]:
        """Until all nodes have these networks (from 1 on) in a state."""
        wanted = set(numbers)

        def holds(figures: list[dict[str, Any]]) -> bool:
            return all(
                wanted <= {network["number"] for network in each["networks"] if network["state"] == state}
                for each in figures
            )

        return self.wait(f"networks {sorted(wanted)} are {state} everywhere", holds)

    def _tell(self, order: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(order + "\n")
            process.stdin.flush()

    def _answers(self) -> list[dict[str, Any]]:
        until = time.monotonic() + ANSWER_S
        answers = []
        for number, process in enumerate(self._processes, 1):
            assert process.stdout is not None
            readable, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            line = process.stdout.readline() if readable else ""
            if not line:
                raise RunFailed(f"node {number} gave no answer")
            answers.append(cast(dict[str, Any], json.loads(line)))
        return answers


# What is done to networks, which are counted from 1, as in reports


def _link(namespace: str, device: str, state: str) -> None:
    subprocess.run(["ip", "-n", namespace, "link", "set", device, state], check=True, capture_output=True, text=True)


@contextmanager
def switch_down(number: int) -> Iterator[None]:
    """The switch of a network stands still; all hosts' links stay up."""
    _link(_switch(), f"br{number - 1}", "down")
    yield
    _link(_switch(), f"br{number - 1}", "up")


@contextmanager
def cable_out(number: int, node: int) -> Iterator[None]:
    """The port of one node (from 1 on) is dead: it has no carrier."""
    _link(_switch(), f"p{number - 1}x{node}", "down")
    yield
    _link(_switch(), f"p{number - 1}x{node}", "up")


@contextmanager
def interface_down(place: Place, number: int) -> Iterator[None]:
    """One node's own interface is shut down, as by an operator's mistake."""
    _link(str(place.namespace), f"eth{number - 1}", "down")
    yield
    _link(str(place.namespace), f"eth{number - 1}", "up")


def _switch() -> str:
    return f"{PREFIX}-{os.getpid()}-sw"
