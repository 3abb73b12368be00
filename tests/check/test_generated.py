"""Generated executions: legal ones pass, damaged ones are refused, and the naive reading agrees on every one.

The seed, the length and the number of nodes are what Hypothesis chooses and shrinks; all else follows from them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from check.naive import Naive
from check.notation import Fields, Trace
from check.world import run
from ordercast.check import Event, check_events

SEEDS = st.integers(0, 2**32 - 1)
ACTIONS = st.integers(0, 150)
NODES = st.integers(1, 5)


def names(trace: Trace) -> list[str]:
    return [violation.property for violation in check_events(trace).violations]


@settings(max_examples=300, deadline=None)
@given(SEEDS, ACTIONS, NODES)
def test_a_legal_execution_passes(seed, actions, nodes):
    trace = run(Random(seed), actions, nodes)
    assert names(trace) == []
    typed = {node: [msgspec.convert(event, Event) for event in events] for node, events in trace.items()}
    assert check_events(typed).ok


def deliveries(trace: Trace) -> list[tuple[str, int]]:
    return [(node, at) for node, events in trace.items() for at, e in enumerate(events) if e["event"] == "deliver"]


def confs(trace: Trace) -> list[tuple[str, int]]:
    return [(node, at) for node, events in trace.items() for at, e in enumerate(events) if e["event"] == "conf"]


def changed(trace: Trace, node: str, at: int, **fields: object) -> None:
    trace[node][at] = {**trace[node][at], **fields}


# Each damage changes one thing and names a property that must then be violated; None if nothing suitable is there.
# What else it violates is the naive checker's to say.


def deliver_twice(trace: Trace, random: Random) -> str | None:
    for node, at in shuffled(deliveries(trace), random):
        trace[node].insert(random.randint(at + 1, len(trace[node])), dict(trace[node][at]))
        return "E2"
    return None


def send_twice(trace: Trace, random: Random) -> str | None:
    sends = [(node, at) for node, events in trace.items() for at, e in enumerate(events) if e["event"] == "send"]
    for node, at in shuffled(sends, random):
        trace[node].insert(at + 1, dict(trace[node][at]))
        return "E2"
    return None


def drop_a_send(trace: Trace, random: Random) -> str | None:
    for node, at in shuffled(deliveries(trace), random):
        event = trace[node][at]
        events = trace[str(event["sender"])]
        events.remove(next(e for e in events if e["event"] == "send" and e["msg"] == event["msg"]))
        return "E1"
    return None


def deliver_as_anothers(trace: Trace, random: Random) -> str | None:
    for node, at in shuffled(deliveries(trace), random):
        for other in shuffled(sorted(set(trace) - {str(trace[node][at]["sender"])}), random):
            changed(trace, node, at, sender=other)
            return "E1"
    return None


def deliver_as_another_service(trace: Trace, random: Random) -> str | None:
    for node, at in shuffled(deliveries(trace), random):
        changed(trace, node, at, service="agreed" if trace[node][at]["service"] == "safe" else "safe")
        return "E1"
    return None


def deliver_in_another(trace: Trace, random: Random) -> str | None:
    for node, at in shuffled(deliveries(trace), random):
        here = trace[node][at]["conf"]
        for other in shuffled(sorted({str(trace[n][a]["conf"]) for n, a in confs(trace)} - {str(here)}), random):
            changed(trace, node, at, conf=other)
            return "E1"
    return None


def send_in_another(trace: Trace, random: Random) -> str | None:
    sends = [(node, at) for node, events in trace.items() for at, e in enumerate(events) if e["event"] == "send"]
    for node, at in shuffled(sends, random):
        others = {str(trace[n][a]["conf"]) for n, a in confs(trace)} - {str(trace[node][at]["conf"])}
        for other in shuffled(sorted(others), random):
            changed(trace, node, at, conf=other)
            return "E3"
    return None


def change_members(trace: Trace, random: Random) -> str | None:
    """One node's list alone, of a configuration that another delivers as well."""
    for node, at in shuffled(confs(trace), random):
        event = trace[node][at]
        members = {str(member) for member in event["members"]}  # type: ignore[attr-defined]
        others = [n for n, a in confs(trace) if n != node and trace[n][a]["conf"] == event["conf"]]
        if others:
            changed(trace, node, at, members=sorted(members ^ {random.choice(sorted(trace))}))
            return "E5"
    return None


def not_a_member(trace: Trace, random: Random) -> str | None:
    for node, at in shuffled(confs(trace), random):
        members = [member for member in trace[node][at]["members"] if member != node]  # type: ignore[attr-defined]
        changed(trace, node, at, members=members)
        return "E4"
    return None


def install_twice(trace: Trace, random: Random) -> str | None:
    for node, at in shuffled(confs(trace), random):
        trace[node].insert(random.randint(at + 1, len(trace[node])), dict(trace[node][at]))
        return "E4"
    return None


def number_backwards(trace: Trace, random: Random) -> str | None:
    for node, at in shuffled(confs(trace), random):
        changed(trace, node, at, number=-1)
        return "E4" if at > min(a for n, a in confs(trace) if n == node) else None
    return None


def no_transition(trace: Trace, random: Random) -> str | None:
    """A transitional configuration goes, with the deliveries in it, and the regular one after it stays."""
    for node, at in shuffled(confs(trace), random):
        events = trace[node]
        following = next((a for n, a in confs(trace) if n == node and a > at), None)
        if events[at]["kind"] == "transitional" and following is not None:
            if any(event["event"] == "recover" for event in events[at:following]):
                continue
            del events[at:following]
            return "E4"
    return None


