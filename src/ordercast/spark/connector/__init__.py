"""`format("ordercast")` of Spark: the ordered log of a group as a table and a stream, and a sink into the group.

`options` reads what the user said, `logs` opens what it names, `columns` makes Arrow batches of chunks, `table` and
`stream` are the readers, `datasource` is what Spark is given.
"""
