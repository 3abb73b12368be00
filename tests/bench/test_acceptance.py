"""`make bench-peers`: goals are judged the right way round, ratios are of the right systems, the table is whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import acceptance
import tables


def figures(rate: int, p50: float = 1.0, **more: Any) -> dict[str, Any]:
    latency = {"p50": p50, "p99": 2 * p50, "p999": 3 * p50}
    base = {"delivered_per_s": rate, "mb_per_s": rate / 1000, "latency_ms": latency, "retransmissions": 0}
    return base | more | {"runs": [{}], "failed": []}


SYSTEMS = {
    "ordercast": figures(100, 0.2),
    "corosync-udp": figures(4, 0.25),
    "corosync-knet": figures(10),
    "corosync-knet-aes256": figures(25),
    "limit": figures(110),
    "ring_limit": figures(112),
    "safe": figures(90, 0.9),
    "agreed": figures(200),
    "loss 1 %": figures(60),
    "loss 5 %": figures(10),
}


def test_goals_are_ratios_of_the_right_systems() -> None:
    found = {
        (row, goal.what): (goal.figure(SYSTEMS), goal.met(goal.figure(SYSTEMS)))
        for row, of in acceptance.ROWS.items()
        for goal in of.goals
    }
    assert found["64B-batches", "ordercast : corosync-udp"] == (25.0, True)
    assert found["1KB-batches", "ordercast : limit"] == (0.909, True)
    assert found["1KB-batches", "limit : ring_limit"] == (0.982, True)
    assert found["1KB-batches", "retransmissions"] == (0, True)
    assert found["16KB", "ordercast : corosync-knet"] == (10.0, True)
    assert found["encrypted", "ordercast : corosync-knet-aes256"] == (4.0, False)
    assert found["latency", "ordercast : corosync-udp, p50"] == (0.8, True)
    assert found["latency", "safe : ordercast, p50"] == (4.5, False)
    assert found["safe", "ordercast : agreed"] == (0.5, False)
    assert found["loss", "loss 1 % : ordercast"] == (0.6, True)
    assert found["loss", "loss 5 % : ordercast"] == (0.1, False)


def test_what_was_not_measured_is_not_met() -> None:
    for row in acceptance.ROWS.values():
        for goal in row.goals:
            assert not goal.met(goal.figure({"ordercast": {"runs": [], "failed": ["why"]}}))


def test_both_sides_of_a_row_do_the_same_work() -> None:
    for row in acceptance.ROWS.values():
        for other in row.others.values():
            assert (other.size, other.nodes, other.rate, other.mtu) == (
                row.work.size,
                row.work.nodes,
                row.work.rate,
                row.work.mtu,
            )
        assert all(acceptance.PEERS[name].encrypts == row.work.encrypt for name in row.peers)


def test_a_missing_peer_is_a_row_not_met(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.bench.peers.shutil.which", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["acceptance.py", "64B-events"])
    assert acceptance.main() == 1
    assert "64B-events is not measured: corosync" in capsys.readouterr().err


def test_the_recorded_table_is_shown_line_by_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    goal = {"what": "ordercast : limit", "value": 0.91, "bound": 0.9, "most": False, "met": True}
    late = {"what": "p50", "value": 2.0, "bound": 1.0, "most": True, "met": False}
    row = {"title": "64-byte messages, batches", "size": 64, "goals": [goal, late], "systems": SYSTEMS}
    recorded = tmp_path / "acceptance.json"
    recorded.write_text(json.dumps({"rows": {"64B-batches": row}}))
    monkeypatch.setattr(acceptance, "RESULTS", recorded)
    monkeypatch.setattr(sys, "argv", ["acceptance.py", "--show"])
    assert acceptance.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| 64-byte messages, batches | ordercast 0.20 / 0.40 ms")
    assert lines[2].endswith("| ordercast : limit: 0.91 | at least 0.9 | met |")
    assert lines[3].endswith("| p50: 2 | at most 1 | **missed** |")


def test_tables_name_what_fell_behind_and_what_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    systems = {"ordercast": figures(4000, 0.3), "corosync-udp": figures(1000), "safe": {"runs": []}}
    tables.loads({"points": {"1000": {"rate": 1000, "systems": systems}}})
    assert "| 1,000 | 0.30 / 0.60 | – | falls behind (1,000/s) | – |" in capsys.readouterr().out
