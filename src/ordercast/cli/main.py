"""The entry point: parses the command and runs it; refuses the names that are kept for later."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from ordercast import __version__
from ordercast.cli import bench, check, demo, keygen, log, members, pipe, rotate_key, sim, spark, status

RESERVED = ("web",)
"""Names that the command line keeps for what is not built yet. They are refused, not stubbed."""


class _Parser(argparse.ArgumentParser):
    """Bad usage is one line, without the list of all options before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.splitlines())} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    top = _Parser(
        prog="ordercast",
        description="Total order, membership and extended virtual synchrony for groups of Python processes.",
    )
    top.add_argument("--version", action="version", version=f"ordercast {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (demo, pipe, status, bench, sim, check, log, members, keygen, rotate_key, spark):
        module.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments and arguments[0] in RESERVED:
        print(f"ordercast: '{arguments[0]}' is reserved and not available in version {__version__}", file=sys.stderr)
        return 2
    args = parser().parse_args(arguments)
    try:
        code: int = args.run(args)
    except KeyboardInterrupt:
        print("ordercast: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return code
