"""`ordercast bench` as a user calls it: what it prints, and what it refuses. No figure is asserted: machines differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ordercast.bench.durable import DurableWork, run_system
from ordercast.bench.durable_peers import installed
from ordercast.bench.report import summarize, table
from ordercast.bench.run import quantile_ms
from ordercast.cli.main import main

SHORT = ["--seconds", "0.3", "--warm-up", "0.1", "--json"]


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["bench", *arguments, *SHORT]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""  # progress is for terminals
    found: dict[str, Any] = json.loads(printed.out)
    return found


@pytest.mark.parametrize("take", ["batches", "events"])
def test_saturated_run(capsys: pytest.CaptureFixture[str], take: str) -> None:
    figures = run_json(capsys, "--nodes", "2", "--size", "100", "--take", take)
    assert (figures["engine"], figures["nodes"], figures["size"], figures["service"]) == ("totem", 2, 100, "agreed")
    assert figures["delivered_per_s"] > 1000
    assert figures["mb_per_s"] == pytest.approx(figures["delivered_per_s"] * 100 / 1e6, rel=0.01)
    assert figures["cpu_s"] > 0
    assert figures["views"] == 0
    assert figures["latency_ms"] == {"p50": None, "p99": None, "p999": None}


def test_fixed_rate_is_kept_and_latency_counts_from_the_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    figures = run_json(capsys, "--nodes", "2", "--rate", "200", "--service", "safe", "--encrypt", "--repeat", "2")
    # Two nodes send 200 a second each; a run of 0.3 s has a message more or less at its edges, on a busy machine some.
    assert 300 < figures["delivered_per_s"] < 500
    latency = figures["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p999"]
    assert len(figures["runs"]) == 2


def test_redundant_networks(capsys: pytest.CaptureFixture[str]) -> None:
    figures = run_json(capsys, "--nodes", "2", "--networks", "2", "--replication", "passive", "--rate", "100")
    assert figures["delivered_per_s"] > 0


def test_limit_of_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    figures = run_json(capsys, "limit", "--nodes", "2", "--size", "4000", "--packet", "1400")
    for form in ("classic", "accelerated"):
        assert figures[form]["delivered_per_s"] > 100
        assert figures[form]["rotations_per_s"] > 1


def test_limit_of_the_disk(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figures = run_json(capsys, "limit", "--durable", str(tmp_path), "--size", "4096")
    assert figures["appends_per_s"] > 0
    assert figures["append_ms"]["p50"] <= figures["append_ms"]["p99"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "paxos"], "there is no engine 'paxos'"),
        (["durable"], "durable needs --data-dir"),
        (["durable", "--data-dir", ".", "--together", "1000"], "1000 writes together of 3 members are more than 1536"),
        (["--engine", "corel"], "under data_dir, which is not given"),
        (["--loss", "1"], "--loss and --single-packets need --hosts netns"),
        (["--rate", "10", "--size", "4"], "--size is at least 8"),
        (["limit", "--durable", "/no/such/directory"], "no directory"),
        (["--nodes", "0"], "0 is not between 1 and"),
        (["--size", "many"], "invalid number value"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    try:
        status = main(["bench", *arguments])
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    printed = capsys.readouterr()
    assert status == 2
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_hosts_need_root(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["bench", "--hosts", "netns"]) == 2
    assert "need root" in capsys.readouterr().err


def test_summary_takes_medians() -> None:
    runs = [{"rate": rate, "latency_ms": {"p50": rate / 2}, "none": None} for rate in (10, 30, 20)]
    summary = summarize(runs)
    assert summary["rate"] == 20
    assert summary["latency_ms"] == {"p50": 10.0}
    assert summary["none"] is None
    assert summary["spread_percent"] == 100.0
    assert summary["runs"] == runs


def test_quantiles() -> None:
    microseconds = list(range(1, 1001))
    assert quantile_ms(microseconds, 0.5) == pytest.approx(0.501)
    assert quantile_ms(microseconds, 0.99) == pytest.approx(0.991)
    assert quantile_ms([7], 0.999) == 0.007
    assert quantile_ms([], 0.5) is None


def test_table_aligns() -> None:
    assert table(("a", "b"), [["x", 1000], ["long", None]]).splitlines() == [
        "a         b",
        "x     1,000",
        "long      –",
    ]


def test_a_durable_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--engine",
        "corel",
        "--nodes",
        "3",
        "--seconds",
        "0.5",
        "--warm-up",
        "0.2",
        "--data-dir",
        str(tmp_path),
    ]
    assert main(["bench", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["engine"], found["views"]) == ("corel", 0)
    assert found["delivered_per_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_durable_writes_beside_the_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ordercast.cli.bench_durable.installed", dict)
    arguments = ["--outstanding", "30", "--together", "5", "--repeat", "1", "--seconds", "0.5", "--warm-up", "0.2"]
    assert main(["bench", "durable", "--data-dir", str(tmp_path), *arguments, "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert set(found["systems"]) == {"corel", "disk"}
    assert found["not_installed"] == ["etcd", "nats", "pysyncobj"]
    assert all(f"{name} is not installed" in printed.err for name in found["not_installed"])
    ours, disk = found["systems"]["corel"], found["systems"]["disk"]
    assert ours["writes_per_s"] > 0
    assert ours["ack_ms"]["p50"] > 0
    assert found["ratios"]["disk"] == round(ours["writes_per_s"] / disk["writes_per_s"], 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("peer", ["etcd", "nats", "pysyncobj"])
def test_writes_of_a_peer(peer: str, tmp_path: Path) -> None:
    if peer not in installed():
        pytest.skip(f"{peer} is not installed")
    work = DurableWork(tmp_path, outstanding=30, seconds=0.5, warm_s=0.2)
    found = run_system(peer, work)
    assert found["writes_per_s"] > 0
    assert found["ack_ms"]["p50"] > 0
