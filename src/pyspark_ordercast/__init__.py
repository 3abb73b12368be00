"""Spark looks through the path for packages of this kind and registers what they call DefaultSource."""

from ordercast.spark.connector.datasource import OrdercastSource as DefaultSource

__all__ = ["DefaultSource"]
