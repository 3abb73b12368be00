"""What holds for all tests."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores SIGINT for what it runs in the background, and processes that are started there inherit that; the
    # tests that interrupt a process would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
