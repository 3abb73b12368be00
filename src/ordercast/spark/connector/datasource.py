"""What Spark is given under the name `ordercast`."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ordercast.spark.connector.columns import check_schema, full_schema
from ordercast.spark.connector.options import read_options, sink_options
from ordercast.spark.errors import SparkError


class OrdercastSource(DataSource):
    """Imports what it needs when it needs it: Spark loads this in a new process for every question."""

    @classmethod
    def name(cls) -> str:
        return "ordercast"

    def schema(self) -> StructType:
        return full_schema(str(self.options.get("includeHeaders", "")).lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        from ordercast.spark.connector.table import PushingTableReader, TableReader

        options = read_options(self.options, "table")
        kind = PushingTableReader if options.push_filters else TableReader
        return kind(check_schema(schema, options.headers), options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ordercast.spark.connector.stream import StreamReader

        options = read_options(self.options, "stream")
        return StreamReader(check_schema(schema, options.headers), options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ordercast.spark.connector.sink import TableSink, check_sink_schema

        if overwrite:
            raise SparkError("a log is only ever appended to: use mode('append')")
        check_sink_schema(schema)
        return TableSink(sink_options(self.options, "table"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ordercast.spark.connector.sink import StreamSink, check_sink_schema

        if overwrite:
            raise SparkError("a log is only ever appended to: use outputMode('append')")
        check_sink_schema(schema)
        return StreamSink(sink_options(self.options, "stream"))
