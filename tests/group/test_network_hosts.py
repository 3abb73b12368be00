"""Four hosts with three networks, under load: switches, cables, interfaces fail, and the application does not notice.

The hosts are network namespaces; needs root. `bench/networks.py faults` takes longer and measures the stalls.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from tests.group.party import TOKEN_LOSS_US
from tests.net.hosts import require_namespaces

from ordercast.bench.hosts import namespaces
from ordercast.bench.network_faults import Party, cable_out, interface_down, switch_down
from ordercast.check import check_trace


@pytest.mark.parametrize("replication", ["active", "passive", "active-passive:2"])
def test_networks_fail_and_are_mended_under_load(replication: str, tmp_path: Path) -> None:
    require_namespaces()
    with (
        namespaces(4, networks=3) as hosts,
        # No view changes by a fault of networks; on a busy machine a process may wait long for its turn.
        Party(hosts, tmp_path, replication=replication, rate=150, token_loss_us=TOKEN_LOSS_US) as party,
    ):

        def fails(numbers: set[int], *faults: AbstractContextManager[None]) -> None:
            with ExitStack() as stack:
                for fault in faults:
                    stack.enter_context(fault)
                party.wait_for_state("faulty", numbers)
                before = [each["delivered"] for each in party.ask("figures")]
                party.wait(
                    "all go on by the other networks",
                    lambda found: all(each["delivered"] > count for each, count in zip(found, before, strict=True)),
                )

        party.ask("send")
        fails({1, 3}, switch_down(1), cable_out(3, 2))  # two at once
        party.wait_for_state("sound", {1, 2, 3})
        fails({2}, interface_down(hosts[2], 2))
        fails({1}, switch_down(1))  # one after the other: the first is not back yet
        party.ask("quiet")
        end = party.wait(
            "all is delivered",
            lambda found: all(each["delivered"] == sum(other["sent"] for other in found) for each in found),
        )
        assert {each["checksum"] for each in end} == {end[0]["checksum"]}, "one order"
        assert [each["views"] for each in end] == [1, 1, 1, 1], "no view but the first"
        for each in end:
            faults = [report["number"] for report in each["reports"] if report["what"] == "fault"]
            assert sorted(faults) == [1, 1, 2, 3], "each fault is reported once at each member"
        party.leave()
    _check(tmp_path)


def _check(directory: Path) -> None:
    together = directory / "together"
    together.mkdir()
    for path in directory.glob("n*/trace/*.jsonl"):
        assert path.read_text().count('"event":"x-network-fault"') == 4
        shutil.copy(path, together)
    verdict = check_trace(together)
    assert verdict.ok, verdict.violations
    assert verdict.events > 1000
