"""The checker on Spark says what the local checker says: on every trace of its tests, all of them in one job."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from check import corel_notation
from check.notation import Trace, parse, write
from check.test_corel_legal import LEGAL as LEGAL_OF_COREL
from check.test_corel_legal import UNREADABLE as UNREADABLE_OF_COREL
from check.test_corel_violations import TRACES as TRACES_OF_COREL
from check.test_generated import DAMAGES, scramble, with_new_steps
from check.test_legal import LEGAL
from check.test_unreadable import CONF, LINES
from check.test_violations import TRACES
from check.world import run
from ordercast.check import COREL_PROPERTIES, PROPERTIES, TraceError, Verdict, check_trace
from ordercast.cli import check as command
from ordercast.sim.campaign import Campaign
from ordercast.spark.verify.job import check_traces

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("step", "number", "pos")]
    + [("members", pa.list_(pa.string())), ("weights", pa.list_(pa.int64())), ("learned", pa.bool_())]
    + [(name, pa.string()) for name in ("node", "event", "conf", "kind", "msg", "sender", "service", "colour")]
)


def locally(directory: Path) -> Verdict | str:
    try:
        return check_trace(directory)
    except TraceError as error:
        return str(error)


def on_spark(spark, directories: list[Path], chunk_bytes: int) -> list[Verdict | str]:
    found = check_traces(spark, directories, chunk_bytes=chunk_bytes)
    return [str(verdict) if isinstance(verdict, TraceError) else verdict for verdict in found]


def write_parquet(trace: Trace, directory: Path, parts: int) -> Path:
    """Each node as a directory of parts, each part of several row groups."""
    for node, events in trace.items():
        folder = directory / f"{node}.parquet"
        folder.mkdir(parents=True)
        size = max(1, -(-len(events) // parts))
        for part in range(parts):
            table = pa.Table.from_pylist(events[part * size : (part + 1) * size], SCHEMA)
            pq.write_table(table, folder / f"part-{part:05}.parquet", row_group_size=max(1, size // 3))
    return directory


def generated(seeds: range) -> list[Trace]:
    """Legal executions, damaged ones and scrambled ones in turn."""
    traces = []
    for seed in seeds:
        random = Random(seed)
        trace = run(random, 150, 1 + seed % 5)
        if seed % 3 == 1:
            DAMAGES[seed // 3 % len(DAMAGES)](trace, random)
        for _ in range(seed % 4 if seed % 3 == 2 else 0):
            scramble(trace, random)
        with_new_steps(trace)
        traces.append(trace)
    return traces


def test_every_trace_of_the_local_checker_s_tests(spark, tmp_path):
    traces = [parse(text) for text in (*TRACES.values(), *LEGAL.values())] + generated(range(60))
    traces += [corel_notation.parse(text) for text in (*TRACES_OF_COREL.values(), *LEGAL_OF_COREL.values())]
    directories = [
        write_parquet(trace, tmp_path / f"t{number}", 2) if number % 4 == 0 else write(trace, tmp_path / f"t{number}")
        for number, trace in enumerate(traces)
    ]
    expected = [locally(directory) for directory in directories]
    found = on_spark(spark, directories, chunk_bytes=4_000)
    for directory, local, distributed in zip(directories, expected, found, strict=True):
        assert distributed == local, directory
    names = {violation.property for verdict in expected for violation in verdict.violations}
    assert names == {*PROPERTIES, *COREL_PROPERTIES}


def test_simulated_corel(spark, tmp_path):
    """Two seeds as they are, and one of them with two messages that a node orders the other way round."""
    for seed in (0, 1):
        Campaign("corel", nodes=3).run(seed, trace=tmp_path / f"s{seed}")
    shutil.copytree(tmp_path / "s1", tmp_path / "bad")
    lines = (tmp_path / "bad" / "n2.jsonl").read_text().splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if '"event":"order"' in line]
    one, other = (json.loads(lines[number]) for number in at[len(at) // 2 :][:2])
    one["msg"], other["msg"] = other["msg"], one["msg"]
    for number, event in zip(at[len(at) // 2 :], (one, other), strict=False):
        lines[number] = json.dumps(event) + "\n"
    (tmp_path / "bad" / "n2.jsonl").write_text("".join(lines))
    directories = [tmp_path / name for name in ("s0", "s1", "bad")]
    expected = [locally(directory) for directory in directories]
    assert [verdict.ok for verdict in expected] == [True, True, False]
    assert on_spark(spark, directories, chunk_bytes=40_000) == expected


def test_what_cannot_be_read_is_refused_in_the_same_words(spark, tmp_path):
    directories = []
    for number, line in enumerate(LINES.values()):
        directory = tmp_path / f"line{number}"
        directory.mkdir()
        (directory / "n1.jsonl").write_text(CONF + line)
        directories.append(directory)
    for number, columns in enumerate(PARQUET):
        directory = tmp_path / f"parquet{number}"
        directory.mkdir()
        pq.write_table(pa.table(columns), directory / "n1.parquet")
        directories.append(directory)
    for number, events in enumerate(UNREADABLE_OF_COREL.values()):
        numbered = [{"node": "n1", "step": step, **event} for step, event in enumerate(events, 1)]
        directories.append(write({"n1": numbered}, tmp_path / f"corel{number}"))
    directories += [*odd_directories(tmp_path), write(parse("n1: s1=n1 close"), tmp_path / "good")]
    expected = [locally(directory) for directory in directories]
    assert [verdict for verdict in expected if isinstance(verdict, Verdict)] == [Verdict(2, [])]
    assert on_spark(spark, directories, chunk_bytes=60) == expected


PARQUET = [
    {"node": ["n1"], "step": [1]},
    {"node": ["n1"], "step": [1.5], "event": ["close"]},
    {"node": [1], "step": [1], "event": ["close"]},
    {"node": ["n1"], "step": [1], "event": ["conf"], "members": ["n1"]},
    {"node": ["n1"], "step": [1], "event": ["group"], "members": [["n1", None]]},
    {"node": ["n1"], "step": [1], "event": ["send"], "msg": ["a"], "conf": ["r"]},
    {"node": ["n1"], "step": [1], "event": ["send"], "msg": ["a"], "conf": ["r"], "service": ["causal"]},
    {"node": ["n1"], "step": [1], "event": ["deliver"], "msg": ["a"], "conf": ["r"], "service": ["safe"]},
    {"node": ["n1", "n1"], "step": [1, None], "event": ["close", "close"]},
    {"node": ["n1", "n1"], "step": [1, 1], "event": ["x-a", "close"]},
    {"node": ["n2"], "step": [1], "event": ["close"]},
]


def odd_directories(place: Path) -> list[Path]:
    def made(name: str) -> Path:
        (place / name).mkdir()
        return place / name

    torn, empty, damaged, folder, second = map(made, ("torn", "empty", "damaged", "folder", "second"))
    (torn / "n1.jsonl").write_text(CONF + CONF.replace(":1,", ":2,").replace("s1", "t1")[:-1])
    (empty / "n1.jsonl").write_text("")
    (damaged / "n1.parquet").write_bytes(b"PAR1 and no more")
    (folder / "n1.jsonl").mkdir()
    write(parse("n1: s1=n1 close\nn2: s2=n2 close"), second)
    with (second / "n2.jsonl").open("a") as file:
        file.write('{"node":"n2","step":5,"event":"close"}\n')
    return [torn, empty, damaged, folder, second, made("nothing"), place / "nowhere"]


def traces_of_the_bench():
    spec = importlib.util.spec_from_file_location("spark_traces", ROOT / "bench" / "spark_traces.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_what_is_hidden_in_a_large_trace_is_found_and_named(spark, tmp_path):
    bench = traces_of_the_bench()
    assert set(bench.HIDING) == set(PROPERTIES)
    options = {"size": 20_000, "load_us": 20_000_000}
    count, hidden = bench.write_trace(tmp_path / "hidden", 40_000, hide=list(PROPERTIES), **options)
    legal, _ = bench.write_trace(tmp_path / "legal", 20_000, **options)
    found, sound = on_spark(spark, [tmp_path / "hidden", tmp_path / "legal"], chunk_bytes=200_000)
    assert (sound.events, sound.violations) == (legal, [])
    assert found.events == count
    evidence = {violation.property: "\n".join(violation.evidence) for violation in found.violations}
    assert set(evidence) == set(PROPERTIES)
    assert found == locally(tmp_path / "hidden")
    # Some damages violate several properties, and the evidence is of the first; of these it is their own run.
    for name in ("E1", "E2", "E3", "E4", "E5", "E9", "E12", "E13", "E14"):
        assert f" {hidden[name].partition('.')[0]}." in evidence[name], name


def arguments(*given: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["check", *map(str, given)])


@pytest.fixture
def shared(spark, monkeypatch):
    """The command runs in the tests' session."""
    monkeypatch.setattr(command, "running", lambda args, app: nullcontext(spark))


def test_the_command_says_the_same_with_and_without(shared, tmp_path, capsys):
    good = write(parse("n1: s1=n1 +a@s1 a<n1@s1 end"), tmp_path / "good")
    bad = write(parse("n1: s1=n1 +a@s1 end"), tmp_path / "bad")
    said = []
    for options in ((), ("--spark", "--master", "local[2]", "--scratch", tmp_path / "scratch")):
        args = arguments(bad, good, "--json", *options)
        said.append((args.run(args), json.loads(capsys.readouterr().out)))
    assert said[0] == said[1]
    assert said[0][0] == 1
    assert not any((tmp_path / "scratch").iterdir())


def test_a_master_that_is_none(tmp_path, capsys):
    args = arguments("--spark", tmp_path, "--master", "nowhere")
    assert args.run(args) == 2
    assert capsys.readouterr().err.startswith("ordercast check: 'nowhere' is not a master")


def test_a_scratch_directory_that_cannot_be(shared, tmp_path, capsys):
    args = arguments("--spark", write(parse("n1: s1=n1 close"), tmp_path / "t"), "--scratch", "/proc/none")
    assert args.run(args) == 2
    assert capsys.readouterr().err.count("\n") == 1
