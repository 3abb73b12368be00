"""The examples, as people run them: several processes each, one of them killed, one of them late."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from cli.processes import ROOT, Process, unique

EXAMPLES = ROOT / "examples"


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(example: str, *arguments: str) -> Process:
        started.append(Process(sys.executable, "-W", "error", EXAMPLES / example, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_it_is_short(path):
    assert len(path.read_text().splitlines()) < 60


def test_chat(start):
    room = unique("room")
    names = ("ann", "bob", "eve")
    people = [start("chat.py", room, name) for name in names]
    for person in people:
        person.wait_for(lambda person=person: "* in the room: ann, bob, eve" in person.lines, "all are here")
    for number in range(20):
        for person in people:
            person.write(f"line {number}, häh?\n")

    def said(person):
        return [line for line in person.lines if not line.startswith("*")]

    for person in people:
        person.wait_for(lambda person=person: len(said(person)) == 60)
    assert said(people[0]) == said(people[1]) == said(people[2])
    assert Counter(line.partition(":")[0] for line in said(people[0])) == dict.fromkeys(names, 20)
    people[2].end_input()
    assert people[2].wait() == 0
    people[0].wait_for(lambda: people[0].lines[-2:] == ["* eve has gone", "* in the room: ann, bob"])
    people[1].signal(signal.SIGINT)
    assert people[1].wait() == 0
    people[0].end_input()
    assert people[0].wait() == 0
    assert [person.errors for person in people] == [[], [], []]


def test_counter(start):
    counter = unique("counter")
    a, b = (start("counter.py", counter, name) for name in ("a", "b"))
    for replica in (a, b):
        replica.wait_for(lambda replica=replica: "# with a, b" in replica.errors)
    for number in range(1, 11):
        a.write(f"{number}\n")
        b.write("100\n")
    for replica in (a, b):
        replica.wait_for(lambda replica=replica: bool(replica.lines) and replica.lines[-1] == "1055")
    assert a.lines == b.lines, "both went through the same values"
    late = start("counter.py", counter, "late")
    late.wait_for(lambda: late.lines == ["1055"], "who comes late gets all of it at once")
    b.signal(signal.SIGKILL)
    b.wait()
    late.write("5\n")
    a.wait_for(lambda: a.lines[-1] == "1060")
    again = start("counter.py", counter, "b")
    again.wait_for(lambda: bool(again.lines))
    again.write("40\n")
    for replica in (a, late, again):
        replica.wait_for(lambda replica=replica: replica.lines[-1] == "1100")
        replica.end_input()
    assert [replica.wait() for replica in (a, late, again)] == [0, 0, 0]


def test_workers(start):
    shop = unique("shop")
    ann, bob = start("workers.py", shop, "ann"), start("workers.py", shop, "bob")
    eve = start("workers.py", shop, "eve", "300")
    bob.wait_for(lambda: len(bob.lines) >= 10, "bob works")
    bob.signal(signal.SIGKILL)
    bob.wait()
    assert eve.wait() == 0
    assert ann.wait() == 0
    assert [ann.errors, eve.errors] == [[], []]
    done = Counter(line.split()[-1] for process in (ann, bob, eve) for line in process.lines)
    assert set(done) == {f"eve-{number}" for number in range(300)}
    by_bob = {line.split()[-1] for line in bob.lines}
    twice = {job for job, times in done.items() if times > 1}
    assert twice <= by_bob, "only what the dead one did may be done again"
    assert max(done.values()) <= 2
