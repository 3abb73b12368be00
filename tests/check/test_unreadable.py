"""What cannot be read is refused with one line and status 2, never passed."""

from __future__ import annotations

import argparse
import json
import re
import sys

import pytest

from check.notation import parse, write
from ordercast.check import Conf, Deliver, TraceError, check_events, check_trace
from ordercast.cli import check as command

CONF = '{"node":"n1","step":1,"event":"conf","conf":"s1","kind":"regular","members":["n1"]}\n'
SEND = '{"node":"n1","step":2,"event":"send","msg":"a","conf":"s1","service":"agreed"}\n'

LINES = {
    "an event that is not in the table": '{"node":"n1","step":2,"event":"delivered"}\n',
    "no event": '{"node":"n1","step":2}\n',
    "an event that is no text": '{"node":"n1","step":2,"event":7}\n',
    "no node": '{"step":2,"event":"close"}\n',
    "no step": '{"node":"n1","event":"close"}\n',
    "no step in an extra event": '{"node":"n1","event":"x-state"}\n',
    "a missing field": '{"node":"n1","step":2,"event":"send","msg":"a","conf":"s1"}\n',
    "a missing field of corel": '{"node":"n1","step":2,"event":"order","msg":"a"}\n',
    "a missing field of mtp": '{"node":"n1","step":2,"event":"reject"}\n',
    "a mistyped field of corel": '{"node":"n1","step":2,"event":"colour","msg":"a","colour":"blue"}\n',
    "a step that is a boolean": '{"node":"n1","step":true,"event":"close"}\n',
    "a step that is a float": '{"node":"n1","step":2.0,"event":"close"}\n',
    "a step that is a text": '{"node":"n1","step":"2","event":"close"}\n',
    "a step beyond all counting": '{"node":"n1","step":99999999999999999999,"event":"send","msg":"a","conf":"s1",'
    '"service":"agreed"}\n',
    "a number that is a boolean": CONF.replace('"members"', '"number":true,"members"').replace(":1,", ":2,"),
    "a number that is null": CONF.replace('"members"', '"number":null,"members"').replace(":1,", ":2,"),
    "members that are no list": CONF.replace('["n1"]', '"n1"').replace(":1,", ":2,"),
    "members that are no texts": CONF.replace('["n1"]', "[1]").replace(":1,", ":2,"),
    "another kind": CONF.replace("regular", "primary").replace(":1,", ":2,"),
    "another service": SEND.replace("agreed", "causal"),
    "a step that stands still": SEND.replace(":2,", ":1,"),
    "a step that goes back": SEND.replace(":2,", ":0,"),
    "a step that goes back in an extra event": '{"node":"n1","step":1,"event":"x-state"}\n',
    "another node": SEND.replace('"n1"', '"n2"'),
    "a member without a file": CONF.replace('["n1"]', '["n1","n2"]').replace(":1,", ":2,"),
    "a torn line": SEND[:-20],
    "a torn line that is whole JSON": SEND[:-1],
    "an empty line": "\n",
    "no JSON": "deliver a\n",
    "no object": "[1]\n",
    "two objects on a line": SEND[:-1] + SEND,
    "a nest too deep": '{"node":"n1","step":2,"event":"close","x":' + "[" * 100_000 + "\n",
}


