"""The job: a range of seeds a task. Tasks write what came of their range; the driver sees it appear.

docs/design/spark-campaign.md says why nothing that is lost on the way changes the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import sleep
from uuid import uuid4

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from ordercast.sim.campaign import Campaign
from ordercast.sim.runner import Result
from ordercast.spark.campaign.store import Store
from ordercast.spark.errors import SparkError, reason

SEEDS_MAX = 50
"""Seeds of a task at most: what is lost when a worker dies, and how long a result may take to show."""
_TASKS_PER_SLOT = 8
_POLL_S = 0.3


def results(spark: SparkSession, campaign: Campaign, seeds: range, store: Store) -> Iterator[list[Result]]:
    """What comes of the seeds, range by range as they are finished; those that an earlier run has left come first.

    Each seed comes once. The directory of the store is written by the executors, under the same path everywhere.
    """
    store.begin(campaign)
    seen: set[int] = set()
    read: set[str] = set()
    yield from _new(store, seeds, seen, read)
    slots = spark.sparkContext.defaultParallelism
    missing = [seed for seed in seeds if seed not in seen]
    if not missing:
        return
    tasks = cut(missing, max(1, min(SEEDS_MAX, len(missing) // (_TASKS_PER_SLOT * slots))))
    job = _Job(spark, campaign, tasks, store)
    try:
        while job.running():
            sleep(_POLL_S)
            yield from _new(store, seeds, seen, read)
        job.check()
        yield from _new(store, seeds, seen, read)
    finally:
        job.cancel()
    if len(seen) < len(seeds):
        lost = next(seed for seed in seeds if seed not in seen)
        raise SparkError(f"the results of seed {lost} are not in {store.directory}: executors must see it, "
                         "under the same path")  # fmt: skip


def _new(store: Store, seeds: range, seen: set[int], read: set[str]) -> Iterator[list[Result]]:
    found = store.ranges()
    for path in sorted(found):
        covered = found[path]
        if path.name in read or covered.start >= seeds.stop or covered.stop <= seeds.start:
            continue
        read.add(path.name)
        fresh = [result for result in store.read(path) if result.seed in seeds and result.seed not in seen]
        seen.update(result.seed for result in fresh)
        if fresh:
            yield fresh


def cut(seeds: list[int], size: int) -> list[range]:
    """Neighbours together, at most `size` of them."""
    found: list[range] = []
    for seed in seeds:
        if found and found[-1].stop == seed and len(found[-1]) < size:
            found[-1] = range(found[-1].start, seed + 1)
        else:
            found.append(range(seed, seed + 1))
    return found


class _Job:
    """One job of Spark's in a thread of its own."""

    def __init__(self, spark: SparkSession, campaign: Campaign, tasks: list[range], store: Store) -> None:
        self._context = spark.sparkContext
        self._group = f"ordercast campaign {uuid4()}"
        self._error: Exception | None = None
        self._work = partial(_run, campaign, store)
        self._tasks = tasks
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._context.setJobGroup(self._group, "a campaign of seeds", interruptOnCancel=True)
        try:
            self._context.parallelize(self._tasks, len(self._tasks)).foreach(self._work)
        except Exception as error:  # told by `check` in the caller's thread
            self._error = error

    def running(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        if self._error is not None:
            raise SparkError(f"a task of the campaign failed: {reason(self._error)}") from self._error

    def cancel(self) -> None:
        if self.running():
            self._context.cancelJobGroup(self._group)


def _run(campaign: Campaign, store: Store, seeds: range) -> None:
    """What a task does."""
    store.write(seeds, [campaign.run(seed, coverage=True) for seed in seeds])
