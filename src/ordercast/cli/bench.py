"""`ordercast bench`: a measured run of a group; `bench limit`: of the machine; `bench peers`: of other systems too."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ordercast.bench.disk import run_disk
from ordercast.bench.durable_peers import MEMBERS
from ordercast.bench.hosts import MTU_MAX, MTU_MIN, HostsError, refuse_without_namespaces
from ordercast.bench.limit import run_limit
from ordercast.bench.peers import PEERS
from ordercast.bench.processes import RunFailed
from ordercast.bench.report import machine, summarize, table
from ordercast.bench.run import Work, places, run_group
from ordercast.cli.bench_durable import OUTSTANDING, measure_durable
from ordercast.cli.bench_peers import measure_peers, peer_name
from ordercast.cli.bench_progress import progress
from ordercast.errors import GroupError
from ordercast.member import (
    MESSAGE_BYTES_MAX,
)
from ordercast.net.udp import HEADER_BYTES, LOOPBACK_PACKET_BYTES
from ordercast.options import ServiceName, check_options

NODES_MAX = 64
NETWORKS_MAX = 8
_TIMED_BYTES_MIN = 8

_EXAMPLE = """\
exit status: 0 measured, 1 a run failed or no peer is installed, 2 it cannot run here

examples:
  ordercast bench --size 64 --seconds 5
  ordercast bench --hosts netns --mtu 1500 --rate 1000 --repeat 5 --json
  ordercast bench limit --hosts netns
  ordercast bench limit --durable /var/lib/orders --size 65536
  ordercast bench peers --size 64
  ordercast bench peers --peer corosync-udp --rate 1000
  ordercast bench --engine corel --nodes 3 --data-dir /var/lib/orders
  ordercast bench durable --data-dir /var/lib/orders

