"""ordercast: total order, membership and extended virtual synchrony for groups of Python processes."""

__version__ = "0.1.0"
