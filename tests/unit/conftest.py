"""The same examples in every run."""

from hypothesis import settings

settings.register_profile("ordercast", derandomize=True, deadline=None, database=None, max_examples=100)
settings.load_profile("ordercast")
