"""The short form of the chaos of a durable group; `python -m tests.chaos --durable` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.campaign import hosts_or_none
from tests.chaos.durable import DurableRound, small_disk
from tests.net.hosts import namespaces_missing


def test_five_durable_members_through_crashes_full_disks_damage_and_partitions(tmp_path: Path) -> None:
    missing = namespaces_missing()
    with hosts_or_none(5, missing is None) as hosts, small_disk(tmp_path, missing is None) as small:
        done = DurableRound(2, tmp_path, 0.0, hosts=hosts, small_disk=small).run()
    assert done["messages"] >= done["acknowledged"] > 100
    assert done["crashes_compared"] > 5
    assert sum(done["damage"][how] for how in ("repaired", "mended", "lost")) == 1
    if missing is not None:
        pytest.skip(f"passed without partitions and full disks: {missing}")
