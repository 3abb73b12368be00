"""The short form of the chaos campaign; `python -m tests.chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.campaign import Round, hosts_or_none
from tests.net.hosts import namespaces_missing, require_namespaces


def test_five_hosts_through_crashes_pauses_loss_cuts_and_partitions(tmp_path: Path) -> None:
    require_namespaces()
    with hosts_or_none(5, True) as hosts:
        done = Round(1, tmp_path, 20.0, hosts=hosts).run()
    assert done["events"] > 1000
    assert done["lives"] > 5


@pytest.mark.skipif(namespaces_missing() is None, reason="the form with partitions runs instead")
def test_five_processes_on_loopback_through_crashes_and_pauses(tmp_path: Path) -> None:
    done = Round(1, tmp_path, 15.0).run()
    assert done["events"] > 1000
    assert done["lives"] > 5
