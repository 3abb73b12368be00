"""`ordercast keygen`: a new group secret in a file that only its owner can read."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from ordercast.wire.keys import Cipher, generate_key, load_key

_EXAMPLE = """\
exit status: 0 the file is there and on the disk, 2 it was there before, or it cannot be written

example:
  ordercast keygen orders.key && ordercast pipe orders --network 10.0.0.5 --key orders.key

Copy the file to every machine of the group, by a way that you trust: whoever holds it is a member.
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "keygen",
        help="make a new group secret",
        description="Writes a new group secret to FILE, mode 0600. A file that is there already is left as it is.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="the file to make")
    parser.add_argument(
        "--cipher",
        choices=[cipher.value for cipher in Cipher],
        default=Cipher.AES_256_GCM.value,
        help="how packets are sealed; %(default)s is the faster one where the processor has AES (default)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    path = Path(args.file)
    text = generate_key(os.urandom, Cipher(args.cipher))
    try:
        write_new(path, text)
    except FileExistsError:
        return _refuse(path, "is there already; it is left as it is")
    except (OSError, ValueError) as error:
        return _refuse(path, f"cannot be written: {getattr(error, 'strerror', None) or 'no file name'}")
    key = load_key(text)
    if args.json:
        print(json.dumps({"file": str(path), "id": key.id, "cipher": key.cipher.value}))
    else:
        print(f"{_one_line(path)}: new group secret, key {key.id}, {key.cipher.value}, mode 0600")
    return 0


def write_new(path: Path, text: bytes) -> None:
    """Makes the file, never overwrites one, and comes back when it is durable. A failure leaves no part of it."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        try:
            os.fchmod(file, 0o600)  # the umask may have taken away too much
            left = text
            while left:
                left = left[os.write(file, left) :]
            os.fsync(file)
        finally:
            os.close(file)
        _sync_directory(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refuse(path: Path, reason: str) -> int:
    print(f"ordercast keygen: {_one_line(path)} {reason}", file=sys.stderr)
    return 2


def _one_line(path: Path) -> str:
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(path))
