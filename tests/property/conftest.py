"""Puts the harness of the paper tests and the samples of packets on the path; the same examples in every run."""

import sys
from pathlib import Path

from hypothesis import settings

_TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(_TESTS / "paper"), str(_TESTS / "wire")]

settings.register_profile("ordercast", derandomize=True, deadline=None, database=None, max_examples=100)
settings.load_profile("ordercast")
