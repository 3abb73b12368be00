"""The directory of a campaign: what it is of, and a Parquet file for each range of seeds that is finished.

    DIR/campaign.json               engine and options, and a fingerprint of the code that is run
    DIR/results/FIRST-END.parquet   a row a seed; written by the task that ran the range, whole or not at all
    DIR/failures.jsonl              the seeds that violated something, with the command that replays each
    DIR/summary.json                what came of all of it

The last two are made anew at the end of each run. Seeds are what counts, not files: a campaign that goes on, with more
seeds or other tasks, runs the seeds that no file has.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.sim.campaign import Campaign, Summary
from ordercast.sim.runner import Result, Violation
from ordercast.spark.errors import SparkError

_COUNTS = pa.map_(pa.string(), pa.int64())
SCHEMA = pa.schema(
    [
        ("seed", pa.int64()),
        ("nodes", pa.int32()),
        (
            "violations",
            pa.list_(pa.struct([("property", pa.string()), ("evidence", pa.list_(pa.string()))])),
        ),
        ("trace_hash", pa.string()),
        *((name, pa.int64()) for name in ("events", "deliveries", "views", "messages", "held_back", "virtual_us")),
        ("run_s", pa.float64()),
        ("check_s", pa.float64()),
        *((name, _COUNTS) for name in ("faults", "expectations", "cells", "exercised")),
    ]
)
_MAPS = ("faults", "expectations", "cells", "exercised")
_NAME = re.compile(r"(\d+)-(\d+)\.parquet")
_CODE = ("check", "corel", "engine", "log", "redundancy", "sim", "wire")
"""The rooms on which a run depends."""
_CODE_KEY = b"ordercast.code"


@cache
def fingerprint() -> str:
    """Of the code that decides what a seed does, and of nothing else: results of different code are not mixed."""
    digest = blake2b(digest_size=8)
    root = Path(str(files("ordercast")))
    for room in _CODE:
        for path in sorted((root / room).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class Store:
    """Plain data beside its directory, so that tasks can have it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._results = self.directory / "results"

    def begin(self, campaign: Campaign) -> None:
        """Makes the directory, or sees that what it holds is of the same campaign and the same code."""
        identity = {**asdict(campaign), "code": fingerprint()}
        path = self.directory / "campaign.json"
        if path.exists():
            try:
                found = json.loads(path.read_text())
            except ValueError:
                raise SparkError(f"{path} is no description of a campaign: use another --out") from None
            if found != identity:
                differing = sorted(name for name in identity if not isinstance(found, dict) or
                                   found.get(name) != identity[name])  # fmt: skip
                raise SparkError(f"{self.directory} holds another campaign ({', '.join(differing)} differ): "
                                 "use another --out")  # fmt: skip
        self._results.mkdir(parents=True, exist_ok=True)
        _write(path, json.dumps(identity) + "\n")

    def ranges(self) -> dict[Path, range]:
        """The finished ranges of seeds."""
        found: dict[Path, range] = {}
        with os.scandir(self._results) as entries:
            for entry in entries:
                if name := _NAME.fullmatch(entry.name):
                    found[Path(entry.path)] = range(int(name[1]), int(name[2]))
        return found

    def write(self, seeds: range, results: Iterable[Result]) -> None:
        """Called by tasks. A range that is run again is written again, with the same results."""
        rows = [_row(result) for result in results]
        table = pa.Table.from_pylist(rows, SCHEMA).replace_schema_metadata({_CODE_KEY: fingerprint().encode()})
        path = self._results / f"{seeds.start:012}-{seeds.stop:012}.parquet"
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        pq.write_table(table, temporary, compression="zstd")
        temporary.replace(path)

    def read(self, path: Path) -> Iterator[Result]:
        try:
            table = pq.read_table(path)
        except pa.ArrowException as error:
            raise SparkError(f"{path} cannot be read: {error}. Remove it, and its seeds are run again") from None
        code = (table.schema.metadata or {}).get(_CODE_KEY, b"").decode()
        if code != fingerprint():
            raise SparkError(f"{path} was made by other code than is installed here: install the same on all workers")
        return map(_result, table.to_pylist())

    def finish(self, campaign: Campaign, summary: Summary) -> None:
        lines = [json.dumps(failure) + "\n" for failure in failures(campaign, summary)]
        _write(self.directory / "failures.jsonl", "".join(lines))
        _write(self.directory / "summary.json", json.dumps(summary.as_json(), indent=1) + "\n")


def failures(campaign: Campaign, summary: Summary) -> list[dict[str, object]]:
    """The seeds that violated something, and how to see it again."""
    properties: dict[int, list[str]] = {}
    for seed, name, _ in sorted(summary.failed):
        properties.setdefault(seed, []).append(name)
    return [{"seed": seed, "properties": names, "replay": campaign.replay(seed)} for seed, names in properties.items()]


def _row(result: Result) -> dict[str, Any]:
    row = asdict(result)
    for name in _MAPS:
        row[name] = list(row[name].items())
    return row


def _result(row: dict[str, Any]) -> Result:
    for name in _MAPS:
        row[name] = dict(row[name])
    violations = [Violation(each["property"], tuple(each["evidence"])) for each in row.pop("violations")]
    return Result(violations=violations, **row)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
