"""A timer that wakes an event loop when it is due: asyncio's own rounds up to a millisecond."""

from __future__ import annotations

import ctypes
import os

_CLOCK_MONOTONIC, _TFD_NONBLOCK, _TFD_CLOEXEC, _TFD_TIMER_ABSTIME = 1, 0o4000, 0o2000000, 1


class _Spec(ctypes.Structure):
    """struct itimerspec: the interval, then the first expiry."""

    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]


class Timer:
    """A descriptor that becomes readable at a time of the monotonic clock."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def fileno(self) -> int:
        return self._fd

    def set(self, due_ns: int) -> None:
        """Sets it, which also takes back an expiry that nobody has read."""
        spec = _Spec(0, 0, *divmod(max(due_ns, 1), 1_000_000_000))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def close(self) -> None:
        os.close(self._fd)
