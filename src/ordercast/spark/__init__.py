"""The pipeline on Apache Spark: sessions, the jobs, and what they share.

Importing this package does not import PySpark: everything that the command line asks before a session exists works
without it, and says what is missing.
"""
