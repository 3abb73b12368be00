"""The durable ordered log: segments of checksummed frames that hold chunks of messages in their global order.

`frame` is the layout, `index` says what of a segment is live, `files` is all that the log asks of a file system,
`writer` appends and recovers, `committer` syncs groups of entries in a thread, `reader` reads, follows and verifies.
The format is described in docs/log.md.
"""

from ordercast.log.entry import Entry, ViewRecord
from ordercast.log.reader import LogBatch, LogReader, find_log
from ordercast.log.writer import LogWriter, Recovered, Retention

__all__ = ["Entry", "LogBatch", "LogReader", "LogWriter", "Recovered", "Retention", "ViewRecord", "find_log"]
