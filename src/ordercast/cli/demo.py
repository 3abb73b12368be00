"""`ordercast demo`: five real processes under load on two networks, of which one fails; a kill, a restart, a partition,
a remerge, the checker's verdict.

The processes are `demo_member`s on loopback. Every step of the story waits until what it tells has happened, so that a
slow machine takes longer and sees the same. `--simulated` tells the story of `demo_simulated` instead.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ordercast.check import TraceError, Verdict, check_trace
from ordercast.cli import demo_simulated
from ordercast.cli.demo_networks import play_networks
from ordercast.cli.demo_pipeline import run_pipeline

_EXAMPLE = """\
exit status: 0 all went as told and the traces keep every property, 1 not so, 2 bad usage

examples:
  ordercast demo                        tell the story
  ordercast demo --trace DIR --json     keep the traces in DIR for `ordercast check`, print a summary as JSON
  ordercast demo --simulated            another one, on the simulator: the same on any machine
"""
NAMES = ("n1", "n2", "n3", "n4", "n5")
SIDES = (("n1", "n2"), ("n3", "n4", "n5"))
VICTIM = "n4"
RATE = 800
"""Messages per second that each process sends."""
STEP_TIMEOUT_S = 60.0
"""After this a step has failed; it takes a second on a machine that has nothing else to do."""
READING_S = 1.5
"""Pause after each step on a terminal, so that a person can follow."""


class DemoFailed(Exception):
    """Something did not happen, or should not have: one line."""


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo",
        help="a group under load, with a crash, a restart, a partition and a remerge",
        description="Runs a group of five processes on this machine, under load: one of its two networks fails and "
        "is mended, a process is killed and started again, the network parts and is whole again. Shows their views "
        "and whether they agree, and lets the checker judge the traces that they wrote.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--trace", metavar="DIR", type=Path, help="keep the traces in this directory")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the story")
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="where the report goes; with --json there is one only if asked for"
    )
    parser.add_argument("--no-report", action="store_true", help="leave the pipeline on Spark out")
    parser.add_argument("--simulated", action="store_true", help="simulate network, disks and clocks")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.simulated:
        return demo_simulated.run(args)
    console = Console(highlight=False, soft_wrap=True, quiet=args.json)
    try:
        if args.trace is not None:
            args.trace.mkdir(parents=True, exist_ok=True)
            if any(args.trace.iterdir()):
                print(f"ordercast demo: {args.trace} is not empty", file=sys.stderr)
                return 2
        directory = Path(tempfile.mkdtemp(prefix="ordercast-demo-"))
    except OSError as error:
        print(f"ordercast demo: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    traces = args.trace or directory / "trace"
    stage = Stage(directory, traces, console, live=console.is_terminal and not args.json)
    keep = False
    try:
        try:
            play(stage)
            verdict = check_trace(traces)
        except (DemoFailed, TraceError) as error:
            keep = True
            print(f"ordercast demo: {error} (traces and logs are in {directory})", file=sys.stderr)
            return 1
        if not args.json:
            keep = args.trace is None
            tell_verdict(stage, verdict, traces)
        report = _report(args, directory, traces, console)
        if args.json:
            print(json.dumps(summary(stage, verdict, args.trace) | {"report": report and str(report)}))
        return 0 if verdict.ok and not stage.agreement.differences else 1
    finally:
        stage.close()
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def _report(args: argparse.Namespace, directory: Path, traces: Path, console: Console) -> Path | None:
    """Beside the traces unless it is said where; None if there is none."""
    if args.no_report or (args.json and args.report is None):
        return None
    beside = directory / "report.html" if args.trace is None else traces.with_name(f"{traces.name}-report.html")
    report: Path = args.report or beside
    return report if run_pipeline(traces, directory / "lake", report, console) else None


def play(stage: Stage) -> None:
    """The story."""
    with stage.step("start", "Five processes start. Each first forms a group of its own, then they find one another."):
        for name in NAMES:
            stage.start(name)
        stage.wait_for_views(NAMES)
    with stage.step("load", f"Each of them sends {RATE} messages a second; each message gets one place in one order."):
        stage.set_load(RATE)
        stage.wait_for_deliveries(NAMES, 4 * RATE)
    play_networks(stage, 2 * RATE)
    others = [name for name in NAMES if name != VICTIM]
    with stage.step("kill", f"{VICTIM} is killed (kill -9). The others miss the token, and go on without it."):
        stage.kill(VICTIM)
        stage.wait_for_views(others)
        stage.wait_for_deliveries(others, 2 * RATE)
    with stage.step("restart", f"{VICTIM} starts again. Its disk holds its ring number: no identifier comes twice."):
        stage.start(VICTIM)
        stage.wait_for_views(NAMES)
        stage.set_load(RATE)
        stage.wait_for_deliveries(NAMES, 2 * RATE)
    sides = " | ".join(" ".join(side) for side in SIDES)
    with stage.step("partition", f"The network parts: {sides}. Both sides go on, each with its own messages."):
        stage.part(SIDES)
        stage.wait_for_views(*SIDES)
        stage.wait_for_deliveries(NAMES, 2 * RATE)
    with stage.step("remerge", "The network is whole again. The sides hear each other and form one group."):
        stage.part([NAMES])
        stage.wait_for_views(NAMES)
        stage.wait_for_deliveries(NAMES, 2 * RATE)
    with stage.step("leave", "All leave, one after the other, and say so: nobody waits for their silence."):
        stage.set_load(0)
        for name in NAMES:
            stage.leave(name)
    stage.finish()


def tell_verdict(stage: Stage, verdict: Verdict, traces: Path) -> None:
    console, where = stage.console, escape(str(traces))
    agreement = stage.agreement
    console.print()
    if agreement.differences:
        console.print(f"[bold red]{agreement.differences} times two processes had delivered different orders.[/]")
    if verdict.ok:
        console.print(f"[bold green]The checker read {verdict.events} events of {len(NAMES)} processes: "
                      "E1 to E14 hold.[/]")  # fmt: skip
    else:
        names = ", ".join(violation.property for violation in verdict.violations)
        console.print(f"[bold red]The checker found violations of {names}.[/]")
    console.print(f"The traces, a file of JSON lines for each process, are in {where}. To look further:")
    console.print(f"  ordercast check {where}", style="cyan")
    console.print("  ordercast sim --seeds 0:100          [dim]such runs with random faults, on the simulator[/]")
    console.print("  ordercast pipe numbers --follow      [dim]a member of your own, in two terminals[/]")


def summary(stage: Stage, verdict: Verdict, traces: Path | None) -> dict[str, object]:
    return {
        "verdict": "ok" if verdict.ok else "violated",
        "events": verdict.events,
        "violations": [violation.property for violation in verdict.violations],
        "processes": len(NAMES),
        "deliveries": {name: member.delivered for name, member in stage.members.items()},
        "views": {name: member.views for name, member in stage.members.items()},
        "agreement": {"compared": stage.agreement.compared, "differences": stage.agreement.differences},
        "steps": stage.steps,
        "trace": None if traces is None else str(traces),
    }


class Agreement:
    """Whether processes that were in one view delivered the same, by checksums over what each delivered so far."""

    def __init__(self) -> None:
        self.compared = 0
        self.differences = 0
        self._checksums: dict[tuple[str, int], int] = {}

    def note(self, view: str, count: int, checksum: int) -> bool:
        """One process's checksum after `count` messages of `view`; whether it is what the others had."""
        first = self._checksums.setdefault((view, count), checksum)
        self.compared += 1
        self.differences += first != checksum
        return first == checksum


