"""The command `ordercast` with more patience for the token, for tests that assert that no view changes: they must not
fail because a process waited half a second for its turn on a busy machine."""

from __future__ import annotations

import sys
from functools import partial

import ordercast.member
from ordercast.cli.main import main
from ordercast.engine.totem import TotemConfig

TOKEN_LOSS_US = 5_000_000

if __name__ == "__main__":
    setattr(ordercast.member, "TotemConfig", partial(TotemConfig, token_loss_timeout_us=TOKEN_LOSS_US))  # noqa: B010
    sys.exit(main())
