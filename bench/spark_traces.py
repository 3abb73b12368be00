"""Large legal traces of nine nodes, and violations hidden in them: `python bench/spark_traces.py DIR --events 1000000`.

Seeds of the simulator, each with nine nodes, its faults and a heavy load, are put one behind the other: at the end of
a seed the group leaves, and the next seed is its next start. Identifiers get the seed before them. The trace is
Parquet, for each node a part a segment; segments are made in parallel, by as many processes as `--jobs` says.

`--hide E9` damages one run in the middle so that this property is violated, `--hide all` one run for each property.
`--like OTHER` takes from another trace the segments that this one would make the same, as hard links.
Prints one JSON object that says what was hidden where. The trace is for `ordercast check [--spark] DIR`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.check.events import Conf, Deliver, End, Event, Leave, Recover, Send
from ordercast.sim.generate import generate
from ordercast.sim.runner import make_world
from ordercast.sim.schedule import Action, Schedule

NODES = 9
SEGMENT_EVENTS = 1_000_000
SEEDS_OF_A_SEGMENT = 1_000
STEPS_OF_A_SEED = 2**26
SCHEMA = pa.schema(
    [
        ("node", pa.string()),
        ("step", pa.int64()),
        ("event", pa.string()),
        ("conf", pa.string()),
        ("kind", pa.string()),
        ("members", pa.list_(pa.string())),
        ("number", pa.int64()),
        ("msg", pa.string()),
        ("sender", pa.string()),
        ("service", pa.string()),
    ]
)

Trace = dict[str, list[Event]]


@dataclass
class Segment:
    """A part of the trace, made by one process on its own: the same whenever these fields are."""

    number: int
    events: int
    last: bool
    load_us: int
    hide: list[str] = field(default_factory=list)


def schedule(seed: int, load_us: int) -> Schedule:
    """The seed's faults, and a burst of small messages every so often instead of the seed's light load at its end."""
    plan = generate(seed, nodes=NODES)
    rng = Random(f"{seed}/trace")
    healed = next(action.at_us for action in plan.actions if action.what == "heal")
    actions = list(plan.actions)
    at = 300_000
    while at < healed:
        service = "safe" if rng.random() < 0.125 else "agreed"
        actions.append(Action(at, f"send 200 n{rng.randint(1, NODES)} size=12..24 service={service}"))
        at += rng.randrange(load_us)
    actions.sort(key=lambda action: action.at_us)
    return replace(plan, actions=tuple(actions), config=(("packet_bytes", 1400),), minimum=0)


def run(seed: int, load_us: int) -> Trace:
    world = make_world(schedule(seed, load_us))
    world.run()
    assert not world.violations, (seed, world.violations)
    return world.traces


# Hiding


def some(trace: Trace, kind: type, random: Random) -> Iterator[tuple[str, int]]:
    """All events of a kind: the nodes in any order, each from any place on."""
    for node in random.sample(sorted(trace), len(trace)):
        events = trace[node]
        first = random.randrange(len(events)) if events else 0
        for at in (*range(first, len(events)), *range(first)):
            if type(events[at]) is kind:
                yield node, at


def regular_of(events: list[Event], at: int) -> int | None:
    """Where the regular configuration stands in which a node is before this event, if it is in a regular one."""
    while at >= 0 and not isinstance(events[at], Conf):
        if isinstance(events[at], (Recover, Leave)):
            return None
        at -= 1
    return at if at >= 0 and events[at].kind == "regular" else None


def stay(events: list[Event], at: int) -> range:
    """What a node does in the configuration that it delivers here."""
    end = at + 1
    while end < len(events) and type(events[end]) in (Deliver, Send):
        end += 1
    return range(at + 1, end)


def goes_on(events: list[Event], at: int) -> bool:
    """Whether the node reaches another regular configuration in the same life."""
    for event in events[at + 1 :]:
        if isinstance(event, (Recover, Leave, End)):
            return False
        if isinstance(event, Conf) and event.kind == "regular":
            return True
    return False


def e1(trace: Trace, random: Random) -> str | None:
    """A delivery that names another sender."""
    for node, at in some(trace, Deliver, random):
        event = trace[node][at]
        other = next(name for name in trace if name != event.sender)
        trace[node][at] = Deliver(node, event.step, event.msg, other, event.conf, event.service)
        return event.msg
    return None


def e2(trace: Trace, random: Random) -> str | None:
    """A message that a node delivers twice."""
    for node, at in some(trace, Deliver, random):
        trace[node].insert(at + 1, trace[node][at])
        return trace[node][at].msg
    return None


def e3(trace: Trace, random: Random) -> str | None:
    """A node's first message in a configuration, sent before the node has installed it."""
    for node, at in some(trace, Conf, random):
        events = trace[node]
        sends = [place for place in stay(events, at) if type(events[place]) is Send]
        if at and events[at].kind == "regular" and sends:
            events.insert(at, events.pop(sends[0]))
            return events[at].msg
    return None