class Member:
    """What is known of one of the processes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.unread = b""
        self.addresses: list[str] = []
        """One a network."""
        self.faulty: set[int] = set()
        """The networks that it has reported as faulty, and not as sound again."""
        self.state = "not started"
        self.view = ""
        self.members: tuple[str, ...] = ()
        self.view_at = 0.0
        self.views = 0
        self.delivered_before = 0
        """By the lives before this one."""
        self.delivered_now = 0
        self.rate = 0.0
        self.agrees: int = 0
        """Messages up to which the order in the present view is known to be that of the others."""
        self.differs = False
        self._progress_at = 0.0

    @property
    def delivered(self) -> int:
        return self.delivered_before + self.delivered_now

    def progress(self, delivered: int, at: float) -> None:
        seconds = at - self._progress_at
        if 0 < seconds < 5:
            rate = (delivered - self.delivered_now) / seconds
            self.rate = rate if not self.rate else 0.7 * self.rate + 0.3 * rate
        self.delivered_now, self._progress_at = delivered, at

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.state, self.unread = process, "starting", b""
        self.addresses, self.faulty = [], set()
        self.delivered_before, self.delivered_now = self.delivered, 0
        self.end(self.state)

    def end(self, state: str) -> None:
        self.state, self.view, self.members, self.rate, self.agrees = state, "", (), 0.0, 0

    def tell(self, **command: object) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return  # its end will be noticed where its output is read


class Stage:
    """The processes, what they report, and the terminal."""

    def __init__(self, directory: Path, traces: Path, console: Console, live: bool) -> None:
        self.directory = directory
        self.traces = traces
        self.console = console
        self.members = {name: Member(name) for name in NAMES}
        self.agreement = Agreement()
        self.steps: list[dict[str, object]] = []
        self._group = f"demo-{os.getpid()}-{os.urandom(4).hex()}"
        self._selector = selectors.DefaultSelector()
        self._begun = time.monotonic()
        self._live = Live(console=console, get_renderable=self._table, auto_refresh=False) if live else None
        self._refreshed = 0.0
        self._step_at = self._begun
        self._views_after_s: float | None = None
        """How long after the step's begin all had installed the views that it waited for."""
        if self._live is not None:
            self._live.start()

    # What is done to the processes.

    def start(self, name: str) -> None:
        """Each process has a directory of its own; their traces go to one."""
        home = self.directory / name
        if not home.exists():
            home.mkdir()
            self.traces.mkdir(exist_ok=True)
            (home / "trace").symlink_to(self.traces.absolute())
        source = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ordercast.cli.demo_member", self._group, name, str(home)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
            )
        member = self.members[name]
        member.begin(process)
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, member)

    def kill(self, name: str) -> None:
        member = self.members[name]
        assert member.process is not None
        member.end("killed")
        member.process.send_signal(signal.SIGKILL)
        member.process.wait()

    def set_load(self, rate: int) -> None:
        for member in self.members.values():
            member.tell(rate=rate)

    def part(self, sides: Iterable[Iterable[str]]) -> None:
        """Lets each process hear only those of its own side."""
        for side in sides:
            near = set(side)
            far = [each for member in self.members.values() if member.name not in near for each in member.addresses]
            for name in near:
                self.members[name].tell(drop=far)

    def leave(self, name: str) -> None:
        member = self.members[name]
        assert member.process is not None
        assert member.process.stdin is not None
        member.state = "leaving"
        member.process.stdin.close()
        self.wait(lambda: member.state == "left", f"{name} has left")
        if status := member.process.wait(STEP_TIMEOUT_S):
            raise DemoFailed(f"{name} ended with status {status}: {self._last_words(name)}")

    # What is waited for.

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise DemoFailed(f"after {STEP_TIMEOUT_S:.0f} s it is not so that {what}")
            self._hear(0.1)

    def wait_for_views(self, *sides: Iterable[str]) -> None:
        """Until the members of each side have installed one view of exactly these."""
        for side in sides:
            names = tuple(side)
            here = [self.members[name] for name in names]

            def together(here: list[Member] = here, names: tuple[str, ...] = names) -> bool:
                return all(member.members == names and member.view == here[0].view for member in here)

            self.wait(together, f"{', '.join(names)} are in one view")
        last = max(self.members[name].view_at for side in sides for name in side)
        self._views_after_s = last - self._step_at

    def wait_for_networks(self, faulty: Iterable[int]) -> float:
        """Until exactly these networks are faulty at all members; seconds since the step began."""
        wanted = set(faulty)
        what = f"the members report networks {sorted(wanted)} as faulty and no others"
        self.wait(lambda: all(member.faulty == wanted for member in self.members.values()), what)
        return time.monotonic() - self._step_at

    def wait_for_deliveries(self, names: Iterable[str], count: int) -> None:
        goals = [(self.members[name], self.members[name].delivered + count) for name in names]
        self.wait(lambda: all(member.delivered >= goal for member, goal in goals), f"{count} more messages arrived")

    def _hear(self, timeout_s: float) -> None:
        """Takes what the processes report, and shows it."""
        for key, _ in self._selector.select(timeout_s):
            member: Member = key.data
            block = os.read(key.fd, 1 << 16)
            if not block:
                self._selector.unregister(key.fileobj)
                if member.state not in ("killed", "left") and member.process and key.fileobj is member.process.stdout:
                    raise DemoFailed(f"{member.name} ended unexpectedly: {self._last_words(member.name)}")
                continue
            if member.process is None or key.fileobj is not member.process.stdout or member.state == "killed":
                continue
            *lines, member.unread = (member.unread + block).split(b"\n")
            for line in lines:
                self._reported(member, json.loads(line))
        if self._live is not None and time.monotonic() > self._refreshed + 0.1:
            self._refreshed = time.monotonic()
            self._live.refresh()

    def _reported(self, member: Member, report: dict[str, Any]) -> None:
        match report["what"]:
            case "joined":
                member.addresses = report["addresses"]
                member.state = "member"
            case "view":
                member.views += 1
                if report["kind"] == "regular":
                    member.view, member.members = report["view"], tuple(report["members"])
                    member.view_at, member.agrees = report["at"], 0
            case "network_fault":
                member.faulty.add(report["number"])
            case "network_repaired":
                member.faulty.discard(report["number"])
            case "order":
                if self.agreement.note(report["view"], report["count"], report["checksum"]):
                    member.agrees = report["count"]
                else:
                    member.differs = True
            case "progress":
                member.progress(report["delivered"], report["at"])
            case "left":
                member.delivered_now = report["delivered"]
                member.end("left")

    def _last_words(self, name: str) -> str:
        lines = (self.directory / f"{name}.log").read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    # What is shown.

    @contextmanager
    def step(self, what: str, sentence: str) -> Iterator[None]:
        """One step of the story: the sentence, what happens, and where that has led to."""
        self.console.print(f"\n[bold]{time.monotonic() - self._begun:5.2f} s  {sentence}[/]")
        before = {name: member.delivered for name, member in self.members.items()}
        self._begin_step()
        yield
        took_s = time.monotonic() - self._step_at
        step: dict[str, object] = {"step": what, "seconds": round(took_s, 3)}
        if self._views_after_s is not None:
            step["views_after_s"] = round(self._views_after_s, 3)
            for line in self._views():
                self.console.print(f"         {line}, after {self._views_after_s:.2f} s")
        counts = [f"{name} {member.delivered - before[name]}" for name, member in self.members.items()]
        if any(member.delivered != before[name] for name, member in self.members.items()):
            self.console.print(f"         delivered  {'  '.join(counts)}   [dim]({self._verdict()})[/]")
        self.steps.append(step)
        if self._live is not None:
            until = time.monotonic() + READING_S
            while (left := until - time.monotonic()) > 0:
                self._hear(min(left, 0.1))

    def _begin_step(self) -> None:
        self._step_at = time.monotonic()
        self._views_after_s = None

    def _verdict(self) -> str:
        if self.agreement.differences:
            return f"[red]orders differ: {self.agreement.differences}[/]"
        return "one order" if self.agreement.compared else "nothing compared yet"

    def _views(self) -> Iterator[str]:
        views: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for member in self.members.values():
            if member.members:
                views.setdefault((member.view, member.members), []).append(member.name)
        for (view, members), names in views.items():
            yield f"[cyan]view {escape(view)}  {{{' '.join(members)}}}[/]  at {' '.join(names)}"

    def _table(self) -> Table:
        table = Table(title="the processes", title_justify="left", expand=False)
        for heading in ("name", "pid", "state", "view", "members"):
            table.add_column(heading)
        for heading in ("delivered", "messages/s"):
            table.add_column(heading, justify="right")
        table.add_column("order")
        for member in self.members.values():
            pid = str(member.process.pid) if member.process and member.state not in ("killed", "left") else "-"
            style = {"member": "", "killed": "red"}.get(member.state, "dim")
            order = f"[green]as the others: {member.agrees} in this view[/]" if member.agrees else "-"
            table.add_row(
                member.name,
                pid,
                member.state,
                escape(member.view),
                " ".join(member.members),
                str(member.delivered),
                f"{member.rate:.0f}",
                "[bold red]differs[/]" if member.differs else order,
                style=style,
            )
        return table

    def finish(self) -> None:
        """Takes the table away; what was told stays."""
        if self._live is not None:
            self._live.refresh()
            self._live.stop()
            self._live = None

    def close(self) -> None:
        """Ends what still runs."""
        self.finish()
        for member in self.members.values():
            process = member.process
            if process is None:
                continue
            if process.poll() is None:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None and not stream.closed:
                    stream.close()
        self._selector.close()
