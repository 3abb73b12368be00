"""The entry point: parses the command and runs it; refuses the names that are kept for later."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ordercast import __version__
from ordercast.cli import check, demo, sim

RESERVED = ("pipe", "status", "bench", "log", "spark", "web", "keygen", "rotate-key")
"""Names that the command line keeps for what is not built yet. They are refused, not stubbed."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="ordercast",
        description="Total order, membership and extended virtual synchrony for groups of Python processes.",
    )
    top.add_argument("--version", action="version", version=f"ordercast {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (demo, sim, check):
        module.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments and arguments[0] in RESERVED:
        print(f"ordercast: '{arguments[0]}' is reserved and not available in version {__version__}", file=sys.stderr)
        return 2
    args = parser().parse_args(arguments)
    try:
        status: int = args.run(args)
    except KeyboardInterrupt:
        print("ordercast: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return status
