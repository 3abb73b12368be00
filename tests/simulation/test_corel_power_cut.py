"""The power is cut at every single write boundary of a scripted run, everywhere at once, and the group goes on.

One member's files count what is done to them: appends, syncs, new names. A run stops in front of each of these, all
members lose their power, what their disks keep of unsynced writes is drawn, and the same group starts again. Then the
recovered log must be a legal state, and the whole trace must keep C1 to C9.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from corel_world import corel_world, durable, node, run
from ordercast.check import check_events
from ordercast.check.events import Acknowledged
from ordercast.corel.record import decode_record
from ordercast.sim.actions import perform
from ordercast.sim.log_files import Blob, MemoryFile, MemoryFiles
from ordercast.sim.world import World
from ordercast.wire.chunk import Buffer

WATCHED = "n2"


class PowerCut(BaseException):
    """Not an error of the program: nothing on the way catches it."""


class Fuse:
    """Counts the boundaries, and blows in front of one of them."""

    def __init__(self, at: int | None) -> None:
        self.at, self.done = at, 0

    def boundary(self) -> None:
        if self.done == self.at:
            raise PowerCut
        self.done += 1


class WatchedFile(MemoryFile):
    def __init__(self, blob: Blob, fuse: Fuse) -> None:
        super().__init__(blob)
        self.fuse = fuse

    def append(self, parts: Sequence[Buffer]) -> None:
        self.fuse.boundary()
        super().append(parts)

    def sync(self) -> None:
        self.fuse.boundary()
        super().sync()

    def truncate(self, size: int) -> None:
        self.fuse.boundary()
        super().truncate(size)


class WatchedFiles(MemoryFiles):
    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self.fuse = fuse

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create:
            self.fuse.boundary()
            self.blobs[name] = Blob()
        return WatchedFile(self.blobs[name], self.fuse)

    def rename(self, old: str, new: str) -> None:
        self.fuse.boundary()
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self.fuse.boundary()
        super().remove(name)

    def sync(self) -> None:
        self.fuse.boundary()
        super().sync()


SCRIPT = (
    (0.15, "send 2 *"),
    (0.02, "partition n1 | n2 n3"),
    (0.7, "send 1 n1", "send 1 n2"),
    (0.05, "merge"),
    (0.6, "send 1 n3", "propose add n1 2 at n3"),
    (0.05, "snapshot n2", "crash n2", "restart n2"),
    (0.6, "send 2 * size=900..1400", "partition n1 n2 | n3"),
    (0.7, "send 2 * size=900..1400", "merge"),
    (0.02, "partition n1 n3 | n2"),
    (0.7, "send 1 *", "merge"),
    (0.6, "propose remove n1 at n1", "send 1 n2"),
    (0.2, "propose add n1 1 at n2", "send 1 *"),
    (0.2,),
)
"""What happens after how many seconds: the group is founded, parted, merged, changed, and a member comes back."""


def cut_at(boundary: int | None, seed: int = 0) -> tuple[World, Fuse]:
    """The run up to a boundary, with the power gone there; without one to its end."""
    fuse = Fuse(boundary)
    world = corel_world(f"nodes 3\nseed {seed}\nconfig packet_bytes=700", start=False)
    node(world, WATCHED).log_disk.files = WatchedFiles(fuse)
    try:
        for one in world.nodes:
            one.start()
        for wait, *actions in SCRIPT:
            world.run_until(world.now + int(wait * 1e6))
            for action in actions:
                perform(world, str(action))
    except PowerCut:
        for one in durable(world):
            one.crash("power cut")
    fuse.at = None
    return world, fuse


def boundaries() -> int:
    """Seeds differ in what disks keep and how long they take, hardly in what is written."""
    _, fuse = cut_at(None)
    return fuse.done


def reported(world: World, name: str) -> set[str]:
    return {event.msg for event in world.traces[name] if isinstance(event, Acknowledged)}


@pytest.mark.parametrize("part", range(4))
def test_every_boundary_leaves_a_legal_state_from_which_the_group_goes_on(part: int) -> None:
    total = boundaries()
    assert total > 100
    for boundary in range(part, total, 4):
        world, _ = cut_at(boundary, seed=boundary)
        assert not any(one.alive for one in world.nodes)
        told = {one.name: reported(world, one.name) for one in world.nodes}
        recovered_state(world, told[WATCHED])
        run(world, "merge", "restart *")
        world.heal()
        world.settle(20_000_000)
        assert world.violations == [], boundary
        assert check_events(world.traces).violations == [], boundary
        everybody = set().union(*told.values())
        for one in world.nodes:
            assert everybody <= reported(world, one.name), f"boundary {boundary}: lost what was reported as ordered"


def recovered_state(world: World, told: set[str]) -> None:
    """What the watched disk holds: lines in order, a record that can be read, and all that was reported."""
    one = node(world, WATCHED)
    stored = one.log_disk.open()
    assert stored.earliest <= stored.green <= stored.yellow
    names = {name for _, chunk in one.log_disk.stored() for name in one.corel_log.of_stored(chunk)}
    held = {name for name in told if name in names}
    assert len(told) - len(held) <= stored.earliest, "a message that was reported as ordered is not on the disk"
    if stored.state is not None:
        record = decode_record(stored.state)
        assert record.last_attempted_primary >= record.last_committed_primary.number
    one.log_disk.power_cut()
