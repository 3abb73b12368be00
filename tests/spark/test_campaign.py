"""Campaigns over Spark: the same results as on one machine, whatever is interrupted, killed or tried again."""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from ordercast.cli import spark_campaign as command
from ordercast.sim.campaign import Campaign, Summary, run_campaign
from ordercast.sim.runner import Violation
from ordercast.spark.campaign import store as stores
from ordercast.spark.campaign.job import cut, results
from ordercast.spark.campaign.store import Store
from ordercast.spark.errors import SparkError

TOTEM = Campaign("totem", nodes=3)
SEEDS = range(24)


def summed(some, seeds: int = len(SEEDS)) -> dict[str, object]:
    """All of a summary that does not measure time."""
    summary = Summary("totem")
    for result in some:
        summary.add(result)
    assert summary.seeds == seeds
    report = summary.as_json()
    return {name: value for name, value in report.items() if not name.endswith(("_per_s", "cpu_s"))}


def on_spark(spark, campaign: Campaign, seeds: range, directory: Path):
    return (result for some in results(spark, campaign, seeds, Store(directory)) for result in some)


@pytest.fixture(scope="module")
def locally() -> dict[str, object]:
    return summed(run_campaign(TOTEM, SEEDS, coverage=True))


def test_the_results_of_one_machine(spark, tmp_path, locally):
    assert summed(on_spark(spark, TOTEM, SEEDS, tmp_path)) == locally
    assert locally["coverage"]["properties"]["E11"]["instances"] > 0
    assert "totem.gather.join" in locally["coverage"]["cells"]["reached"]
    kept = spark.read.parquet(str(tmp_path / "results"))
    assert kept.selectExpr("sum(faults['crash'])").first()[0] == locally["faults"]["crash"]


def test_a_campaign_that_was_stopped_goes_on_where_it_stopped(spark, tmp_path, locally):
    first = results(spark, TOTEM, range(16), Store(tmp_path))
    next(first)
    first.close()
    whole = set(Store(tmp_path).ranges())
    # What a killed task leaves behind is no result.
    (tmp_path / "results" / ".000000000020-000000000024.parquet.1").write_bytes(b"PAR1")
    assert summed(on_spark(spark, TOTEM, range(4, 20), tmp_path), 16) != locally
    before = {path: path.stat().st_mtime_ns for path in Store(tmp_path).ranges()}
    assert whole <= set(before)
    assert summed(on_spark(spark, TOTEM, SEEDS, tmp_path)) == locally
    after = {path: path.stat().st_mtime_ns for path in Store(tmp_path).ranges()}
    assert before.items() <= after.items()
    assert sum(len(seeds) for seeds in Store(tmp_path).ranges().values()) == len(SEEDS)


def test_seeds_are_cut_into_tasks_of_neighbours():
    assert cut([0, 1, 2, 3, 7, 8, 20], 3) == [range(3), range(3, 4), range(7, 9), range(20, 21)]


def test_results_of_other_code_or_another_campaign_are_not_mixed(tmp_path, monkeypatch):
    Store(tmp_path).begin(TOTEM)
    Store(tmp_path).begin(replace(TOTEM))
    with pytest.raises(SparkError, match=r"holds another campaign \(nodes differ\): use another --out"):
        Store(tmp_path).begin(Campaign("totem"))
    Store(tmp_path).write(range(1), [TOTEM.run(0, coverage=True)])
    [path] = Store(tmp_path).ranges()
    monkeypatch.setattr(stores, "fingerprint", lambda: "other")
    with pytest.raises(SparkError, match=r"holds another campaign \(code differ\)"):
        Store(tmp_path).begin(TOTEM)
    with pytest.raises(SparkError, match=r"was made by other code than is installed here"):
        list(Store(tmp_path).read(path))
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(SparkError, match=r"cannot be read: .* Remove it"):
        list(Store(tmp_path).read(path))
    (tmp_path / "campaign.json").write_text("[")
    with pytest.raises(SparkError, match=r"is no description of a campaign"):
        Store(tmp_path).begin(TOTEM)


