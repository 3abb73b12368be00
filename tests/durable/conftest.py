from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from durable.party import Party


@pytest.fixture
def party(tmp_path: Path) -> Iterator[Party]:
    party = Party(tmp_path)
    yield party
    party.close()
