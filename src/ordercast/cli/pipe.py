"""`ordercast pipe`: a group as a filter: lines in, multicast; events out, a JSON object a line.

Three threads: one reads lines and sends them, one takes the group's events and writes them, and the main one, which
receives the signals, waits for what ends the run. Both sides move blocks, not lines, wherever there is more than one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from json.encoder import encode_basestring
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, NamedTuple

from ordercast import sync
from ordercast.cli.jsonl import columns, encode, field
from ordercast.cli.pipe_states import States
from ordercast.durable import Retention
from ordercast.errors import DeliveryUncertain, GroupError, MessageTooLarge
from ordercast.events import Batch, BatchEvent, Message, NetworkFault, NetworkRepaired, Snapshot, TransitionalView, View
from ordercast.member import MESSAGE_BYTES_MAX

_EXAMPLE = """\
exit status: 0 all lines are safe at all members, or a signal ended it after a clean leave; 1 the output was closed, the
group was lost, or it cannot be told whether all lines arrived; 2 bad usage, or the group cannot be joined

examples:
  seq 100000 | ordercast pipe numbers           send lines, print what the group delivers, leave
  ordercast pipe numbers --follow < /dev/null   only listen, until Ctrl-C
  date | ordercast pipe numbers --members 2     wait until there are two, then send
  ordercast pipe orders --engine corel --data-dir d --members 3 --serve 127.0.0.1:7500 --follow < /dev/null
                                                a member of a durable group, whose log Spark reads and appends to
"""
READ_BYTES = 1 << 18
OUTPUT_WAIT_S = 5.0
"""How long the end that a signal asked for waits for whoever reads the output."""


class _End(NamedTuple):
    """What ends the run."""

    what: str
    """"input", "signal", "output", "group", "bad input"; and "drained" when the last event has been written."""
    reason: str = ""
    status: int = 0


class _Interrupted(BaseException):
    """A signal before the group was joined."""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "pipe",
        help="multicast lines, print events as JSON lines",
        description="Joins GROUP. Each line of the input is multicast, without its newline; each event of the group is "
        "a JSON line of the output. At the end of the input it leaves once its own lines are safe at all members.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("group", metavar="GROUP", help="the name of the group")
    parser.add_argument("--name", metavar="N", help="a name unique in the group (default: host name and a suffix)")
    parser.add_argument("--engine", metavar="E", default="totem", help="the protocol (default totem)")
    parser.add_argument(
        "--network", metavar="ADDR", action="append", help="a local address (default 127.0.0.1); once a network"
    )
    parser.add_argument(
        "--replication",
        metavar="R",
        default="active",
        help="over several networks: active, passive or active-passive:K (default active)",
    )
    parser.add_argument(
        "--peer",
        metavar="HOST:PORT",
        action="append",
        help="unicast to these instead of multicast; with several networks one address for each, by commas",
    )
    parser.add_argument("--key", metavar="FILE", help="the group's secret, see ordercast keygen")
    parser.add_argument("--insecure", action="store_true", help="go without a secret off loopback")
    parser.add_argument("--service", metavar="S", choices=("agreed", "safe"), default="agreed", help="agreed or safe")
    parser.add_argument("--data-dir", metavar="D", help="stable storage of this member")
    parser.add_argument("--trace", action="store_true", help="write a trace under D/trace, for ordercast check")
    parser.add_argument("--members", metavar="N", type=int, default=1, help="wait until the group has N members")
    parser.add_argument("--start", metavar="OFFSET", help="corel: replay from here; or earliest, or latest")
    parser.add_argument(
        "--founders",
        metavar="N",
        type=int,
        help="corel: N members found the group (default --members); 0: none, join",
    )
    parser.add_argument(
        "--states", action="store_true", help="corel: print how far the own lines have come, received, stable, ordered"
    )
    parser.add_argument(
        "--keep-bytes", metavar="N", type=int, help="corel: remove the oldest segments of the log beyond N bytes"
    )
    parser.add_argument(
        "--keep-hours", metavar="H", type=float, help="corel: remove segments whose messages are all older than H hours"
    )
    parser.add_argument(
        "--serve", metavar="HOST:PORT", help="corel: serve the log there, and take in what Spark's sink publishes"
    )
    parser.add_argument("--follow", action="store_true", help="stay at the end of the input")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if sys.stdout is None:
        return _fail("the output is closed", 2)
    log = _Log()
    logging.getLogger("ordercast").addHandler(log)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = lambda message, *_: log.say(str(message))
            return _Pipe(args, log).run()
    finally:
        logging.getLogger("ordercast").removeHandler(log)


def _fail(reason: str, status: int) -> int:
    print(f"ordercast pipe: {' '.join(reason.splitlines())}", file=sys.stderr)
    return status


class _Log(logging.Handler):
    """Warnings, each a line. Those from before the group is joined wait until it is: an error then is the one line."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._held: list[str] | None = []

    def emit(self, record: logging.LogRecord) -> None:
        self.say(record.getMessage())

    def say(self, text: str) -> None:
        if self._held is None:
            print(f"ordercast pipe: warning: {text}", file=sys.stderr)
        else:
            self._held.append(text)

    def joined(self) -> None:
        held, self._held = self._held, None
        for text in held or ():
            self.say(text)


