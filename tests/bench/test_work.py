"""The guard of `bench/work.py`: it counts the same in every run, and notices a change that makes a hot path longer."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ordercast.engine.totem import operational
from ordercast.stream import Reader
from ordercast.wire.pack import Packer


def _load() -> ModuleType:
    path = Path(__file__).parents[2] / "bench" / "work.py"
    spec = importlib.util.spec_from_file_location("bench_work", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_work"] = module
    spec.loader.exec_module(module)
    return module


work = _load()


def calls() -> dict[str, dict[str, float]]:
    return {stretch: {"calls": figure} for stretch, figure in work.measure_metric("calls").items()}


def test_counts_are_the_same_in_every_run() -> None:
    assert calls() == calls()
    assert work.measure_metric("instructions") == work.measure_metric("instructions")


def test_the_reference_names_what_is_measured() -> None:
    reference = json.loads(work.REFERENCE.read_text())
    assert all(set(figures) == set(calls()) for figures in reference.values())


def _slower(function: Callable[..., Any], more: int) -> Callable[..., Any]:
    def slowed(*arguments: Any) -> Any:
        for _ in range(more):
            len(b"")
        return function(*arguments)

    return slowed


@pytest.mark.parametrize(
    ("where", "name", "more", "noticed"),
    [
        (Packer, "burst", 1000, "broadcast 1 KB, a packet"),
        (operational, "keep_own", 5000, "broadcast 64 B, a packet"),
        (Reader, "next_event", 1, "take events of 64 B, a message"),
        (Reader, "next_batch", 20, "take batches of 1 KB, a message"),
        (work.QuietMember, "send", 10, "submit one by one, a message"),
        (operational, "accept_token", 20, "token, a visit"),
    ],
)
def test_a_longer_path_is_noticed(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, more: int, noticed: str
) -> None:
    before = {work.PYTHON: calls()}
    monkeypatch.setattr(work, "METRICS", ("calls",))
    monkeypatch.setattr(where, name, _slower(getattr(where, name), more))
    worse = work.compare(calls(), before)
    assert any(line.startswith(noticed) for line in worse), worse


def test_figures_that_are_gone_and_that_are_better() -> None:
    before = {work.PYTHON: {"a": {"calls": 10.0, "instructions": 10.0, "bytes": 10.0}}}
    assert work.compare({}, before) == ["a: is not measured any more"]
    assert work.compare({"a": {"calls": 11.0, "instructions": 5.0, "bytes": 10.0}}, before) == []
    assert work.compare({"a": {"calls": 11.1, "instructions": 5.0, "bytes": 12.0}}, before) == [
        "a: 11.1 calls, the reference is 10 (11 % more)",
        "a: 12 bytes, the reference is 10 (20 % more)",
    ]


def test_another_python_compares_calls_alone() -> None:
    before = {"0.0": {"a": {"calls": 10.0, "instructions": 1.0, "bytes": 1.0}}}
    assert work.compare({"a": {"calls": 10.0, "instructions": 99.0, "bytes": 99.0}}, before) == []


def test_a_worse_figure_fails_loudly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {"a": {"calls": 20.0, "instructions": 20.0, "bytes": 20.0}}
    lower = {work.PYTHON: {"a": {"calls": 10.0, "instructions": 20.0, "bytes": 20.0}}}
    monkeypatch.setattr(work, "measure", lambda: figures)
    monkeypatch.setattr(work, "REFERENCE", tmp_path / "reference.json")
    monkeypatch.setattr(sys, "argv", ["work.py"])
    work.REFERENCE.write_text(json.dumps(lower))
    assert work.main() == 1
    assert "WORSE: a: 20 calls, the reference is 10 (100 % more)" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["work.py", "--record"])
    assert work.main() == 0
    monkeypatch.setattr(sys, "argv", ["work.py"])
    assert work.main() == 0
