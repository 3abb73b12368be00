"""What the user of the source said: Kafka's names, checked before anything is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ordercast.errors import GroupError
from ordercast.serve.client import Address
from ordercast.serve.server import parse_server
from ordercast.spark.errors import SparkError

EARLIEST, LATEST = -2, -1
"""As Kafka writes them in JSON."""
PARTITION_BYTES = 32 * 2**20
"""Of the log, about so much is read by one task."""
MAX_TRIGGER_DELAY_S = 15 * 60
"""A batch smaller than minOffsetsPerTrigger waits at most so long; Kafka's default."""

_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
KNOWN = {
    name.lower(): name
    for name in (
        "path", "servers", "subscribe", "key", "insecure", "startingOffsets", "endingOffsets", "startingTimestamp",
        "endingTimestamp", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
        "failOnDataLoss", "includeHeaders", "includeViews", "pushFilters",
    )
}  # fmt: skip
SINK_KNOWN = {name.lower(): name for name in ("servers", "key", "insecure", "txnAppId", "txnVersion")}
_SPARK_S_OWN = {"checkpointlocation", "queryname", "path"}
"""Options that Spark hands on although they are for itself."""
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_TABLE_ONLY = ("endingOffsets", "endingTimestamp", "pushFilters")


@dataclass(frozen=True)
class SourceOptions:
    """All options of a reader, with their defaults."""

    path: str | None
    servers: tuple[Address, ...]
    subscribe: str | None
    key: str | None
    insecure: bool
    start: int
    """An offset, EARLIEST or LATEST."""
    end: int
    start_us: int | None
    end_us: int | None
    max_rows: int | None
    min_rows: int | None
    max_delay_s: float
    min_partitions: int
    fail_on_data_loss: bool
    headers: bool
    views: bool
    push_filters: bool


def read_options(given: Mapping[str, str], mode: Literal["table", "stream"]) -> SourceOptions:
    """SparkError if an option is unknown, misplaced or has a value that cannot be."""
    options = _Given(given)
    options.refuse_unknown(KNOWN, _STREAM_ONLY if mode == "table" else _TABLE_ONLY, mode)
    path, servers = options.text("path"), options.text("servers")
    if (path is None) == (servers is None):
        raise SparkError("one of the options path (a log's folder) and servers (HOST:PORT,…) is needed")
    subscribe = options.text("subscribe")
    if subscribe is not None and "," in subscribe:
        raise SparkError(f"option subscribe: a source reads one group, not '{subscribe}'; make one for each and union")
    start = options.offset("startingOffsets", "earliest" if mode == "table" else "latest", subscribe)
    end = options.offset("endingOffsets", "latest", subscribe)
    if mode == "table" and start == LATEST:
        raise SparkError("option startingOffsets: a table cannot begin with latest")
    if end == EARLIEST:
        raise SparkError("option endingOffsets: a table cannot end with earliest")
    max_rows, min_rows = options.count("maxOffsetsPerTrigger"), options.count("minOffsetsPerTrigger")
    if max_rows is not None and min_rows is not None and min_rows > max_rows:
        raise SparkError(f"option minOffsetsPerTrigger: {min_rows} is more than maxOffsetsPerTrigger, {max_rows}")
    return SourceOptions(
        path=path,
        servers=() if servers is None else parse_servers(servers),
        subscribe=subscribe,
        key=options.text("key"),
        insecure=options.flag("insecure", False),
        start=start,
        end=end,
        start_us=options.milliseconds("startingTimestamp"),
        end_us=options.milliseconds("endingTimestamp"),
        max_rows=max_rows,
        min_rows=min_rows,
        max_delay_s=options.duration("maxTriggerDelay", MAX_TRIGGER_DELAY_S),
        min_partitions=options.count("minPartitions") or 1,
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        headers=options.flag("includeHeaders", False),
        views=options.flag("includeViews", False),
        push_filters=options.flag("pushFilters", False),
    )


@dataclass(frozen=True)
class SinkOptions:
    """All options of a writer, with their defaults."""

    servers: tuple[Address, ...]
    key: str | None
    insecure: bool
    app: str | None
    version: int


