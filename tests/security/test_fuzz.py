"""Authenticate before parsing: a short run of the fuzzer; `python -m tests.security.fuzz` is the long one."""

from __future__ import annotations

from .fuzz import REFUSED, Fuzz


def test_fuzzed_packets_crash_nothing_and_open_nothing() -> None:
    result = Fuzz(seed=7).run(50_000)
    assert result["failures"] == []
    assert result["packets"] == 50_000
    counts = result["counts"]
    assert isinstance(counts, dict)
    assert counts["sealed mutants"] == 25_000
    assert sum(counts[f"guard {name}"] for name in REFUSED) > 20_000
    assert counts["engine malformed"] > 20_000
