"""A round of chaos: real processes, load, faults at random from a seed, then quiet, and the checker's verdict."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.net.hosts import Hosts, make_hosts

from ordercast.check import check_trace

WHOLE = ("operational", "primary")
"""States of a member whose group is one, in which what it sends is delivered."""
QUIET_S = 60.0
"""How long the group may take to be one again once all faults are over."""
_MEMBER = Path(__file__).with_name("member.py")
_SOURCES = Path(__file__).resolve().parents[2] / "src"


class Failure(AssertionError):
    """What the round has found, with the seed that it came from."""


class Member:
    """One name, on one host, through all its lives."""

    def __init__(self, name: str, address: str, spawn: Callable[..., subprocess.Popen[str]], options: dict[str, Any]):
        self.name = name
        self.data_dir = Path(options["directory"]) / name
        self.lives = 0
        self.stopped = False
        self._spawn = spawn
        self._script = str(options.get("script", _MEMBER))
        self._options = {key: options[key] for key in ("group", "key")} | {
            "name": name,
            "address": address,
            "data_dir": str(self.data_dir),
        }
        self._options |= options.get("more", {})
        self._seed = options["seed"]
        self.start()

    def start(self) -> None:
        self.lives += 1
        options = self._options | {"seed": f"{self._seed} {self.name} {self.lives}", "life": self.lives}
        with (self.data_dir.parent / f"{self.name}.err").open("a") as errors:
            self.process = self._spawn(
                [self._script, json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._gone()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], QUIET_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self._gone()
        said: dict[str, Any] = json.loads(line)
        return said

    def _gone(self) -> None:
        raise Failure(f"{self.name} has ended or does not answer (status {self.process.poll()}): {self.last_errors()}")

    def last_errors(self) -> str:
        return (self.data_dir.parent / f"{self.name}.err").read_text()[-2000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stopped = False
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def suspend(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.stopped = False


class Round:
    """Faults for `seconds`, quiet, verdict. Without hosts all processes share loopback and the network stays whole."""

    options: ClassVar[dict[str, Any]] = {}
    """Of the members, beside those that all have."""
    each_kind = False
    """Whether every kind of fault is to happen, however long that takes."""

    def __init__(self, seed: int, directory: Path, seconds: float, *, nodes: int = 5, hosts: Hosts | None = None):
        self.seed = seed
        self.directory = directory
        self.seconds = seconds
        self.rng = random.Random(seed)
        self.hosts = hosts
        self.faults: Counter[str] = Counter()
        options = {
            "directory": directory,
            "group": f"chaos-{os.getpid()}-{seed}",
            "key": self.rng.randbytes(32).hex(),
            "seed": seed,
        } | self.options
        self.members = [
            Member(
                f"n{at}",
                "127.0.0.1" if hosts is None else hosts[at].address,
                _spawn_here if hosts is None else hosts[at].python,
                options,
            )
            for at in range(nodes)
        ]

    def run(self) -> dict[str, Any]:
        try:
            self._wait_whole("at the start")
            self._fail_at_random()
            self._end_faults()
            self._quiet()
        except Failure as failure:
            raise Failure(f"seed {self.seed}: {failure} (faults: {dict(self.faults)})") from None
        finally:
            for member in self.members:
                member.kill()
        return self._check()

    # Faults

    def _fail_at_random(self) -> None:
        faults = self._kinds()
        until = time.monotonic() + self.seconds
        # Each kind at least once, in any order; then whatever comes.
        first = self.rng.sample(faults, len(faults))
        for number, fault in enumerate(itertools.chain(first, iter(lambda: self.rng.choice(faults), None))):
            if time.monotonic() >= until and (number >= len(first) or not self.each_kind):
                return
            fault()
            self.faults[fault.__name__.strip("_")] += 1
            # From within a recovery up to a ring that has formed and worked.
            time.sleep(self.rng.choice((0.02, 0.1, 0.3, 0.6, 1.0, 1.5)))
            for member in self.members:
                if member.stopped and self.rng.random() < 0.6:
                    member.go_on()
                if member.process.poll() is not None and self.rng.random() < 0.6:
                    self._restart(member)

    def _kinds(self) -> list[Callable[[], None]]:
        """What happens, some of it more often."""
        faults: list[Callable[[], None]] = [self._kill, self._kill, self._suspend, self._suspend]
        if self.hosts is not None:
            faults += [self._lose, self._cut, self._partition, self._partition, self._heal, self._heal]
        return faults

    def _kill(self) -> None:
        self.rng.choice(self.members).kill()

    def _restart(self, member: Member) -> None:
        if member.process.returncode != -signal.SIGKILL:
            member._gone()
        member.start()

    def _suspend(self) -> None:
        member = self.rng.choice(self.members)
        if member.process.poll() is None:
            member.suspend()

    def _lose(self) -> None:
        assert self.hosts is not None
        self.hosts.lose(self.rng.choice((1, 5, 15)))

    def _cut(self) -> None:
        assert self.hosts is not None
        self.hosts.cut(*self.rng.sample(list(self.hosts), 2))

    def _partition(self) -> None:
        assert self.hosts is not None
        shuffled = self.rng.sample(list(self.hosts), len(self.hosts))
        at = self.rng.randint(1, len(shuffled) - 1)
        self.hosts.partition(shuffled[:at], shuffled[at:])

    def _heal(self) -> None:
        assert self.hosts is not None
        self.hosts.heal()

    # The end

    def _end_faults(self) -> None:
        if self.hosts is not None:
            self.hosts.heal()
        for member in self.members:
            if member.stopped:
                member.go_on()
            if member.process.poll() is not None:
                self._restart(member)

    def _wait_whole(self, when: str) -> None:
        until = time.monotonic() + QUIET_S
        while True:
            said = self._ask("status")
            names = [member.name for member in self.members]
            whole = all(each["members"] == names and each["state"] in WHOLE for each in said)
            if whole and len({each["view"] for each in said}) == 1:
                return
            if time.monotonic() > until:
                raise Failure(f"the group does not become one {when}: {said}")
            time.sleep(0.05)

    def _quiet(self) -> None:
        self._wait_whole("after the faults")
        self._ask("quiet")
        until = time.monotonic() + QUIET_S
        while any(each["waiting"] for each in self._ask("status")):
            if time.monotonic() > until:
                raise Failure("messages are not delivered though the network is whole")
            time.sleep(0.05)
        # What the last sender has delivered the others deliver with the next rotation.
        time.sleep(0.5)
        self._wait_whole("in the quiet")
        self._ask("end")

    def _ask(self, order: str) -> list[dict[str, Any]]:
        for member in self.members:
            member.tell(order)
        return [member.hear() for member in self.members]

    def _check(self) -> dict[str, Any]:
        together = self.directory / "trace"
        together.mkdir()
        for member in self.members:
            shutil.copy(member.data_dir / "trace" / f"{member.name}.jsonl", together)
        verdict = check_trace(together)
        if not verdict.ok:
            raise Failure(f"seed {self.seed}: {verdict.violations} (trace in {together}, faults {dict(self.faults)})")
        return {
            "seed": self.seed,
            "faults": dict(self.faults),
            "lives": sum(member.lives for member in self.members),
            "events": verdict.events,
        }


def _spawn_here(arguments: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(_SOURCES)}
    return subprocess.Popen([sys.executable, *arguments], text=True, env=environment, **options)


@contextlib.contextmanager
def hosts_or_none(count: int, use: bool) -> Iterator[Hosts | None]:
    if not use:
        yield None
        return
    with make_hosts(count) as hosts:
        yield hosts