def e4(trace: Trace, random: Random) -> str | None:
    """From one regular configuration to the next without a transitional one."""
    for node, at in some(trace, Conf, random):
        events = trace[node]
        if events[at].kind == "transitional" and isinstance(events[at + 1], Conf):
            return events.pop(at).conf
    return None


def e5(trace: Trace, random: Random) -> str | None:
    """A configuration in which one node sees a member less than the others."""
    for node, at in some(trace, Conf, random):
        event = trace[node][at]
        others = [name for name in event.members if name != node]
        shared = any(isinstance(e, Conf) and e.conf == event.conf for name in others for e in trace[name])
        if event.kind == "regular" and shared:
            less = tuple(name for name in event.members if name != others[0])
            trace[node][at] = Conf(node, event.step, event.conf, event.kind, less, event.number)
            return event.conf
    return None


def without(trace: Trace, random: Random, fits: Callable[[str, int, Deliver], bool]) -> str | None:
    """A delivery less in a regular configuration, by a node that goes on to another."""
    for node, at in some(trace, Deliver, random):
        events = trace[node]
        if fits(node, at, events[at]) and regular_of(events, at) is not None and goes_on(events, at):
            return events.pop(at).msg
    return None


def e6(trace: Trace, random: Random) -> str | None:
    """A sender that goes on without its own message."""
    return without(trace, random, lambda node, at, event: event.sender == node)


def e7(trace: Trace, random: Random) -> str | None:
    """A node that goes on with others and lacks the last message that they have delivered."""
    return without(
        trace, random, lambda node, at, event: event.sender != node and isinstance(trace[node][at + 1], Conf)
    )


def e8(trace: Trace, random: Random) -> str | None:
    """Two messages of one sender that all deliver the wrong way round."""
    places: dict[str, list[tuple[str, int]]] = {}
    for node, events in trace.items():
        for at, event in enumerate(events):
            if type(event) is Deliver:
                places.setdefault(event.msg, []).append((node, at))
    for node, at in some(trace, Deliver, random):
        one, other = trace[node][at], trace[node][at + 1] if at + 1 < len(trace[node]) else None
        if type(other) is not Deliver or other.sender != one.sender or other.conf != one.conf:
            continue
        if {(name, place + 1) for name, place in places[one.msg]} == set(places[other.msg]):
            for name, place in places[one.msg]:
                events = trace[name]
                events[place], events[place + 1] = events[place + 1], events[place]
            return one.msg
    return None


def e9(trace: Trace, random: Random) -> str | None:
    """Two messages of different senders that one node delivers the wrong way round."""
    for node, at in some(trace, Deliver, random):
        events = trace[node]
        other = events[at + 1] if at + 1 < len(events) else None
        if type(other) is Deliver and other.sender != events[at].sender and len(members(events, at)) > 1:
            events[at], events[at + 1] = other, events[at]
            return other.msg
    return None


def members(events: list[Event], at: int) -> tuple[str, ...]:
    begin = regular_of(events, at)
    return () if begin is None else events[begin].members


def e10(trace: Trace, random: Random) -> str | None:
    """A hole: a node delivers what comes behind a message that it lacks, and crashes before it goes on."""
    for node, at in some(trace, Deliver, random):
        events = trace[node]
        if type(events[at + 1]) is Deliver and events[at].sender != node and len(members(events, at)) > 1:
            return events.pop(at).msg
    return None