def sink_options(given: Mapping[str, str], mode: Literal["table", "stream"]) -> SinkOptions:
    """SparkError if an option is unknown, misplaced or has a value that cannot be."""
    options = _Given(given)
    options.refuse_unknown(SINK_KNOWN, ("txnVersion",) if mode == "stream" else (), mode)
    servers = options.text("servers")
    if servers is None:
        raise SparkError("option servers is needed: HOST:PORT,… of members that serve their log")
    version = options.text("txnVersion")
    if version is not None:
        if options.text("txnAppId") is None:
            raise SparkError("option txnVersion counts the writes of an application: name it with txnAppId")
        if not version.isascii() or not version.isdecimal():
            raise SparkError(f"option txnVersion is a number from 0 on, not '{version}'")
    return SinkOptions(
        servers=parse_servers(servers),
        key=options.text("key"),
        insecure=options.flag("insecure", False),
        app=options.text("txnAppId"),
        version=int(version or 0),
    )


def parse_servers(text: str) -> tuple[Address, ...]:
    """`HOST:PORT,…`."""
    try:
        found = tuple(parse_server(part.strip()) for part in text.split(",") if part.strip())
    except GroupError as error:
        raise SparkError(f"option servers: {error}") from None
    if not found:
        raise SparkError("option servers is empty")
    return found


class _Given:
    """The options as text, under names whose case does not matter."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def refuse_unknown(self, known: Mapping[str, str], misplaced: tuple[str, ...], mode: str) -> None:
        for name in self._given:
            if name not in known and name not in _SPARK_S_OWN:
                raise SparkError(f"there is no option '{name}'. Options: {', '.join(known.values())}")
        for name in misplaced:
            if name.lower() in self._given:
                other = "stream" if mode == "table" else "table"
                raise SparkError(f"option {name} is for a {other}, not for a {mode}")

    def text(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        if value is not None and not value.strip():
            raise SparkError(f"option {name} is empty")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._given.get(name.lower())
        if value is None:
            return default
        if value.lower() in _TRUE | _FALSE:
            return value.lower() in _TRUE
        raise SparkError(f"option {name} is true or false, not '{value}'")

    def count(self, name: str) -> int | None:
        value = self._given.get(name.lower())
        if value is None:
            return None
        if not value.isascii() or not value.isdecimal() or int(value) < 1:
            raise SparkError(f"option {name} is a number from 1 on, not '{value}'")
        return int(value)

    def milliseconds(self, name: str) -> int | None:
        value = self._given.get(name.lower())
        if value is None:
            return None
        if not value.isascii() or not value.isdecimal():
            raise SparkError(f"option {name} is a time in milliseconds since 1970, not '{value}'")
        return int(value) * 1000

    def duration(self, name: str, default: float) -> float:
        value = self._given.get(name.lower())
        if value is None:
            return default
        number = value.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = value[len(number) :]
        if unit not in _UNITS or not number.isascii() or not number.isdecimal():
            raise SparkError(f"option {name} is a duration such as 500ms, 10s or 15m, not '{value}'")
        return int(number) * _UNITS[unit]

    def offset(self, name: str, default: str, group: str | None) -> int:
        """`earliest`, `latest`, a number, or Kafka's JSON {"GROUP": {"0": OFFSET}}."""
        value = (self._given.get(name.lower()) or default).strip()
        if value in ("earliest", "latest"):
            return EARLIEST if value == "earliest" else LATEST
        try:
            found = json.loads(value)
            if isinstance(found, dict):
                ((topic, partitions),) = found.items()
                if group is not None and topic != group:
                    raise SparkError(f"option {name} names the group '{topic}', subscribe '{group}'")
                ((partition, found),) = partitions.items()
                if partition != "0":
                    raise SparkError(f"option {name}: a group has one partition, 0, not '{partition}'")
        except (ValueError, AttributeError):
            found = None
        if type(found) is not int or found < EARLIEST:
            raise SparkError(
                f'option {name} is earliest, latest, an offset or {{"GROUP": {{"0": OFFSET}}}}, not \'{value}\''
            )
        return found
