"""What can go wrong before a job runs."""

from __future__ import annotations

import re

from ordercast.errors import GroupError

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt)?: ")
_QUERY = re.compile(r"terminated with exception: (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_OURS = re.compile(r"\bordercast\.[\w.]+: (.+)")


class SparkError(GroupError):
    """A job of the pipeline cannot do what was asked; the message is one clear line that says what to do."""


class NoJava(SparkError):
    """There is no Java that Spark can run on."""


class NoSpark(SparkError):
    """PySpark is not installed."""


def reason(error: Exception) -> str:
    """One line of what Spark says when a task fails: its last exception, not the way through Java and Python."""
    lines = [line for line in str(error).splitlines() if _EXCEPTION.match(line)]
    return lines[-1] if lines else (str(error).strip().splitlines() or [type(error).__name__])[0]


def plain(error: Exception) -> str:
    """The same, and of an error of this package its words alone."""
    ours = _OURS.findall(str(error))
    query = _QUERY.search(str(error))
    return ours[-1] if ours else query[1] if query else reason(error)