class _Pipe:
    """One run of the command."""

    def __init__(self, args: argparse.Namespace, log: _Log) -> None:
        self.args = args
        self.log = log
        self.ends: SimpleQueue[_End] = SimpleQueue()
        self.joined = False
        self.stopping = threading.Event()
        self.tickets: deque[tuple[sync.SyncTicket, int]] = deque()
        """Of the lines on their way, with their number."""
        self.states = States(self._emit) if args.states else None
        self.output = threading.Lock()
        """Held while lines are written."""
        self.uncertain = 0
        """Lines of which it cannot be told whether all members got them."""

    def run(self) -> int:
        before = [(number, signal.signal(number, self._on_signal)) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            try:
                group = self._join()
                self.joined = True
                self.log.joined()
            except GroupError as error:
                return _fail(str(error), 2)
            return self._run(group)
        except _Interrupted:
            return 0
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks for a clean end; the next one does what it does without us."""
        signal.signal(number, signal.SIG_DFL)
        if not self.joined:
            raise _Interrupted
        self.ends.put(_End("signal"))

    def _join(self) -> sync.Group:
        args = self.args
        if args.states and args.engine != "corel":
            raise GroupError("--states belongs to the engine 'corel'")
        if sys.stderr.isatty() and args.members > 1:
            print(f"ordercast pipe: waiting for {args.members} members of {args.group}", file=sys.stderr)
        return sync.join(
            args.group,
            name=args.name,
            engine=args.engine,
            networks=args.network or ["127.0.0.1"],
            replication=args.replication,
            peers=args.peer,
            key=args.key,
            insecure=args.insecure,
            data_dir=args.data_dir,
            trace=args.trace,
            min_members=args.members,
            start=args.start,
            founders=args.founders,
            retention=self._retention(),
            serve=args.serve,
        )

    def _retention(self) -> Retention | None:
        """What is kept of the log; by default all of it."""
        args = self.args
        if args.keep_bytes is None and args.keep_hours is None:
            return None
        return Retention(args.keep_bytes, None if args.keep_hours is None else args.keep_hours * 3600)

    def _run(self, group: sync.Group) -> int:
        for work in (self._write, self._read):
            threading.Thread(target=work, args=(group,), daemon=True).start()
        end = self.ends.get()
        while end.what == "input" and self.args.follow:
            end = self.ends.get()
        wait_s = None if end.what in ("input", "bad input") else OUTPUT_WAIT_S
        self.stopping.set()
        try:
            group.leave()
        except GroupError as error:
            if not end.status:
                end = _End("group", str(error), 1)
        while True:
            # What goes wrong on the way out still counts; a signal now means not to wait for a stuck reader.
            try:
                later = self.ends.get(timeout=wait_s)
            except Empty:
                return _fail("nobody reads the output: events are lost", 1)
            if later.what == "drained":
                if self.states is not None:
                    self.states.finish(OUTPUT_WAIT_S)
                break
            if later.what == "signal":
                wait_s = OUTPUT_WAIT_S
            elif later.status and not end.status:
                end = later
        if end.status:
            return _fail(end.reason, end.status) if end.reason else end.status
        if self.uncertain:
            return _fail(f"whether {self.uncertain} lines reached all members cannot be told", 1)
        return 0

    # The input

    def _read(self, group: sync.Group) -> None:
        try:
            for lines in self._blocks():
                ticket = group.send_many(lines, self.args.service)
                self.tickets.append((ticket, len(lines)))
                if self.states is not None:
                    self.states.follow(ticket, len(lines))
                self._collect(wait=False)
            self._collect(wait=True)
        except (OSError, ValueError, MessageTooLarge) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            self._collect(wait=True)
            self.ends.put(_End("bad input", f"the input cannot be read: {text}", 2))
        except GroupError:
            return  # the group has ended, or is being left: the other thread knows why
        else:
            self.ends.put(_End("input"))

    def _collect(self, wait: bool) -> None:
        """Looks at the fate of what was sent; with `wait` until all of it is known."""
        tickets = self.tickets
        while tickets and (wait or tickets[0][0].done):
            ticket, count = tickets.popleft()
            try:
                ticket.wait()
            except DeliveryUncertain:
                if self.stopping.is_set():
                    return
                self.uncertain += count

    def _blocks(self) -> Iterator[list[bytes]]:
        """The lines that each read completes; at the end the last line, if it has no newline."""
        if sys.stdin is None:
            return
        source = sys.stdin.fileno()
        pieces: list[bytes] = []
        size = 0
        while block := _read_block(source):
            if self.stopping.is_set():
                return
            head, newline, rest = block.rpartition(b"\n")
            if newline:
                lines = (b"".join(pieces) + head).split(b"\n")
                yield lines
                pieces, size = [], 0
            if rest:
                pieces.append(rest)
                size += len(rest)
            if size > MESSAGE_BYTES_MAX:
                raise ValueError(f"a line of more than {MESSAGE_BYTES_MAX} bytes")
        if pieces:
            yield [b"".join(pieces)]

    # The output

    def _emit(self, lines: bytes) -> None:
        with suppress(OSError), self.output:  # the thread of the events says what is wrong with the output
            _write_all(sys.stdout.fileno(), lines)

    def _write(self, group: sync.Group) -> None:
        output = sys.stdout.fileno()
        broken = False
        try:
            for event in group.batches():
                if broken:
                    continue  # what is delivered is still taken, so that nobody waits for this member
                try:
                    with self.output:
                        _write_all(output, render(event))
                except OSError as error:
                    broken = True
                    quiet = isinstance(error, BrokenPipeError)
                    self.ends.put(_End("output", "" if quiet else f"the output failed: {error.strerror}", 1))
        except GroupError as error:
            self.ends.put(_End("group", str(error), 1))
        finally:
            self.ends.put(_End("drained"))


def _read_block(source: int) -> bytes:
    while True:
        try:
            return os.read(source, READ_BYTES)
        except BlockingIOError:  # whoever shares it with us has made it so
            select.select([source], [], [])


def _write_all(output: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(output, view) :]
        except BlockingIOError:
            select.select([], [output], [])


def render(event: BatchEvent) -> bytes:
    """The lines of an event."""
    match event:
        case Batch():
            return _render_batch(event)
        case View() | TransitionalView():
            kind = "regular" if isinstance(event, View) else "transitional"
            fields: dict[str, object] = {
                "event": "view",
                "kind": kind,
                "view": event.id,
                "members": event.members,
            }
            if isinstance(event, View) and event.primary is not None:
                fields["primary"] = event.primary
        case Snapshot():
            fields = {"event": "snapshot", "offset": event.offset, "bytes": len(event.data)}
        case NetworkFault():
            fields = {
                "event": "network_fault",
                "network": event.network,
                "number": event.number,
                "reason": event.reason,
                "evidence": event.evidence,
            }
        case NetworkRepaired():
            fields = {"event": "network_repaired", "network": event.network, "number": event.number}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _render_batch(batch: Batch) -> bytes:
    head = f'{{"event":"message","sender":{encode_basestring(batch.sender)},"seq":'
    middle = f',"view":{encode_basestring(batch.view_id)},"service":"{batch.service}",'
    return encode(
        [f"{head}{each.seq}{_place(each)}{middle}{field('data', each.data)}{_extra(each)}}}\n" for each in batch]
    )


def _place(message: Message) -> str:
    return "" if message.offset is None else f',"offset":{message.offset}'


def _extra(message: Message) -> str:
    """What messages of other programs may carry beside their data; `pipe` sends none."""
    return columns(message.key, message.headers)
