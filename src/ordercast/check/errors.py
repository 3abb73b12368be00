"""The one error of the checker."""

from __future__ import annotations


class TraceError(Exception):
    """The trace cannot be read. The message is one line that names the file, the line and the problem."""
