"""Verification at scale: E1 to E14 of traces that no single process reads, with the local checker's verdicts.

from ordercast.spark.verify.job import check_traces

verdicts = check_traces(spark, ["/data/trace"])
"""
