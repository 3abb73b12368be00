"""`ordercast sim`: statuses, JSON, traces."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from toy import toy_spec

from ordercast.check import check_trace
from ordercast.cli import sim as command
from ordercast.sim import engines

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    # The toy under the name of an engine of its own: what is tested here is the command.
    monkeypatch.setitem(engines.ENGINES, "toy", toy_spec(3))

    def invoke(*arguments: str) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser()
        command.add_parser(parser.add_subparsers())
        args = parser.parse_args(["sim", *arguments])
        status = args.run(args)
        return status, *capsys.readouterr()

    return invoke


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    """A script under which the toy keeps every property."""
    script = tmp_path / "quiet.txt"
    script.write_text("engine toy\nnodes 3\nat 0.1 send 5 n1\nat 0.2 send 2 n2 size=900\nat 1 settle 5\n")
    return script


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A script under which it does not: it delivers everything again after a restart."""
    script = tmp_path / "broken.txt"
    script.write_text(
        "engine toy\nnodes 3\nat 0.1 send 5 n1\npause n2\nat 1 crash n3\nat 2 restart n3\nat 3 settle 5\n"
    )
    return script


def test_a_seed_reports_one_json_object(run: Run) -> None:
    status, out, _ = run("--engine", "toy", "--seed", "3", "--nodes", "3", "--json")
    report = json.loads(out)
    assert status == (1 if report["violations"] else 0)
    assert report["engine"] == "toy"
    assert report["seeds"] == 1
    assert report["events"] > 100
    assert report["events_per_s"] > 0
    assert len(report["trace_hash"]) == 32
    assert report["deliveries"] >= 5_000
    assert sum(report["faults"].values()) >= 5
    for violation in report["violations"]:
        assert violation["seed"] == 3
        assert violation["property"]
        assert violation["evidence"]


def test_a_campaign_is_in_the_order_of_seeds_and_the_same_with_more_processes(run: Run) -> None:
    reports = []
    for jobs in ("1", "2"):
        _, out, _ = run("--engine", "toy", "--seeds", "3:7", "--nodes", "3", "--json", "--jobs", jobs)
        report = json.loads(out)
        assert "trace_hash" not in report
        reports.append([report[key] for key in ("seeds", "violations", "events", "faults", "deliveries")])
    assert reports[0] == reports[1]
    assert reports[0][0] == 4


def test_stop_on_first_ends_the_campaign(run: Run) -> None:
    _, out, _ = run("--engine", "toy", "--seeds", "0:50", "--nodes", "3", "--json", "--stop-on-first", "--jobs", "1")
    report = json.loads(out)
    assert report["seeds"] < 50
    assert len({violation["seed"] for violation in report["violations"]}) == 1


def test_a_failing_seed_says_how_to_replay_it(run: Run) -> None:
    status, out, _ = run("--engine", "toy", "--seeds", "0:50", "--nodes", "3", "--stop-on-first", "--jobs", "1")
    assert status == 1
    seed = out.split()[1].rstrip(":")
    assert f"replay: ordercast sim --engine toy --seed {seed} --nodes 3" in out


def test_traces_are_for_the_checker(run: Run, tmp_path: Path, quiet: Path) -> None:
    assert run("--scenario", str(quiet), "--trace", str(tmp_path / "t"))[0] == 0
    assert check_trace(tmp_path / "t").ok
    run("--engine", "toy", "--seeds", "3:5", "--nodes", "3", "--trace", str(tmp_path / "many"))
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == ["seed-3", "seed-4"]
    assert sorted(path.name for path in (tmp_path / "many" / "seed-3").iterdir()) == [
        "n1.jsonl",
        "n2.jsonl",
        "n3.jsonl",
    ]


def test_a_scenario_prints_its_transcript(run: Run, quiet: Path) -> None:
    status, out, _ = run("--scenario", str(quiet))
    assert status == 0
    assert "deliver n1.1:1..5 in all agreed" in out
    status, out, _ = run("--scenario", str(quiet), "--json")
    assert json.loads(out)["violations"] == []


def test_a_scenario_that_fails(run: Run, broken: Path) -> None:
    status, out, _ = run("--scenario", str(broken), "--json")
    assert status == 1
    assert "E2" in {violation["property"] for violation in json.loads(out)["violations"]}


def test_a_wrong_expectation_fails(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "s.txt"
    script.write_text("engine toy\nnodes 2\nat 1 expect delivered n1:1 at n2\nexpect down n1\nat 2 settle 3\n")
    status, out, _ = run("--scenario", str(script))
    assert status == 1
    assert "n2 has not delivered n1.1:1" in out
    assert "n1 is running" in out


def test_shrink_writes_a_script_that_replays(run: Run, tmp_path: Path, broken: Path) -> None:
    small = tmp_path / "small.txt"
    status, out, _ = run("--scenario", str(broken), "--shrink", "--output", str(small))
    assert status == 1
    assert f"ordercast sim --scenario {small}" in out
    assert "pause" not in small.read_text()
    assert run("--scenario", str(small))[0] == 1


def test_shrinking_what_does_not_fail_is_no_failure(run: Run, quiet: Path) -> None:
    status, out, _ = run("--scenario", str(quiet), "--shrink")
    assert (status, out) == (0, f"{quiet}: no violation, nothing to shrink\n")


def test_show_prints_the_schedule(run: Run) -> None:
    status, out, _ = run("--seed", "5", "--show")
    assert status == 0
    assert "at " in out
    assert "settle 20" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "mtp"], "engine mtp is not implemented yet; there is totem, corel"),
        (["--engine", "paxos"], "there is no engine paxos; there is totem"),
        (["--networks", "9"], "--networks 9: expected a number from 1 to 8"),
        (["--replication", "triple"], "'active', 'passive' or 'active-passive:K'"),
        (["--networks", "2", "--replication", "active-passive:2"], "takes three networks or more"),
        (["--networks", "1", "--replication", "active"], "belongs to two networks or more"),
        (["--seed", "x"], "--seed x: expected a number"),
        (["--seeds", "5:5"], "--seeds 5:5: expected A:B with A below B"),
        (["--seeds", "5"], "--seeds 5: expected A:B"),
        (["--nodes", "1"], "--nodes 1: expected a number"),
        (["--jobs", "0"], "--jobs 0: expected a number"),
        (["--scenario", "no-such"], "no-such: no such file, and no scenario has this name"),
        (["--shrink"], "take one --seed"),
        (["--seed", "1", "--trace", "/proc/nowhere"], "/proc/nowhere"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(run: Run, arguments: list[str], said: str) -> None:
    status, out, err = run(*arguments)
    assert status == 2
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_bad_script_names_its_line(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "bad.txt"
    script.write_text("nodes 3\nexplode n1\n")
    status, _, err = run("--scenario", str(script))
    assert status == 2
    assert "line 2: there is no statement 'explode'" in err
    script.write_text("engine mtp\n")
    assert run("--scenario", str(script))[0] == 2


def test_an_engine_that_raises_is_a_violation(run: Run, monkeypatch: pytest.MonkeyPatch, quiet: Path) -> None:
    import toy

    def broken(self: object, packet: bytes) -> None:
        raise AssertionError("the toy is broken")

    monkeypatch.setattr(toy.Toy, "_order", broken)
    status, out, _ = run("--scenario", str(quiet), "--json")
    assert status == 1
    violation = next(found for found in json.loads(out)["violations"] if found["property"] == "engine")
    assert violation["evidence"][-1] == "AssertionError: the toy is broken"
