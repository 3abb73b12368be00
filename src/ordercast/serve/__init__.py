"""A member's log over the network, and the way into its group for jobs that are no members: TCP, with the group's key.

`channel` is the connection and its handshake, `messages` what is asked and answered, `stages` holds rows that are not
published yet, `batches` says which batches of a sink the log holds already, `server` runs at a member, `client` is the
other side. Nothing here needs Spark.
"""

from ordercast.serve.client import Client, RemoteLog
from ordercast.serve.server import LogServer, parse_server

__all__ = ["Client", "LogServer", "RemoteLog", "parse_server"]