The application reads every length and a byte of every message. --rate is messages a second of each node on a fixed
schedule; latency counts from the time at which a message was due until each node has it. Rates are those of the
slowest node; the figures are medians over the runs. 'peers' runs ordercast and each peer in turns, five times if
nothing else is said, on hosts in namespaces; with --encrypt those peers that encrypt. A ratio is ours to theirs.
"""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="measure a group, this machine's limit, or other systems beside it",
        description="Starts a group of processes on this machine and measures what it does under load. 'limit' "
        "measures what the machine could do without a protocol, 'peers' what other systems of total order do.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=("group", "limit", "peers", "durable"),
        default="group",
        metavar="limit|peers|durable",
    )
    parser.add_argument("--engine", default="totem", help="default: %(default)s")
    parser.add_argument("--nodes", type=_count(NODES_MAX), default=4, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--size", type=_count(MESSAGE_BYTES_MAX), default=1024, metavar="BYTES", help="of a message (%(default)s)"
    )
    parser.add_argument("--seconds", type=_positive, default=5.0, metavar="S", help="of a run (%(default)s)")
    parser.add_argument("--warm-up", type=_not_negative, default=1.0, metavar="S", help="before it (%(default)s)")
    parser.add_argument("--repeat", type=_count(1000), metavar="N", help="runs (1; peers: 5)")
    parser.add_argument("--rate", type=_not_negative, default=0.0, metavar="R", help="0, the default: saturated")
    parser.add_argument("--service", choices=("agreed", "safe"), default="agreed")
    parser.add_argument("--take", choices=("batches", "events"), default="batches")
    parser.add_argument("--hosts", choices=("loopback", "netns"), help="netns needs root (loopback; peers: netns)")
    parser.add_argument("--mtu", type=int, default=1500, metavar="M", help="of hosts in namespaces (%(default)s)")
    parser.add_argument("--networks", type=_count(NETWORKS_MAX), default=1, metavar="K")
    parser.add_argument("--replication", default="active", metavar="R", help="over two or more networks")
    parser.add_argument("--encrypt", action="store_true", help="seal all packets")
    parser.add_argument("--loss", type=_percent, default=0.0, metavar="PERCENT", help="random loss by packet, netns")
    parser.add_argument(
        "--single-packets", action="store_true", help="trains are cut where they leave, as with --loss (netns)"
    )
    parser.add_argument("--data-dir", type=Path, metavar="D", help="stable storage of the nodes, one folder each")
    parser.add_argument(
        "--peer",
        type=peer_name,
        action="append",
        default=[],
        metavar="NAME",
        help="peers: this one only, or these",
    )
    parser.add_argument(
        "--outstanding",
        type=_count(1_000_000),
        default=OUTSTANDING,
        metavar="N",
        help="durable: writes of all members that may wait for their acknowledgement (%(default)s)",
    )
    parser.add_argument(
        "--together", type=_count(1_000_000), default=1, metavar="N",
        help="durable: writes that a member of corel sends in one call, with one acknowledgement (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--packet", type=_count(65_000), metavar="BYTES", help="limit: size of a packet")
    parser.add_argument("--durable", type=Path, metavar="DIR", help="limit: appends to this disk, each made durable")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def _count(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"{value} is not between 1 and {most}")
        return value

    parse.__name__ = "number"
    return parse


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _percent(text: str) -> float:
    value = float(text)
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError(f"{text} is not a loss in percent")
    return value


def run(args: argparse.Namespace) -> int:
    try:
        if args.what == "limit":
            return _limit(args)
        if args.what == "peers":
            return _peers(args)
        if args.what == "durable":
            return _durable(args)
        return _group(args)
    except (HostsError, GroupError, _Refused) as error:
        print(f"ordercast bench: {error}", file=sys.stderr)
        return 2
    except RunFailed as error:
        print(f"ordercast bench: {error}", file=sys.stderr)
        return 1


class _Refused(Exception):
    """What was asked for makes no sense together."""


def _work(args: argparse.Namespace) -> Work:
    hosts = args.hosts or "loopback"
    if hosts == "netns":
        refuse_without_namespaces()
        if not MTU_MIN <= args.mtu <= MTU_MAX:
            raise _Refused(f"an MTU is between {MTU_MIN} and {MTU_MAX}, not {args.mtu}")
    elif args.loss or args.single_packets:
        raise _Refused("--loss and --single-packets need --hosts netns")
    if args.rate and args.size < _TIMED_BYTES_MIN:
        raise _Refused(f"with --rate a message carries its time: --size is at least {_TIMED_BYTES_MIN}")
    if args.data_dir is not None and not args.data_dir.is_dir():
        raise _Refused(f"{args.data_dir} is no directory")
    check_options(
        "bench",
        engine=args.engine,
        data_dir=args.data_dir,
        networks=[f"127.0.0.{network + 1}" for network in range(args.networks)],
        replication=args.replication,
    )
    return Work(
        engine=args.engine,
        nodes=args.nodes,
        size=args.size,
        seconds=args.seconds,
        warm_s=args.warm_up,
        rate=args.rate,
        service=cast(ServiceName, args.service),
        take=args.take,
        hosts=hosts,
        mtu=args.mtu,
        networks=args.networks,
        replication=args.replication,
        encrypt=args.encrypt,
        data_dir=None if args.data_dir is None else str(args.data_dir),
        loss_percent=args.loss,
        single_packets=args.single_packets,
    )


def _group(args: argparse.Namespace) -> int:
    work, repeat = _work(args), args.repeat or 1
    with places(work) as at, progress(repeat * work.length_s) as tick:
        result = summarize([run_group(work, at, tick) for _ in range(repeat)])
    head = {"engine": work.engine, "nodes": work.nodes, "size": work.size, "service": work.service}
    rest = {"take": work.take, "rate": work.rate, "hosts": work.hosts, "mtu": work.mtu, "encrypt": work.encrypt}
    if args.json:
        print(json.dumps(head | result | rest | {"machine": machine()}))
        return 0
    columns = ("run", "messages/s", "MB/s", "p50 ms", "p99 ms", "p99.9 ms", "cpu s", "retransmissions", "views")
    rows = [_row(f"{number}", each) for number, each in enumerate(result["runs"], 1)]
    print(table(columns, [*rows, _row("median", result)] if len(rows) > 1 else rows))
    return 0


def _durable(args: argparse.Namespace) -> int:
    if args.data_dir is None or not os.access(args.data_dir, os.W_OK | os.X_OK):
        raise _Refused("durable needs --data-dir, a directory on the disk that is to be measured")
    if args.together * MEMBERS > args.outstanding:
        raise _Refused(f"{args.together} writes together of {MEMBERS} members are more than {args.outstanding}")
    return measure_durable(args)


def _peers(args: argparse.Namespace) -> int:
    if args.hosts == "loopback":
        raise _Refused("peers need a host each: --hosts netns, which is the default for them")
    if args.networks > 1 or args.loss or args.single_packets or args.engine != "totem":
        raise _Refused("peers are compared with totem over one network without loss")
    wrong = [name for name in args.peer if PEERS[name].encrypts != args.encrypt]
    if wrong:
        raise _Refused(f"{wrong[0]} {'does not encrypt' if args.encrypt else 'is compared with --encrypt'}")
    args.hosts = "netns"
    return measure_peers(args, _work(args))


def _row(name: str, figures: dict[str, Any]) -> list[object]:
    latency = figures["latency_ms"]
    shown = [figures[key] for key in ("delivered_per_s", "mb_per_s")]
    shown += [latency[key] for key in ("p50", "p99", "p999")]
    return [name, *shown, figures["cpu_s"], figures["retransmissions"], figures["views"]]


def _limit(args: argparse.Namespace) -> int:
    if args.durable is not None:
        return _disk_limit(args)
    work, repeat = _work(args), args.repeat or 1
    packet = args.packet or (LOOPBACK_PACKET_BYTES if work.hosts == "loopback" else args.mtu - HEADER_BYTES)
    forms = {"classic": False, "accelerated": True}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in forms}
    with places(work) as at, progress(2 * repeat * work.length_s) as tick:
        for _ in range(repeat):
            for name, accelerated in forms.items():
                runs[name].append(run_limit(work, at, packet, accelerated=accelerated, tick=tick))
    result = {name: summarize(figures) for name, figures in runs.items()}
    if args.json:
        head = {"nodes": work.nodes, "size": work.size, "packet_bytes": packet, "hosts": work.hosts}
        print(json.dumps(head | result | {"machine": machine()}))
        return 0
    names = ("delivered_per_s", "mb_per_s", "rotations_per_s", "cpu_s", "spread_percent")
    head_row = ("bare ring", "messages/s", "MB/s", "rotations/s", "cpu s", "spread %")
    print(table(head_row, [[name, *(figures[key] for key in names)] for name, figures in result.items()]))
    return 0


def _disk_limit(args: argparse.Namespace) -> int:
    directory: Path = args.durable
    if not directory.is_dir() or not os.access(directory, os.W_OK):
        raise _Refused(f"{directory} is no directory that can be written to")
    repeat = args.repeat or 1
    with progress(repeat * args.seconds) as tick:
        result = summarize([run_disk(directory, args.size, args.seconds, tick) for _ in range(repeat)])
    if args.json:
        print(json.dumps({"size": args.size, "directory": str(directory)} | result | {"machine": machine()}))
        return 0
    append = result["append_ms"]
    row = [f"{args.size} B", result["appends_per_s"], result["mb_per_s"], append["p50"], append["p99"]]
    print(table(("durable appends", "appends/s", "MB/s", "p50 ms", "p99 ms"), [row]))
    return 0
