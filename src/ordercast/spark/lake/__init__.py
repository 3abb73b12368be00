"""The lake: tables of Parquet from an ordered log and from traces. docs/spark.md describes them for their readers.

`store` is the folder and its one atomic step; `raw`, `rates`, `gaps`, `views` and `traces` make tables and know nothing
of Spark; `job` runs them on it.
"""
