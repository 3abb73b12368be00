"""What Spark is given under the name `ordercast`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ordercast.spark.connector.columns import check_schema, full_schema
from ordercast.spark.connector.options import read_options


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
