"""Measurements: groups under load, the machine's own limit, and other systems beside them.

`run` starts a group of `node` processes on `hosts` and gathers what they count; `limit` and `disk` measure what the
machine could do without a protocol; `peers` runs other systems under the same load; `report` sums repeated runs up.
"""