def refused(capsys, *arguments):
    """Status 2, nothing on stdout, one line on stderr: returns the line."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["check", *map(str, arguments)])
    assert args.run(args) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.endswith("\n")
    return output.err


@pytest.mark.parametrize("name", LINES)
def test_line_is_refused_and_named(name, tmp_path, capsys):
    (tmp_path / "n1.jsonl").write_text(CONF + LINES[name])
    message = refused(capsys, tmp_path)
    wanted = "n1.jsonl: a step" if name == "a step beyond all counting" else "n1.jsonl, line 2: "
    assert wanted in message
    assert len(message) < 300


def test_bytes_that_are_no_text(tmp_path, capsys):
    (tmp_path / "n1.jsonl").write_bytes(CONF.encode().replace(b"s1", b"\xff\xfe"))
    assert "line 1: " in refused(capsys, tmp_path)


def test_a_torn_line_is_called_so(tmp_path, capsys):
    (tmp_path / "n1.jsonl").write_text(CONF + SEND[:-20])
    assert "line 2: a torn line" in refused(capsys, tmp_path)


def test_a_file_in_the_middle_of_the_reading(tmp_path, capsys):
    write(parse("n1: s1=n1 close\nn2: s2=n2 close"), tmp_path)
    (tmp_path / "n3.jsonl").mkdir()
    assert "n3.jsonl: " in refused(capsys, tmp_path)


def test_no_files(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("n1")
    assert "an empty trace" in refused(capsys, tmp_path)


def test_no_events(tmp_path, capsys):
    (tmp_path / "n1.jsonl").write_text("")
    assert "an empty trace" in refused(capsys, tmp_path)


def test_no_directory(tmp_path, capsys):
    assert "no such directory" in refused(capsys, tmp_path / "nowhere")
    (tmp_path / "n1.jsonl").write_text(CONF)
    assert "not a directory" in refused(capsys, tmp_path / "n1.jsonl")


def test_two_files_of_one_node(tmp_path, capsys):
    (tmp_path / "n1.jsonl").write_text(CONF)
    (tmp_path / "n1.parquet").write_text("")
    assert re.search(r"n1\.parquet: .*n1\.jsonl", refused(capsys, tmp_path))


def test_a_line_break_in_a_name_stays_in_one_line(tmp_path, capsys):
    (tmp_path / "n1.jsonl").write_text(CONF.replace('["n1"]', '["n\\n2"]'))
    refused(capsys, tmp_path)


def test_one_unreadable_trace_among_several(tmp_path, capsys):
    good = write(parse("n1: s1=n1 close"), tmp_path / "good")
    assert "nowhere" in refused(capsys, tmp_path / "nowhere", good, "--json")


def test_parquet_that_cannot_be_read(tmp_path, capsys):
    pytest.importorskip("pyarrow")
    (tmp_path / "n1.parquet").write_bytes(b"PAR1 and no more")
    assert "n1.parquet: " in refused(capsys, tmp_path)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"node": ["n1"], "step": [1]}, "no column 'event'"),
        ({"node": ["n1"], "step": [1.5], "event": ["close"]}, "column 'step' is double, not integer"),
        ({"node": ["n1"], "step": [True], "event": ["close"]}, "column 'step' is bool, not integer"),
        ({"node": [1], "step": [1], "event": ["close"]}, "column 'node' is int64, not text"),
        ({"node": ["n1"], "step": [1], "event": ["conf"], "members": ["n1"]}, "column 'members' is string"),
        ({"node": ["n1"], "step": [1], "event": ["group"], "members": [["n1", None]]}, "row 1: "),
        ({"node": ["n1"], "step": [1], "event": ["conf"]}, "row 1: event 'conf': "),
        ({"node": ["n1", "n1"], "step": [1, None], "event": ["close", "close"]}, "row 2: "),
        ({"node": ["n1", "n1"], "step": [1, 1], "event": ["x-a", "close"]}, "row 2: step 1 does not grow"),
        ({"node": ["n2"], "step": [1], "event": ["close"]}, "row 1: an event of node 'n2'"),
    ],
)
def test_parquet_with_the_wrong_content(columns, problem, tmp_path, capsys):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "n1.parquet")
    assert problem in refused(capsys, tmp_path)


def test_parquet_without_pyarrow(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "n1.parquet").write_bytes(b"")
    assert "ordercast[parquet]" in refused(capsys, tmp_path)


def test_events_in_memory():
    with pytest.raises(TraceError, match="node n1, event 1: event 'conf': "):
        check_events({"n1": [{"node": "n1", "step": 1, "event": "conf"}]})
    with pytest.raises(TraceError, match="member 'n2' of 'r' has no file"):
        check_events({"n1": [Conf("n1", 1, "r", "regular", ("n1", "n2"))]})
    with pytest.raises(TraceError, match="event 2: step 1 does not grow"):
        check_events({"n1": [Deliver("n1", 1, "a", "n1", "r", "safe"), Deliver("n1", 1, "a", "n1", "r", "safe")]})
    with pytest.raises(TraceError, match="empty trace"):
        check_events({})
    with pytest.raises(TraceError, match="empty trace"):
        check_events({"n1": []})


OTHERS = [
    {"event": "x-reason", "because": [1, 2]},
    {"event": "group", "members": ["n1", "n7"]},
    {"event": "queue", "msg": "a", "pos": 0},
    {"event": "order", "msg": "a", "pos": 0, "more": None},
    {"event": "colour", "msg": "a", "colour": "green"},
    {"event": "durable", "msg": "a"},
    {"event": "acknowledged", "msg": "a"},
    {"event": "primary", "number": 1, "members": ["n1"]},
    {"event": "primary", "number": 1, "members": ["n1"], "learned": True},
    {"event": "reject", "msg": "a"},
    {"event": "x-last"},
]


def test_events_of_corel_and_mtp_mean_nothing_to_e1_to_e14(tmp_path):
    fields = [{"event": "conf", "conf": "s1", "kind": "regular", "members": ["n1"], "ring": 4}, *OTHERS]
    events = [{"node": "n1", "step": step, **each} for step, each in enumerate(fields)]
    trace = {"n1": [*events, {"node": "n1", "step": 99, "event": "end"}, {"node": "n1", "step": 100, "event": "x-z"}]}
    found = {violation.property for violation in check_trace(write(trace, tmp_path)).violations}
    assert found == {"C8", "C9"}  # half of the declared group, and a message that nobody sent
    assert check_events(trace).events == len(OTHERS) + 3


def test_other_files_are_left_alone(tmp_path):
    write(parse("n1: s1=n1 close"), tmp_path)
    (tmp_path / "seed.json").write_text("7")
    (tmp_path / ".n2.jsonl.tmp").write_text(json.dumps({}))
    assert check_trace(tmp_path).ok
