"""`ordercast bench peers`: what it refuses, what it says of peers that are not there, and a short run of a real one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ordercast.bench import compare, peers
from ordercast.bench.compare import OURS, alternate, peers_for, ratios
from ordercast.bench.corosync import configuration, write_hosts
from ordercast.bench.hosts import Place
from ordercast.bench.peers import PEERS, Corosync
from ordercast.bench.processes import RunFailed
from ordercast.bench.run import Work
from ordercast.cli import bench_peers
from ordercast.cli.bench_peers import peers_table
from ordercast.cli.main import main

ADDRESSES = ["10.77.0.1", "10.77.0.2", "10.77.0.3"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosts", "loopback"], "peers need a host each"),
        (["--networks", "2"], "one network without loss"),
        (["--loss", "1"], "one network without loss"),
        (["--engine", "corel", "--data-dir", "/tmp"], "with totem"),
        (["--encrypt", "--peer", "corosync-udp"], "corosync-udp does not encrypt"),
        (["--peer", "corosync-knet-aes256"], "corosync-knet-aes256 is compared with --encrypt"),
        (["--peer", "kafka"], "there is no peer 'kafka'"),
        (["--rate", "10", "--size", "4"], "--size is at least 8"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str):
    monkeypatch.setattr("ordercast.cli.bench.refuse_without_namespaces", lambda: None)
    try:
        status = main(["bench", "peers", *arguments])
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    printed = capsys.readouterr()
    assert status == 2
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_without_root_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["bench", "peers"]) == 2
    assert "need root" in capsys.readouterr().err


def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.cli.bench.refuse_without_namespaces", lambda: None)
    monkeypatch.setattr(peers.shutil, "which", lambda _: None)
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda _: None)


def test_no_peer_at_all_is_status_1_and_says_how_to_install_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _nothing_installed(monkeypatch)
    assert main(["bench", "peers", "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    for name in ("corosync-udp", "corosync-knet", "jgroups", "pysyncobj"):
        assert any(line.startswith(f"{name} is not installed (") and "install" in line for line in lines), name
    assert "apt-get install corosync libcpg-dev" in printed.err
    assert not any(line.startswith("corosync-knet-aes256") for line in lines)  # that one is for --encrypt


def test_what_is_missing_is_named_beside_the_figures_of_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With figures made up here: one peer is there, another one's runs fail, the rest is not installed."""
    _nothing_installed(monkeypatch)
    monkeypatch.setattr(Corosync, "missing", lambda self: [])
    monkeypatch.setattr(Corosync, "version", lambda self: "Corosync of this test")
    monkeypatch.setattr(Corosync, "prepare", lambda self, directory: None)

    @contextmanager
    def nowhere(work: Work) -> Iterator[list[Place]]:
        yield []

    def figures(rate: int) -> dict[str, Any]:
        latency = {"p50": None, "p99": None, "p999": None}
        return {"delivered_per_s": rate, "mb_per_s": rate * 1024 / 1e6, "latency_ms": latency}

    def peer_run(peer: Any, *_: object) -> dict[str, Any]:
        if peer.name == "corosync-knet":
            raise RunFailed("corosync-knet: node 1 has ended: it is broken")
        return figures(10_000)

    monkeypatch.setattr(bench_peers, "places", nowhere)
    monkeypatch.setattr(compare, "run_group", lambda *_: figures(150_000))
    monkeypatch.setattr(compare, "run_peer", peer_run)
    assert main(["bench", "peers", "--json", "--repeat", "2"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["ratios"] == {"corosync-udp": {"delivered_per_s": 15.0}}
    assert set(found["not_installed"]) == {"jgroups", "pysyncobj"}
    assert found["systems"]["corosync-udp"]["version"] == "Corosync of this test"
    assert len(found["systems"]["corosync-knet"]["failed"]) == 2
    assert printed.err.count("corosync-knet: a run failed: ") == 2


def test_runs_are_taken_in_turns_and_a_failure_costs_one_run_only() -> None:
    order: list[str] = []

    def contestant(name: str, rates: list[int]) -> compare.Contestant:
        def run() -> dict[str, Any]:
            order.append(name)
            rate = rates.pop(0)
            if not rate:
                raise RunFailed(f"{name}: no figures")
            return {"delivered_per_s": rate}

        return run

    results = alternate({"a": contestant("a", [10, 30, 20]), "b": contestant("b", [1, 0, 3])}, 3)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert results["a"]["delivered_per_s"] == 20
    assert (results["b"]["delivered_per_s"], results["b"]["failed"]) == (2, ["b: no figures"])


def test_ratios_are_ours_to_theirs() -> None:
    def figures(rate: int, p50: float) -> dict[str, Any]:
        return {"delivered_per_s": rate, "latency_ms": {"p50": p50, "p99": 2 * p50}, "runs": [{}]}

    results: dict[str, dict[str, Any]] = {OURS: figures(30, 0.1), "x": figures(10, 0.4), "y": {"runs": []}}
    assert ratios(results, 0) == {"x": {"delivered_per_s": 3.0}}
    assert ratios(results, 100) == {"x": {"p50": 0.25, "p99": 0.25}}
    assert compare.ratio(1.0, 0) is None


def test_table_shows_what_failed_as_a_line_without_figures() -> None:
    latency = {"p50": 0.2, "p99": 0.5, "p999": 1.0}
    good = {"delivered_per_s": 4000, "mb_per_s": 4.1, "spread_percent": 3.0, "latency_ms": latency, "runs": [{}]}
    results: dict[str, dict[str, Any]] = {OURS: good, "x": good, "y": {"runs": [], "failed": ["why"]}}
    lines = peers_table(results, {"x": {"delivered_per_s": 1.0}}, rated=False).splitlines()
    assert lines[2].split() == ["x", "4,000", "4.10", "3.00", "1.00"]
    assert lines[3].split() == ["y", "–", "–", "–", "–"]
    rated = peers_table(results, {"x": {"p50": 1.0, "p99": 1.0}}, rated=True).splitlines()
    assert rated[2].split() == ["x", "4,000", "0.20", "0.50", "1.00", "1.00", "1.00"]


def test_who_encrypts_is_compared_with_who_encrypts() -> None:
    assert [peer.name for peer in peers_for(True)] == ["corosync-knet-aes256"]
    assert "corosync-knet-aes256" not in [peer.name for peer in peers_for(False)]
    assert [peer.name for peer in peers_for(False, ["jgroups"])] == ["jgroups"]


def test_corosync_configuration(tmp_path: Path) -> None:
    plain = configuration(tmp_path, ADDRESSES, "udp", 9000, encrypt=False)
    for line in ("transport: udp", "netmtu: 9000", "bindnetaddr: 10.77.0.0", "crypto_cipher: none"):
        assert line in plain.splitlines()
    sealed = configuration(tmp_path, ADDRESSES, "knet", 1500, encrypt=True).splitlines()
    for line in ("transport: knet", "crypto_cipher: aes256", "crypto_hash: sha256", f"keyfile: {tmp_path}/key"):
        assert line in sealed
    assert not any(line.startswith("bindnetaddr") for line in sealed)
    assert sealed.count("node {") == 3
    assert plain.count("{") == plain.count("}")


def test_corosync_hosts_share_one_key_and_know_each_other(tmp_path: Path) -> None:
    homes = write_hosts(tmp_path, ADDRESSES, "knet", 1500, encrypt=True)
    assert len({(home / "key").read_bytes() for home in homes}) == 1
    for home in homes:
        assert [line.split()[0] for line in (home / "hosts").read_text().splitlines()] == ["127.0.0.1", *ADDRESSES]


def _why_no_corosync() -> str | None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "hosts as network namespaces need root and the command 'ip'"
    missing = PEERS["corosync-udp"].missing()
    return f"Corosync is not installed: {', '.join(missing)}" if missing else None


@pytest.mark.skipif(_why_no_corosync() is not None, reason=str(_why_no_corosync()))
@pytest.mark.parametrize(("peer", "rate"), [("corosync-udp", "0"), ("corosync-knet", "100")])
def test_a_real_corosync(capsys: pytest.CaptureFixture[str], peer: str, rate: str) -> None:
    command = ["bench", "peers", "--peer", peer, "--nodes", "2", "--size", "200", "--rate", rate, "--json"]
    assert main([*command, "--seconds", "0.5", "--warm-up", "0.2", "--repeat", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    theirs = found["systems"][peer]
    assert theirs["delivered_per_s"] > 50
    assert theirs["mb_per_s"] == pytest.approx(theirs["delivered_per_s"] * 200 / 1e6, rel=0.05, abs=0.01)
    assert theirs["version"].startswith("Corosync Cluster Engine")
    if rate == "0":
        assert found["ratios"][peer]["delivered_per_s"] > 0
    else:
        assert 0 < theirs["latency_ms"]["p50"] <= theirs["latency_ms"]["p99"]
