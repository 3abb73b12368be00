"""`ordercast check`: what it prints and its exit status."""

from __future__ import annotations

import argparse
import json

import pytest

from check.notation import joined, parse, write
from ordercast.check import check_trace
from ordercast.cli import check as command

GOOD = parse("n1: s1=n1 +a@s1 a<n1@s1 end")
BAD = parse(joined("n1", "n2") + "\nn1: +a@r a<n1@r end\nn2: end")


@pytest.fixture
def run(capsys):
    def run(*arguments):
        parser = argparse.ArgumentParser()
        command.add_parser(parser.add_subparsers())
        args = parser.parse_args(["check", *map(str, arguments)])
        status = args.run(args)
        output = capsys.readouterr()
        assert output.err == "", "progress is for terminals"
        return status, output.out

    return run


def test_text(tmp_path, run):
    good, bad = write(GOOD, tmp_path / "good"), write(BAD, tmp_path / "bad")
    assert run(good) == (0, f"{good}: ok, 4 events\n")
    status, out = run(bad, good)
    assert status == 1
    assert out.splitlines() == [
        f"{bad}: violated E14, 10 events",
        "  E14",
        "    n1 step 40: sends a (agreed) in r",
        "    n2 step 30: installs regular r {n1, n2}",
        "    n2 step 40: end, and it has not delivered a",
        f"{good}: ok, 4 events",
    ]


def test_json(tmp_path, run):
    good, bad = write(GOOD, tmp_path / "good"), write(BAD, tmp_path / "bad")
    status, out = run("--json", good)
    assert status == 0
    assert json.loads(out) == {"verdict": "ok", "events": 4, "violations": []}
    status, out = run(bad, "--json")
    assert status == 1
    result = json.loads(out)
    assert result["verdict"] == "violated"
    assert [violation["property"] for violation in result["violations"]] == ["E14"]
    assert result["violations"][0]["evidence"][0] == "n1 step 40: sends a (agreed) in r"


def test_json_of_several(tmp_path, run):
    good, bad = write(GOOD, tmp_path / "good"), write(BAD, tmp_path / "bad")
    status, out = run(good, bad, "--json")
    result = json.loads(out)
    assert status == 1
    assert result["verdict"] == "violated"
    assert result["events"] == 14
    assert [violation["property"] for violation in result["violations"]] == ["E14"]
    assert [(each["trace"], each["verdict"]) for each in result["traces"]] == [
        (str(good), "ok"),
        (str(bad), "violated"),
    ]


def test_help_has_an_example(capsys):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    with pytest.raises(SystemExit) as stopped:
        parser.parse_args(["check", "--help"])
    assert stopped.value.code == 0
    assert "example:" in capsys.readouterr().out


@pytest.mark.parametrize("text_type", ["string", "large_string", "dictionary"])
@pytest.mark.parametrize("trace", [GOOD, BAD])
def test_parquet_says_the_same(text_type, trace, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    kinds = {"string": pa.string(), "large_string": pa.large_string()}
    kinds["dictionary"] = pa.dictionary(pa.int32(), pa.string())
    text = kinds[text_type]
    names = ("node", "event", "conf", "kind", "msg", "sender", "service")
    schema = pa.schema([("step", pa.int64()), ("members", pa.list_(pa.string())), *((name, text) for name in names)])
    lines = write(trace, tmp_path / "jsonl")
    rows = tmp_path / "parquet"
    rows.mkdir()
    for node, events in trace.items():
        pyarrow.parquet.write_table(pa.Table.from_pylist(events, schema), rows / f"{node}.parquet")
    assert check_trace(rows) == check_trace(lines)