def parted(trace: Trace) -> list[tuple[str, int, int]]:
    """Node, place of a configuration and of the next, where another node goes from the one to the other too."""
    ways: dict[tuple[object, object], list[tuple[str, int, int]]] = {}
    for node, events in trace.items():
        last: int | None = None
        for at, event in enumerate(events):
            if event["event"] == "recover":
                last = None
            elif event["event"] == "conf":
                if last is not None:
                    ways.setdefault((events[last]["conf"], event["conf"]), []).append((node, last, at))
                last = at
    return [way for together in ways.values() if len(together) > 1 for way in together]


def drop_a_delivery(trace: Trace, random: Random) -> str | None:
    for node, start, stop in shuffled(parted(trace), random):
        there = [at for at in range(start, stop) if trace[node][at]["event"] == "deliver"]
        if there:
            del trace[node][random.choice(there)]
            return "E7"
    return None


def deliver_later(trace: Trace, random: Random) -> str | None:
    """The last delivery in a configuration changes places with the configuration after it."""
    for node, start, stop in shuffled(parted(trace), random):
        if stop - 1 > start and trace[node][stop - 1]["event"] == "deliver":
            events = trace[node]
            events[stop - 1], events[stop] = events[stop], {**events[stop - 1], "conf": events[stop]["conf"]}
            return "E7"
    return None


def swap_deliveries(trace: Trace, random: Random) -> str | None:
    """Two neighbours in one configuration that another node delivered too."""
    order = {n: [e["msg"] for e in events if e["event"] == "deliver"] for n, events in trace.items()}
    for node, at in shuffled(deliveries(trace), random):
        events = trace[node]
        if at + 1 < len(events) and events[at + 1]["event"] == "deliver":
            pair = {events[at]["msg"], events[at + 1]["msg"]}
            if any(other != node and pair <= set(order[other]) for other in trace):
                events[at], events[at + 1] = events[at + 1], events[at]
                return "E9"
    return None


def drop_at_the_end(trace: Trace, random: Random) -> str | None:
    """A delivery in the configuration in which all end."""
    ends = [node for node, events in trace.items() if events and events[-1]["event"] == "end"]
    for node in shuffled(ends, random):
        last = max(at for n, at in confs(trace) if n == node)
        there = [at for at in range(last, len(trace[node])) if trace[node][at]["event"] == "deliver"]
        if there:
            del trace[node][random.choice(there)]
            return "E14"
    return None


def lose_a_member(trace: Trace, random: Random) -> str | None:
    """One of those that end crashed instead, and the others did not notice."""
    ends = [node for node, events in trace.items() if events and events[-1]["event"] == "end"]
    if len(ends) < 2:
        return None
    del trace[random.choice(ends)][-1]
    return "E13"


DAMAGES: list[Callable[[Trace, Random], str | None]] = [
    deliver_twice,
    send_twice,
    drop_a_send,
    deliver_as_anothers,
    deliver_as_another_service,
    deliver_in_another,
    send_in_another,
    change_members,
    not_a_member,
    install_twice,
    number_backwards,
    no_transition,
    drop_a_delivery,
    deliver_later,
    swap_deliveries,
    drop_at_the_end,
    lose_a_member,
]


def shuffled(items: list, random: Random) -> list:  # type: ignore[type-arg]
    return random.sample(items, len(items))


def with_new_steps(trace: Trace) -> None:
    for events in trace.values():
        events[:] = [{**event, "step": step} for step, event in enumerate(events)]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(seed=SEEDS, actions=st.integers(60, 150), nodes=st.integers(2, 5))
def test_a_damaged_execution_is_refused(damage, seed, actions, nodes):
    random = Random(seed)
    trace = run(random, actions, nodes)
    wanted = damage(trace, random)
    assume(wanted is not None)
    with_new_steps(trace)
    found = names(trace)
    assert wanted in found
    assert found == Naive(trace).violated()


def scramble(trace: Trace, random: Random) -> None:
    """Any small change whatever, which may also leave the trace legal."""
    node = random.choice([node for node, events in trace.items() if events])
    events = trace[node]
    at, other = random.randrange(len(events)), random.randrange(len(events))
    event: Fields = dict(events[at])
    everything = [e for each in trace.values() for e in each]
    match random.randrange(9):
        case 0:
            del events[at]
        case 1:
            events[at], events[other] = events[other], events[at]
        case 2:
            events.insert(other, event)
        case 3:
            del events[at:]
        case 4:
            what = random.choice(["recover", "leave", "end", "close"])
            events.insert(at, {"node": node, "step": 0, "event": what})
        case 5 if "kind" in event:
            events[at] = {**event, "kind": random.choice(["regular", "transitional"])}
        case 6 if "members" in event:
            members = {str(member) for member in event["members"]}  # type: ignore[attr-defined]
            events[at] = {**event, "members": sorted(members ^ {random.choice(sorted(trace))})}
        case _:
            field = random.choice(["msg", "conf", "sender", "service"])
            values = [e[field] for e in everything if field in e]
            if field in event:
                events[at] = {**event, field: random.choice(values)}


@settings(max_examples=300, deadline=None)
@given(SEEDS, ACTIONS, NODES, st.integers(1, 4))
def test_the_naive_reading_agrees(seed, actions, nodes, changes):
    random = Random(seed)
    trace = run(random, actions, nodes)
    for _ in range(changes):
        assume(any(trace.values()))
        scramble(trace, random)
    assume(any(trace.values()))
    with_new_steps(trace)
    verdict = check_events(trace)
    assert [violation.property for violation in verdict.violations] == Naive(trace).violated()
    for violation in verdict.violations:
        assert 1 <= len(violation.evidence) <= nodes + 3, violation.evidence
