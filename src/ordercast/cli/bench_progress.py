"""The bar over the time that measured runs take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(seconds: float) -> Iterator[Callable[[], None]]:
    """A bar over the time that the runs take, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("measuring"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("measuring", total=seconds)
        last = time.monotonic()

        def tick() -> None:
            nonlocal last
            now = time.monotonic()
            # The bar stands still while nodes start, so that it never says more than was measured.
            bar.update(task, advance=now - last)
            last = now
            bar.refresh()

        yield tick