def broken(fails: int) -> Campaign:
    class Broken(Campaign):
        """Its engine violates something under one seed, and cannot be run under another."""

        def run(self, seed, **options):
            if seed == fails:
                raise ValueError("what no engine does")
            result = Campaign.run(self, seed, **options)
            if seed == 3:
                result.violations.append(Violation("E9", ("one delivers a before b", "another b before a")))
            return result

    return Broken("totem", 3)


@pytest.fixture
def run(spark, monkeypatch, capsys):
    """The command runs in the tests' session."""
    monkeypatch.setattr(command, "running", lambda args, app, **conf: nullcontext(spark))

    def invoke(*given: object) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser()
        command.add_parser(parser.add_subparsers())
        args = parser.parse_args(["campaign", *map(str, given)])
        status = args.run(args)
        return status, *capsys.readouterr()

    return invoke


def test_the_command_collects_failures_with_what_replays_them(run, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "campaign_of", lambda args: broken(fails=99))
    status, out, err = run("--seeds", "0:6", "--out", tmp_path, "--json")
    assert (status, err) == (1, "")
    report = json.loads(out)
    replay = "ordercast sim --engine totem --seed 3 --nodes 3"
    assert report["seeds"] == report["met_minimums"] == 6
    assert report["failures"] == [{"seed": 3, "properties": ["E9"], "replay": replay}]
    assert [json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines()] == report["failures"]
    assert json.loads((tmp_path / "summary.json").read_text())["violations"] == report["violations"]
    status, out, _ = run("--seeds", "0:6", "--out", tmp_path)
    assert status == 1
    assert (
        f"seed 3: violated E9\n  E9\n    one delivers a before b\n    another b before a\n  replay: {replay}\n" in out
    )
    assert "6 seeds of totem: 1 of them violated a property" in out


def test_what_stops_a_task_is_told_in_one_line(run, monkeypatch):
    monkeypatch.setattr(command, "campaign_of", lambda args: broken(fails=2))
    status, out, err = run("--seeds", "0:3")
    assert (status, out) == (2, "")
    assert err == "ordercast spark campaign: a task of the campaign failed: ValueError: what no engine does\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--engine", "paxos"], "there is no engine paxos"),
        (["--seeds", "7"], "--seeds 7: expected A:B"),
        (["--nodes", "1"], "--nodes 1: expected a number"),
        (["--networks", "1", "--replication", "active"], "belongs to two networks or more"),
        (["--out", "/proc/nowhere"], "/proc/nowhere"),
        (["--out", "/dev/null"], "/dev/null"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(run, given, said):
    status, out, err = run(*given)
    assert (status, out) == (2, "")
    assert said in err
    assert err.startswith("ordercast spark campaign: ")
    assert err.count("\n") == 1


def test_no_master_is_one_line_and_status_2(capsys):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["campaign", "--master", "spark://127.0.0.1:1"])
    assert args.run(args) == 2
    assert "the master spark://127.0.0.1:1 cannot be reached" in capsys.readouterr().err


def test_a_worker_that_is_killed_amid_a_range_changes_nothing(cluster, cluster_spark, tmp_path, locally):
    mark = tmp_path / "mark"

    class Held(Campaign):
        """Its first attempt at a seed never ends: it says where it runs, and waits to be killed."""

        def run(self, seed, **options):
            if seed == 9:
                try:
                    with mark.open("x") as file:
                        file.write(os.getcwd())
                except FileExistsError:
                    return Campaign.run(self, seed, **options)
                time.sleep(600)
            return Campaign.run(self, seed, **options)

    def kill() -> None:
        while not (mark.exists() and mark.read_text()):
            time.sleep(0.05)
        folder = Path(mark.read_text()).relative_to(cluster.folder).parts[0]
        cluster.kill_worker(int(folder.removeprefix("work")))

    killer = Thread(target=kill)
    killer.start()
    found = summed(on_spark(cluster_spark, Held("totem", 3), SEEDS, tmp_path / "out"))
    killer.join()
    cluster.start_worker()
    assert found == locally
