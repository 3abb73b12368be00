"""Publishing into a group, exactly once through its total order.

Tasks stage their rows at a member. When all have, the driver asks that member to publish them: one chunk, so one place
in the order, whose first message names application, query and number of the batch. A batch that the order has already
is not published again, whoever asks. Nothing is kept here between batches: each has a new writer.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from ordercast.errors import GroupError
from ordercast.events import encode_headers
from ordercast.serve import messages as m
from ordercast.serve.client import Address, Client
from ordercast.serve.stages import encode_rows
from ordercast.spark.connector.logs import group_key
from ordercast.spark.connector.options import SinkOptions
from ordercast.spark.errors import SparkError

PIECE_BYTES = 2**22
"""About so much is sent to the member at a time."""
TABLE_QUERY = "table"
"""Stands for the query of writes that belong to none."""

_TEXT = (BinaryType(), StringType())


def check_sink_schema(schema: StructType) -> None:
    """value, and optionally key, headers and topic, as Kafka's sink has them."""
    kinds = {field.name: field.dataType for field in schema}
    if "value" not in kinds:
        raise SparkError(f"the sink needs a column value (binary or string), not only {', '.join(kinds) or 'none'}")
    for name, kind in kinds.items():
        if name not in ("value", "key", "headers", "topic"):
            raise SparkError(f"the sink has no use for a column '{name}': it takes value, key, headers and topic")
        if not _fits(name, kind):
            wanted = "array<struct<key:string,value:binary>>" if name == "headers" else "binary or string"
            raise SparkError(f"column '{name}' must be {wanted}, not {kind.simpleString()}")


def _fits(name: str, kind: DataType) -> bool:
    if name != "headers":
        return kind in _TEXT and (name != "topic" or kind == StringType())
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    return [(field.name, field.dataType) for field in kind.elementType] == [
        ("key", StringType()),
        ("value", BinaryType()),
    ]


@dataclass
class Staged(WriterCommitMessage):
    """What one task has left at a member."""

    server: Address
    stages: list[str]
    rows: int
    query: str | None


class _Sink:
    """What both writers do."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def _client(self, servers: Sequence[Address] | None = None) -> Client:
        options = self._options
        return Client(servers or options.servers, group_key(options.key, options.insecure, options.servers))

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Runs on an executor, once for each attempt of a task."""
        client = self._client()
        staged = Staged(client.server, [], 0, _query())
        group = client.ask(m.Info(), m.Log).group
        staged.server = client.server
        waiting: list[Any] = []
        size = 0
        for batch in iterator:
            if batch.num_rows:
                _check_topics(batch, group)
                waiting.append(batch)
                size += batch.nbytes
            if size >= PIECE_BYTES:
                self._stage(client, staged, waiting)
                waiting, size = [], 0
        if waiting:
            self._stage(client, staged, waiting)
        client.close()
        return staged

    def _stage(self, client: Client, staged: Staged, batches: list[Any]) -> None:
        table = pa.Table.from_batches(batches)
        stage = uuid.uuid4().hex
        client.ask(m.Stage(stage), type(None), (_encode(table),))
        if client.server != staged.server:
            raise GroupError("the member with what was staged so far is gone")  # Spark tries the task again
        staged.stages.append(stage)
        staged.rows += table.num_rows

    def _commit(self, messages: list[WriterCommitMessage | None], app: str, query: str, number: int) -> None:
        """Runs beside the driver."""
        staged = [message for message in messages if isinstance(message, Staged) and message.rows]
        rows = sum(message.rows for message in staged)
        if not rows:
            return  # nothing to publish, and nothing to publish twice
        home = staged[0].server
        client = self._client([home])
        for message in staged:
            if message.server != home:
                self._move(message, client)
        batch = m.Batch(app, query, number, rows, uuid.uuid4().hex)
        client.ask(m.Commit(batch, tuple(stage for message in staged for stage in message.stages)), m.Committed)
        client.close()

    def _move(self, message: Staged, home: Client) -> None:
        """Tasks may have met different members; one of them publishes."""
        client = self._client([message.server])
        for stage in message.stages:
            _, rows = client.ask_for_bytes(m.Fetch(stage), type(None))
            home.ask(m.Stage(stage), type(None), (rows,))
        client.ask(m.Unstage(tuple(message.stages)), type(None))
        client.close()

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        for message in messages:
            if isinstance(message, Staged) and message.stages:
                client = self._client([message.server])
                client.ask(m.Unstage(tuple(message.stages)), type(None))
                client.close()


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """`writeStream.format("ordercast")`. The application is the query itself unless txnAppId names one."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        query = next((message.query for message in messages if isinstance(message, Staged) and message.query), None)
        if query is None:
            if any(isinstance(message, Staged) and message.rows for message in messages):
                raise SparkError("the tasks do not know which query they belong to: this version of Spark is too old")
            return
        self._commit(messages, self._options.app or query, query, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


class TableSink(_Sink, DataSourceArrowWriter):
    """`write.format("ordercast")`. A write with the same txnAppId and txnVersion as an earlier one does nothing."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._options.app or uuid.uuid4().hex, TABLE_QUERY, self._options.version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


def _query() -> str | None:
    """The query that the task belongs to: its identity in the checkpoint, the same after a restart."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("sql.streaming.queryId")


def _check_topics(batch: Any, group: str) -> None:
    if "topic" not in batch.schema.names:
        return
    strange = [topic for topic in pc.unique(batch.column("topic")).to_pylist() if topic != group]
    if strange:
        raise SparkError(f"column topic: the members are of the group '{group}', not of '{strange[0]}'")


def _encode(table: Any) -> bytes:
    """The rows of a table as columns of bytes, without work per row but for headers."""
    value = _bytes_of(table, "value")
    if value.null_count:
        raise SparkError(f"column value: {value.null_count} rows have none, and a message needs one")
    names = table.schema.names
    keys = _nullable(_bytes_of(table, "key")) if "key" in names else None
    headers = _nullable(_headers_of(table)) if "headers" in names else None
    return encode_rows(_columns(value), keys, headers)


def _bytes_of(table: Any, name: str) -> Any:
    return table.column(name).cast(pa.binary()).combine_chunks()


def _headers_of(table: Any) -> Any:
    """Headers are kept encoded, one cell a message."""
    cells = table.column("headers").to_pylist()
    return pa.array(
        [
            None if cell is None else encode_headers([(pair["key"], pair["value"] or b"") for pair in cell if pair])
            for cell in cells
        ],
        pa.binary(),
    )


def _columns(array: Any) -> tuple[bytes, bytes]:
    """Offsets from 0 on, and the bytes."""
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    _, offsets, blob = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    data = b"" if blob is None else memoryview(blob)[places[0] : places[-1]].tobytes()
    return (places - places[0]).astype(np.int32).tobytes(), data


def _nullable(array: Any) -> tuple[bytes, bytes, bytes] | None:
    """With a byte a row that says whether it has a value; None if none has."""
    if array.null_count == len(array):
        return None
    there = pc.is_valid(array).cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes()
    return there, *_columns(pc.fill_null(array, b""))
