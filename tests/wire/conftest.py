"""Puts `wire_samples` on the path, and sets Hypothesis to the same examples in every run."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("ordercast", derandomize=True, deadline=None, database=None, max_examples=100)
settings.load_profile("ordercast")