def e11(trace: Trace, random: Random) -> str | None:
    """A safe message that a member goes on without."""
    return without(trace, random, lambda node, at, event: event.service == "safe" and event.sender != node)


def e12(trace: Trace, random: Random) -> str | None:
    """A message delivered as safe in a configuration that one of its members never installs: it crashed before."""
    for node, at in some(trace, Conf, random):
        events, conf = trace[node], trace[node][at]
        visit = stay(events, at)
        crashed = visit.stop == len(events) or type(events[visit.stop]) is Recover
        if conf.kind != "regular" or not crashed or any(type(events[place]) is Send for place in visit):
            continue
        for other, begin in some(trace, Conf, random):
            msgs = [e.msg for e in (trace[other][place] for place in stay(trace[other], begin)) if type(e) is Deliver]
            if other != node and trace[other][begin].conf == conf.conf and msgs:
                del events[at : visit.stop]
                make_safe(trace, msgs[-1])
                return msgs[-1]
    return None


def make_safe(trace: Trace, msg: str) -> None:
    for node, events in trace.items():
        for place, event in enumerate(events):
            if isinstance(event, Deliver) and event.msg == msg:
                events[place] = Deliver(node, event.step, msg, event.sender, event.conf, "safe")
            elif isinstance(event, Send) and event.msg == msg:
                events[place] = Send(node, event.step, msg, event.conf, "safe")


def e13(trace: Trace, random: Random) -> str | None:
    """At the end a node that was down is back, and alone. It wants a node that is down at the end."""
    for node, events in trace.items():
        if events and not isinstance(events[-1], End):
            number = 1 + max(event.number for event in events if isinstance(event, Conf) and event.number)
            alone = f"{number}:{node}/alone"
            events += [Recover(node, 0), Conf(node, 0, alone, "regular", (node,), number), End(node, 0)]
            return alone
    return None


def e14(trace: Trace, random: Random) -> str | None:
    """The last message of the trace, which one node has not delivered."""
    for node, events in trace.items():
        if isinstance(events[-1], End) and isinstance(events[-2], Deliver) and events[-2].sender != node:
            return events.pop(-2).msg
    return None


HIDING: dict[str, Callable[[Trace, Random], str | None]] = {
    "E1": e1, "E2": e2, "E3": e3, "E4": e4, "E5": e5, "E6": e6, "E7": e7, "E8": e8, "E9": e9, "E10": e10, "E11": e11,
    "E12": e12, "E13": e13, "E14": e14,
}  # fmt: skip
AT_THE_END = ("E14", "E13")
"""They speak of the end of a trace, so they are hidden in its last run."""


# Writing


def make_segment(directory: Path, like: Path | None, segment: Segment) -> tuple[int, dict[str, str]]:
    mark = directory / ".segments" / f"{segment.number:06}.json"
    if like is not None and (events := linked(directory, like, segment)):
        found: tuple[int, dict[str, str]] = events, {}
    else:
        found = make_anew(directory, segment)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps({"segment": asdict(segment), "events": found[0]}))
    return found


def linked(directory: Path, like: Path, segment: Segment) -> int:
    """Takes a segment over from another trace, if that has the same; its events."""
    mark = like / ".segments" / f"{segment.number:06}.json"
    known = json.loads(mark.read_text()) if mark.exists() else {}
    if known.get("segment") != asdict(segment):
        return 0
    for node in range(1, NODES + 1):
        part = f"n{node}.parquet/part-{segment.number:06}.parquet"
        (directory / part).parent.mkdir(parents=True, exist_ok=True)
        (directory / part).hardlink_to(like / part)
    return int(known["events"])


