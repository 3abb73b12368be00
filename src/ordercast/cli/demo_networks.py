"""The part of `ordercast demo` in which one of the group's two networks fails: the application does not notice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from rich.console import Console

NETWORKS = ("127.0.0.1", "127.0.0.2")
"""Each member has an address of its own on each; on one machine these are its cards."""
REPLICATION = "active"
BROKEN = 2


class Told(Protocol):
    """A process of the demo, as far as this part knows it."""

    faulty: set[int]
    views: int

    def tell(self, **command: object) -> None: ...


class Stage(Protocol):
    console: Console

    @property
    def members(self) -> Mapping[str, Told]: ...

    def step(self, what: str, sentence: str) -> AbstractContextManager[None]: ...

    def wait_for_networks(self, faulty: Iterable[int]) -> float: ...

    def wait_for_views(self, *sides: Iterable[str]) -> None: ...

    def wait_for_deliveries(self, names: Iterable[str], count: int) -> None: ...


def play_networks(stage: Stage, messages: int) -> None:
    """Cuts one network under load and mends it, with so many messages at each member in between."""
    names = list(stage.members)
    views = {name: member.views for name, member in stage.members.items()}
    with stage.step("cut", f"Network {BROKEN} of {len(NETWORKS)} fails at every process. They go on by the other one."):
        _cut(stage, BROKEN)
        after_s = stage.wait_for_networks({BROKEN})
        stage.console.print(
            f"         [yellow]fault of network {BROKEN}[/]  at {' '.join(names)}, after {after_s:.2f} s"
        )
        stage.wait_for_deliveries(names, messages)
        _tell_views_since(stage, views)
    with stage.step("mend", f"Network {BROKEN} is mended. Probes find it, and the group takes it back."):
        _cut(stage, 0)
        after_s = stage.wait_for_networks(())
        stage.console.print(
            f"         [cyan]network {BROKEN} is sound again[/]  at {' '.join(names)}, after {after_s:.2f} s"
        )
        stage.wait_for_deliveries(names, messages)
        _tell_views_since(stage, views)


def _cut(stage: Stage, number: int) -> None:
    for member in stage.members.values():
        member.tell(cut=number)


def _tell_views_since(stage: Stage, views: dict[str, int]) -> None:
    """No view changes for a network. On a machine that keeps processes waiting for half a second one may, for that."""
    changed = [name for name, member in stage.members.items() if member.views != views[name]]
    if not changed:
        stage.console.print("         no view has changed")
        return
    stage.wait_for_views(stage.members)
    stage.console.print(
        f"         [yellow]the view changed at {' '.join(changed)}[/]: the machine is too busy for a token in time"
    )
    views.update({name: member.views for name, member in stage.members.items()})
