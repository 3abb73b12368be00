"""`ordercast demo`: all that it tells has happened, and its traces are there for others."""

from __future__ import annotations

import json
import os
import signal

from cli.processes import ordercast, wait_until
from ordercast.check import check_trace


def test_the_demo_as_json(tmp_path):
    result = ordercast("demo", "--json", "--trace", tmp_path / "trace", TMPDIR=str(tmp_path))
    assert (result.returncode, result.stderr) == (0, b"")
    report = json.loads(result.stdout)
    assert report["verdict"] == "ok"
    assert report["violations"] == []
    assert report["agreement"]["compared"] > 100
    assert report["agreement"]["differences"] == 0
    steps = {step["step"]: step for step in report["steps"]}
    assert list(steps) == ["start", "load", "cut", "mend", "kill", "restart", "partition", "remerge", "leave"]
    assert all(count > 1000 for count in report["deliveries"].values())
    verdict = check_trace(tmp_path / "trace")
    assert (verdict.ok, verdict.events) == (True, report["events"])
    trace = (tmp_path / "trace" / "n4.jsonl").read_text()
    assert trace.count('"event":"recover"') == 1, "it was killed and came back"
    first = (tmp_path / "trace" / "n1.jsonl").read_text()
    assert first.index('"event":"x-network-fault"') < first.index('"event":"x-network-repaired"')
    assert '"event":"leave"' in trace.splitlines()[-1]
    assert os.listdir(tmp_path) == ["trace"], "nothing else is left behind"


def test_the_simulated_demo():
    result = ordercast("demo", "--simulated", "--json")
    assert (result.returncode, result.stderr) == (0, b"")
    assert json.loads(result.stdout)["verdict"] == "ok"


def test_when_the_demo_is_killed_its_processes_leave(start, tmp_path):
    demo = start("demo", TMPDIR=str(tmp_path))
    demo.wait_for(lambda: any("sends" in line for line in demo.lines), "they have met")
    members = demo.children()
    assert len(members) == 5
    demo.signal(signal.SIGKILL)
    demo.wait()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in members), "all are gone")
