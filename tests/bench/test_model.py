"""The cost model: it says the same each time, its costs are found from runs that they explain, and more costs more."""

from __future__ import annotations

import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import model
import plots

COSTS = model.Costs(packet_out=1.5, packet_in=1.2, message=0.3, turn=50.0)


def test_the_same_costs_give_the_same_figures() -> None:
    assert model.simulate(3, 1024, COSTS, model.HERE) == model.simulate(3, 1024, COSTS, model.HERE)


def test_what_costs_more_is_slower() -> None:
    base = model.simulate(3, 1024, COSTS, model.HERE)
    assert base["overflows"] == 0
    for dearer in (
        replace(COSTS, packet_in=2.4),
        replace(COSTS, packet_out=5.0),
        replace(COSTS, message=1.0),
        replace(COSTS, turn=500.0),
    ):
        assert model.simulate(3, 1024, dearer, model.HERE)["delivered_per_s"] < base["delivered_per_s"]
    alone = model.simulate(3, 1024, COSTS, replace(model.HERE, cores=1))
    assert alone["delivered_per_s"] < base["delivered_per_s"]
    slow_link = model.simulate(3, 1024, COSTS, replace(model.HOSTS, bytes_per_us=12.5))
    # Each has a link of its own, and where the token goes ahead of the messages they send at the same time.
    assert 12.5 < slow_link["delivered_per_s"] * 1024 / 1e6 < 3 * 12.5


def test_costs_are_found_from_the_processor_time_that_they_explain() -> None:
    runs: list[dict[str, Any]] = []
    per_packet = model.PACKET_BYTES - model.HEADER_BYTES
    for nodes in (2, 4):
        for size, rate, turns in ((64, 900_000, 9_000.0), (1024, 150_000, 6_000.0), (1024, 50_000, 20_000.0)):
            packets = rate / (per_packet / (size + 2))
            calls = packets / model.CALL_PACKETS
            spent_us = calls * model.CALL_OUT_US + calls * (nodes - 1) * model.CALL_IN_US
            spent_us += packets * (COSTS.packet_out + (nodes - 1) * COSTS.packet_in)
            spent_us += rate * nodes * COSTS.message + turns * nodes * COSTS.turn
            runs.append(
                {
                    "nodes": nodes,
                    "size": size,
                    "rate": 0.0,
                    "seconds": 2.0,
                    "delivered_per_s": rate,
                    "turns_per_s": turns,
                    "rotations_per_s": packets / nodes / 200,
                    "cpu_s": spent_us * 2.0 / 1e6,
                }
            )
    assert astuple(model.calibrate(runs)) == pytest.approx(astuple(COSTS), rel=0.01)


def test_plots_of_the_same_data_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"delivered_per_s": 1000, "mb_per_s": 1.0, "rotations_per_s": 10, "latency_ms": {"p50": 1.0, "p99": 2.0}}
    systems = {name: figures | {"runs": [{}]} for name in plots.LOOKS} | {"jgroups": {"runs": []}}
    points = {str(n): {"size": n, "rate": n * 100, "nodes": n, "systems": systems} for n in (2, 4)}
    runs = {
        f"{style}/{n}": figures | {"nodes": 4, "style": style, "size": n}
        for style in plots.NETWORK_STYLES
        for n in (2, 4)
    }
    data = {"points": points, "runs": runs}
    monkeypatch.setattr(plots, "_read", lambda name: None if name in ("model", "where") else data)
    made = []
    for folder in ("a", "b"):
        monkeypatch.setattr(plots, "PLOTS", tmp_path / folder)
        assert plots.main() == 0
        made.append({path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()})
    assert made[0] == made[1]
    assert set(made[0]) == {
        f"{name}.svg"
        for name in (
            "throughput-size", "bytes-size", "latency-load", "throughput-nodes", "rotation-nodes",
            "networks-messages-4", "networks-bytes-4",
        )
    }  # fmt: skip
    assert all(b"ordercast" in svg or b"active, two networks" in svg for svg in made[0].values())
