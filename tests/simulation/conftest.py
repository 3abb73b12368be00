"""Puts the engines of these tests, `toy` and `probe`, on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
