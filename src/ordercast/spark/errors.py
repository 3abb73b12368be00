"""What can go wrong before a job runs."""

from __future__ import annotations

from ordercast.errors import GroupError


class SparkError(GroupError):
    """A job of the pipeline cannot do what was asked; the message is one clear line that says what to do."""


class NoJava(SparkError):
    """There is no Java that Spark can run on."""


class NoSpark(SparkError):
    """PySpark is not installed."""
