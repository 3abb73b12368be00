"""`ordercast log`: what it prints, what it writes, and its exit status."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from cli.processes import error_line, ordercast
from ordercast.events import encode_headers
from ordercast.log import Entry, LogWriter, ViewRecord
from ordercast.log.files import DiskFiles
from ordercast.wire.chunk import Stamp, make_body, make_chunk

BODIES = [b"plain", "two\u2028lines".encode(), b"\xff\x00", b'quo"te']
NOON_US = 1_763_553_600_000_000
"""2025-11-19T12:00:00Z."""


def make_log(directory: Path, member: str = "n1", chunks: int = 50) -> LogWriter:
    log = LogWriter(DiskFiles(directory / "log"), group="orders", member=member, segment_bytes=4096)
    log.append(Entry(view=ViewRecord(0, "4:n1", ("n1", "n2"), True, 1)))
    for number in range(chunks):
        body = make_body(BODIES, [b"k", None, None, None], [None, encode_headers([("h", b"v")]), None, None])
        stamp_us = NOON_US + 1_000_000 * number
        log.append(Entry((make_chunk("n1", 1 + 4 * number, stamp_us, Stamp(4, "4:n1", number), body),)))
        log.append(Entry(green=log.end))
    log.commit()
    return log


def rows(output: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.split(b"\n")[:-1]]


def test_ls_and_info(tmp_path):
    log = make_log(tmp_path)
    log.append(Entry((make_chunk("n2", 1, 0, Stamp(4, "4:n1", 99), make_body([b"waits"] * 3)),)))
    log.commit()
    segments = json.loads(ordercast("log", "ls", tmp_path, "--json").stdout)["segments"]
    assert segments[0]["first"] == 0
    assert segments[-1]["end"] == 200
    assert [each["sealed"] for each in segments] == [True] * (len(segments) - 1) + [False]
    text = ordercast("log", "ls", tmp_path / "log").stdout.decode().splitlines()
    assert len(text) == len(segments) + 1
    info = json.loads(ordercast("log", "info", tmp_path, "--json").stdout)
    assert (info["group"], info["member"], info["earliest"], info["end"]) == ("orders", "n1", 0, 200)
    assert (info["waiting"], info["segments"]) == (3, len(segments))
    assert info["view"] == {"id": "4:n1", "members": ["n1", "n2"], "primary": True}
    assert "offsets 0 to 200" in ordercast("log", "info", tmp_path).stdout.decode()


def test_read_by_offset_and_time(tmp_path):
    make_log(tmp_path)
    found = rows(ordercast("log", "read", tmp_path).stdout)
    assert [row["offset"] for row in found] == list(range(200))
    assert found[0] == {
        "event": "message",
        "sender": "n1",
        "seq": 1,
        "view": "4:n1",
        "service": "agreed",
        "offset": 0,
        "timestamp_us": NOON_US,
        "data": "plain",
        "key": "k",
    }
    assert found[1]["data"] == "two\u2028lines"
    assert found[1]["headers"] == [{"name": "h", "value": "v"}]
    assert found[2]["data_base64"] == "/wA="
    cases = {
        ("--from", "7", "--to", "11"): range(7, 11),
        ("--from", "earliest", "--count", "3"): range(3),
        ("--from", "latest"): range(0),
        ("--since", "2025-11-19T12:00:10"): range(40, 200),
        ("--since", "2025-11-19T13:00:09.5+01:00", "--count", "1"): range(40, 41),
    }
    for options, offsets in cases.items():
        result = ordercast("log", "read", tmp_path, *options)
        assert [row["offset"] for row in rows(result.stdout)] == list(offsets), options
        assert result.returncode == 0
    first = rows(ordercast("log", "read", tmp_path, "--views", "--count", "1").stdout)[0]
    assert (first["event"], first["view"], first["primary"], first["offset"]) == ("view", "4:n1", True, 0)


def test_read_follows_until_it_is_interrupted(tmp_path, start):
    log = make_log(tmp_path, chunks=1)
    reader = start("log", "read", tmp_path, "--follow")
    reader.wait_for(lambda: len(reader.lines) == 4)
    for number in range(60):
        body = make_body([b"%d" % number])
        log.append(Entry((make_chunk("n2", 1 + number, 0, Stamp(4, "4:n1", 5 + number), body),), green=None))
        log.append(Entry(green=log.end))
        log.commit()
    reader.wait_for(lambda: len(reader.lines) == 64)
    assert [message["data"] for message in reader.messages[4:]] == [str(number) for number in range(60)]
    reader.signal(signal.SIGINT)
    assert (reader.wait(), reader.errors) == (0, [])


def test_verify_and_repair(tmp_path):
    make_log(tmp_path / "a", "a").close()
    make_log(tmp_path / "b", "b").close()
    verdict = json.loads(ordercast("log", "verify", tmp_path / "a", "--json").stdout)
    assert (verdict["verdict"], verdict["damages"]) == ("ok", [])
    path = sorted((tmp_path / "a" / "log").glob("*.seg"))[1]
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    result = ordercast("log", "verify", tmp_path / "a")
    assert result.returncode == 1
    (line,) = result.stdout.decode().splitlines()
    assert f"{path.name}: damaged at byte" in line
    assert json.loads(ordercast("log", "verify", tmp_path / "a", "--json").stdout)["verdict"] == "damaged"
    read = ordercast("log", "read", tmp_path / "a")
    assert read.returncode == 1
    assert "damaged at byte" in read.stderr.decode()
    assert 0 < len(rows(read.stdout)) < 200
    done = json.loads(ordercast("log", "repair", tmp_path / "a", "--from-log", tmp_path / "b", "--json").stdout)
    assert [each["segment"] for each in done["repaired"]] == [path.name]
    assert ordercast("log", "verify", tmp_path / "a").returncode == 0
    assert len(rows(ordercast("log", "read", tmp_path / "a").stdout)) == 200


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl"])
def test_export(tmp_path, name):
    make_log(tmp_path)
    path = tmp_path / name
    done = json.loads(ordercast("log", "export", tmp_path, path, "--from", "8", "--json").stdout)
    assert (done["messages"], done["first"], done["end"]) == (192, 8, 200)
    assert done["bytes"] == path.stat().st_size
    if name.endswith("parquet"):
        table = parquet.read_table(path)
        assert table["offset"].to_pylist() == list(range(8, 200))
        assert table["value"].to_pylist()[:4] == BODIES
        assert table["timestamp_us"].to_pylist()[-1] == NOON_US + 49_000_000
    else:
        assert path.read_bytes() == ordercast("log", "read", tmp_path, "--from", "8").stdout
    assert "is there already" in error_line(ordercast("log", "export", tmp_path, path))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(["log", name])


def test_export_of_a_damaged_log_leaves_no_file(tmp_path):
    make_log(tmp_path).close()
    path = sorted((tmp_path / "log").glob("*.seg"))[1]
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    result = ordercast("log", "export", tmp_path, tmp_path / "out.jsonl")
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]


BAD = {
    "no action": ((), "ACTION"),
    "no log": (("ls", "/nowhere"), "there is no log here"),
    "no offset": (("read", "LOG", "--from", "soon"), "'soon' is no offset"),
    "no time": (("read", "LOG", "--since", "soon"), "'soon' is no time"),
    "backwards": (("read", "LOG", "--from", "9", "--to", "3"), "nothing lies"),
    "unknown format": (("export", "LOG", "x", "--format", "xml"), "xml"),
    "no such folder": (("export", "LOG", "/nowhere/x"), "/nowhere"),
    "parquet on the output": (("export", "LOG", "-", "--format", "parquet"), "only JSON lines"),
    "repair from nothing": (("repair", "LOG"), "--from-log"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case, tmp_path):
    make_log(tmp_path, chunks=2)
    arguments, reason = BAD[case]
    line = error_line(ordercast("log", *[tmp_path if word == "LOG" else word for word in arguments]))
    assert reason in line


def test_times_are_utc():
    assert datetime.fromtimestamp(NOON_US / 1e6, UTC).isoformat() == "2025-11-19T12:00:00+00:00"