def make_anew(directory: Path, segment: Segment) -> tuple[int, dict[str, str]]:
    columns = {f"n{node}": Columns(f"n{node}") for node in range(1, NODES + 1)}
    hidden: dict[str, str] = {}
    hide = [name for name in segment.hide if name not in AT_THE_END]
    ending = [name for name in segment.hide if name in AT_THE_END]
    first = segment.number * SEEDS_OF_A_SEGMENT
    events = runs = 0
    for seed in range(first, first + SEEDS_OF_A_SEGMENT):
        trace = run(seed, segment.load_us)
        if hide and (found := HIDING[hide[0]](trace, Random(seed))):
            hidden[hide.pop(0)] = f"{seed}.{found}"
        runs += 1
        # Runs are large: a segment ends where another one would lead further away from what was asked.
        enough = (events + sum(map(len, trace.values()))) * (1 + 0.5 / runs) >= segment.events and not hide
        if enough and ending:
            # A run that is not fit to be the last one is left out.
            found_all = {name: HIDING[name](trace, Random(seed)) for name in ending}
            if not all(found_all.values()):
                continue
            hidden |= {name: f"{seed}.{found}" for name, found in found_all.items()}
        last = segment.last and enough
        for node, some_events in trace.items():
            columns[node].add(some_events, seed, last)
        events += sum(map(len, trace.values()))
        if enough:
            break
    else:
        raise AssertionError(f"nothing to hide {[*hide, *ending]} in")
    return sum(column.write(directory, segment.number) for column in columns.values()), hidden


class Columns:
    """The events of one node in one segment."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.rows: list[tuple[object, ...]] = []

    def add(self, events: list[Event], seed: int, last: bool) -> None:
        step = seed * STEPS_OF_A_SEED
        add = self.rows.append
        if seed:
            step += 1
            add((step, "recover", None, None, None, None, None, None, None))
        mark = f"{seed}."
        for event in events:
            step += 1
            kind = type(event)
            if kind is Deliver:
                add((step, "deliver", mark + event.conf, None, None, None, mark + event.msg, event.sender,
                     event.service))  # fmt: skip
            elif kind is Send:
                add((step, "send", mark + event.conf, None, None, None, mark + event.msg, None, event.service))
            elif kind is Conf:
                number = seed << 32 | event.number if isinstance(event.number, int) else None
                add((step, "conf", mark + event.conf, event.kind, event.members, number, None, None, None))
            else:
                # Only the last run ends; after each of the others the group leaves, and starts again.
                name = "leave" if kind is End and not last else kind.__name__.lower()
                add((step, name, None, None, None, None, None, None, None))

    def write(self, directory: Path, number: int) -> int:
        names = SCHEMA.names[1:]
        data = [pa.array(column, SCHEMA.field(name).type) for name, column in zip(names, zip(*self.rows, strict=True),
                                                                                strict=True)]  # fmt: skip
        table = pa.table([pa.array([self.node] * len(self.rows)), *data], schema=SCHEMA)
        folder = directory / f"{self.node}.parquet"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / f"part-{number:06}.parquet", row_group_size=2**18, compression="zstd")
        return len(self.rows)


def segments(events: int, size: int, load_us: int, hide: list[str]) -> list[Segment]:
    count = max(1, round(events / size))
    made = [Segment(number, min(size, events), number == count - 1, load_us) for number in range(count)]
    for nth, name in enumerate(hide):
        made[-1 if name in AT_THE_END else (count // 2 + nth) % count].hide.append(name)
    return made


def write_trace(
    directory: Path, events: int, *, jobs: int = 1, hide: list[str] | None = None, size: int = SEGMENT_EVENTS,
    load_us: int = 100_000, like: Path | None = None,
) -> tuple[int, dict[str, str]]:  # fmt: skip
    """The trace, about as many events as asked; gives how many there are, and what was hidden."""
    parts = segments(events, size, load_us, hide or [])
    total, hidden = 0, dict[str, str]()
    for count, some in _made(partial(make_segment, directory, like), parts, jobs):
        total += count
        hidden |= some
    return total, hidden


def _made(
    work: Callable[[Segment], tuple[int, dict[str, str]]], parts: list[Segment], jobs: int
) -> Iterator[tuple[int, dict[str, str]]]:
    if jobs == 1:
        yield from map(work, parts)
        return
    with get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(work, parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--hide", default="", metavar="E1,…|all", help="properties to violate, each in a run of its own"
    )
    parser.add_argument("--like", type=Path, metavar="OTHER", help="link what it has already")
    args = parser.parse_args()
    hide = list(HIDING) if args.hide == "all" else [name for name in args.hide.split(",") if name]
    events, hidden = write_trace(args.directory, args.events, jobs=args.jobs, hide=hide, like=args.like)
    print(json.dumps({"directory": str(args.directory), "events": events, "hidden": hidden}))


if __name__ == "__main__":
    main()
