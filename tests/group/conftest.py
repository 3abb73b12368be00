from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.group.party import TOKEN_LOSS_US, Party

import ordercast.member
from ordercast.engine.totem import TotemConfig


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of this process that do not take one that waits for its turn for lost."""
    monkeypatch.setattr(ordercast.member, "TotemConfig", partial(TotemConfig, token_loss_timeout_us=TOKEN_LOSS_US))


@pytest.fixture
def party(tmp_path: Path) -> Iterator[Party]:
    party = Party(tmp_path)
    try:
        yield party
    finally:
        party.close()
    party.check()
