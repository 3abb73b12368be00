"""`ordercast spark campaign`: seeds of the simulator over a cluster."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ordercast.cli.campaign import (
    UsageError,
    add_campaign_options,
    campaign_of,
    print_result,
    print_summary,
    progress,
    seed_range,
    warn_of_short,
)
from ordercast.cli.spark_session import add_session_options, running
from ordercast.errors import GroupError
from ordercast.sim.campaign import Campaign, Summary
from ordercast.sim.engines import find_engine

_EXAMPLE = """\
exit status: 0 no violation, 1 a property was violated, 2 bad usage, no Spark or a directory of another campaign

examples:
  ordercast spark campaign --engine totem --seeds 0:20000 --out /data/campaign
  ordercast spark campaign --seeds 0:1000 --networks 2 --replication passive --master spark://HOST:7077
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "campaign",
        help="run seeds of the simulator over a cluster",
        description="Runs what `ordercast sim --seeds` runs, over all executors: every trace checked, failures with "
        "the command that replays them, and what the seeds reached. Started again with the same --out it goes on "
        "where it stopped.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_campaign_options(parser)
    parser.add_argument("--seeds", metavar="A:B", default="0:20", help="from A up to but excluding B (default 0:20)")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="keep results here, as Parquet; all executors must see it under this "
        "path (default: a temporary one)",
    )  # fmt: skip
    parser.add_argument("--stop-on-first", action="store_true", help="end at the first range with a violation")
    add_session_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        find_engine(args.engine)
        campaign, seeds = campaign_of(args), seed_range(args.seeds)
        with _directory(args.out) as directory:
            summary = _run(args, campaign, seeds, directory)
    except (UsageError, ValueError, GroupError) as error:
        print(f"ordercast spark campaign: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"ordercast spark campaign: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    warn_of_short("ordercast spark campaign", summary)
    return 1 if summary.failed else 0


@contextmanager
def _directory(asked: Path | None) -> Iterator[Path]:
    if asked is not None:
        yield asked
        return
    with tempfile.TemporaryDirectory(prefix="ordercast-campaign-") as made:
        yield Path(made)


def _run(args: argparse.Namespace, campaign: Campaign, seeds: range, directory: Path) -> Summary:
    # A campaign shows its own progress.
    with running(args, "ordercast campaign", **{"spark.ui.showConsoleProgress": False}) as spark:
        from ordercast.spark.campaign.job import results
        from ordercast.spark.campaign.store import Store, failures

        store, summary = Store(directory), Summary(campaign.engine)
        with progress(len(seeds)) as advance:
            for some in results(spark, campaign, seeds, store):
                for result in some:
                    summary.add(result)
                    if result.violations and not args.json:
                        print_result(campaign, result)
                advance(len(some), len(summary.failed))
                if summary.failed and args.stop_on_first:
                    break
        store.finish(campaign, summary)
        if args.json:
            print(json.dumps(summary.as_json() | {"failures": failures(campaign, summary)}))
        else:
            print_summary(summary)
        return summary
