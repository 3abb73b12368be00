"""E1 to E14 written down as they are worded, with no thought of speed: what the checker is compared with.

It shares nothing with the checker, neither its model nor its shortcuts; a trace is what `notation.parse` returns.
Reading it beside properties.md is how one convinces oneself that the checker means the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise, permutations
from typing import Any

from check.notation import Trace


@dataclass(eq=False)
class Visit:
    node: str
    conf: str
    kind: str
    members: frozenset[str]
    number: Any
    at: int
    delivered: list[tuple[int, str]] = field(default_factory=list)


@dataclass(eq=False)
class Life:
    node: str
    visits: list[Visit] = field(default_factory=list)
    ending: str = "crash"
    ended_at: int = -1


@dataclass(eq=False)
class Send:
    node: str
    msg: str
    conf: str
    service: str
    at: int
    life: Life
    latest: Visit | None


@dataclass(eq=False)
class Deliver:
    node: str
    msg: str
    sender: str
    service: str
    conf: str
    at: int
    life: Life
    latest: Visit | None


class Naive:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lives: list[Life] = []
        self.sends: list[Send] = []
        self.delivers: list[Deliver] = []
        self.repeated: list[Visit] = []
        for node, events in trace.items():
            self._read(node, events)
        self.visits = [visit for life in self.lives for visit in life.visits]
        self.life_of = {visit: life for life in self.lives for visit in life.visits}
        self.sent: dict[str, Send] = {}
        for send in self.sends:
            self.sent.setdefault(send.msg, send)

    def _read(self, node: str, events: list[dict[str, Any]]) -> None:
        life: Life | None = None
        for at, event in enumerate(events):
            what = event["event"]
            if what == "recover" or life is None:
                life = Life(node)
                self.lives.append(life)
            latest = life.visits[-1] if life.visits else None
            if what == "conf":
                members = frozenset(event["members"])
                visit = Visit(node, event["conf"], event["kind"], members, event.get("number"), at)
                # The configuration that the node is in already: E4 and E5 look at it, and nothing begins by it.
                if latest is not None and latest.conf == visit.conf:
                    self.repeated.append(visit)
                else:
                    life.visits.append(visit)
            elif what == "send":
                self.sends.append(Send(node, event["msg"], event["conf"], event["service"], at, life, latest))
            elif what == "deliver":
                fields = event["msg"], event["sender"], event["service"], event["conf"]
                self.delivers.append(Deliver(node, *fields, at, life, latest))
                if latest is not None:
                    latest.delivered.append((at, event["msg"]))
            elif what in ("leave", "end", "close"):
                life.ending, life.ended_at = what, at
                life = None

    def following(self, visit: Visit) -> Visit | None:
        visits = self.life_of[visit].visits
        place = visits.index(visit)
        return visits[place + 1] if place + 1 < len(visits) else None

    def before(self, visit: Visit) -> Visit | None:
        visits = self.life_of[visit].visits
        place = visits.index(visit)
        return visits[place - 1] if place else None

    def com(self, visit: Visit) -> list[Visit]:
        after = self.following(visit)
        if visit.kind == "regular" and after is not None and after.kind == "transitional":
            return [visit, after]
        return [visit]

    def delivered_before(self, node: str, msg: str, at: int) -> bool:
        return any(each.node == node and each.msg == msg and each.at < at for each in self.delivers)

    def passages(self) -> Iterator[tuple[Visit, list[tuple[int, str, Visit]]]]:
        """com_p(c) for each visit of a regular c: the messages sent in c that were delivered there, first time only."""
        for visit in self.visits:
            if visit.kind == "regular":
                yield visit, self.passage(visit)

    def passage(self, visit: Visit) -> list[tuple[int, str, Visit]]:
        found: dict[str, tuple[int, str, Visit]] = {}
        for where in self.com(visit):
            for at, msg in where.delivered:
                if msg in self.sent and self.sent[msg].conf == visit.conf:
                    found.setdefault(msg, (at, msg, where))
        return list(found.values())

    def violated(self) -> list[str]:
        return [name for name in (f"E{n}" for n in range(1, 15)) if any(getattr(self, name.lower())())]

    def e1(self) -> Iterator[bool]:
        for each in self.delivers:
            sends = [send for send in self.sends if send.msg == each.msg]
            yield not any((send.node, send.service) == (each.sender, each.service) for send in sends)
            latest = each.latest
            yield latest is None or latest.conf != each.conf
            if latest is not None and sends:
                allowed = {latest.conf}
                before = self.before(latest)
                if latest.kind == "transitional" and before is not None:
                    allowed.add(before.conf)
                yield not any(send.conf in allowed for send in sends)

    def e2(self) -> Iterator[bool]:
        yield len(self.sends) != len({send.msg for send in self.sends})
        yield len(self.delivers) != len({(each.node, each.msg) for each in self.delivers})

    def e3(self) -> Iterator[bool]:
        for send in self.sends:
            yield send.latest is None or send.latest.conf != send.conf or send.latest.kind != "regular"

    def e4(self) -> Iterator[bool]:
        yield bool(self.repeated)
        yield len(self.visits) != len({(visit.node, visit.conf) for visit in self.visits})
        yield len({visit.conf for visit in self.visits}) != len({(visit.conf, visit.kind) for visit in self.visits})
        for visit in self.visits:
            yield visit.node not in visit.members
            before, after = self.before(visit), self.following(visit)
            if before is None:
                yield visit.kind != "regular" or visit.members != {visit.node}
            elif visit.kind == "regular":
                yield before.kind != "transitional"
            else:
                yield before.kind != "regular"
            if visit.kind == "transitional":
                yield after.kind != "regular" if after is not None else self.life_of[visit].ending == "end"
            if visit.kind == "transitional" and before is not None and after is not None:
                yield from self.e4_change(before, visit, after)
        for node in self.trace:
            numbers = [visit.number for visit in self.visits if visit.node == node and visit.number is not None]
            yield any(after <= before for before, after in pairwise(numbers))

    def e4_change(self, r1: Visit, t: Visit, r2: Visit) -> Iterator[bool]:
        if r1.kind != "regular" or r2.kind != "regular":
            return
        yield t.node not in t.members
        yield not t.members <= (r1.members & r2.members)
        for member in t.members:
            yield not any(visit.node == member and visit.conf == r1.conf for visit in self.visits)
        for visit in self.visits:
            if visit.conf == r2.conf and visit.kind == "regular":
                life = self.life_of[visit].visits
                regular = [each.conf for each in life[: life.index(visit)] if each.kind == "regular"]
                yield (visit.node in t.members) != (regular[-1:] == [r1.conf])

    def e5(self) -> Iterator[bool]:
        for one, other in combinations([*self.visits, *self.repeated], 2):
            yield one.conf == other.conf and one.node != other.node and one.members != other.members

    def e6(self) -> Iterator[bool]:
        for send in self.sends:
            there = [visit for visit in send.life.visits if visit.conf == send.conf]
            for visit in ([visit for visit in there if visit.at < send.at][-1:] or there)[:1]:
                after = self.following(self.com(visit)[-1])
                if after is not None and after.at > send.at:
                    yield not self.delivered_before(send.node, send.msg, after.at)
                elif after is None and send.life.ending == "leave":
                    yield not self.delivered_before(send.node, send.msg, send.life.ended_at)

    def e7(self) -> Iterator[bool]:
        for one, other in combinations(self.visits, 2):
            if one.conf == other.conf and one.node != other.node:
                mine, theirs = self.following(one), self.following(other)
                if mine is not None and theirs is not None and mine.conf == theirs.conf:
                    yield {msg for _, msg in one.delivered} != {msg for _, msg in other.delivered}

    def causes(self, conf: str) -> dict[str, set[str]]:
        """For each message sent in the configuration all that precede it causally."""
        sends = [send for send in self.sent.values() if send.conf == conf]
        causes: dict[str, set[str]] = {send.msg: set() for send in sends}
        for send in sends:
            for other in sends:
                if other.life is send.life and other.at < send.at:
                    causes[send.msg].add(other.msg)
            for visit in send.life.visits:
                if visit.conf == conf and visit.kind == "regular":
                    causes[send.msg].update(msg for at, msg in visit.delivered if at < send.at and msg in causes)
        grown = True
        while grown:
            grown = False
            for mine in causes.values():
                more = set().union(*(causes[msg] for msg in mine)) - mine
                mine |= more
                grown = grown or bool(more)
        return causes

    def e8(self) -> Iterator[bool]:
        for conf in {visit.conf for visit in self.visits}:
            causes = self.causes(conf)
            for visit, passage in self.passages():
                if visit.conf == conf:
                    for at, msg, _ in passage:
                        yield any(not self.delivered_before(visit.node, m, at) for m in causes[msg] - {msg})

    def e9(self) -> Iterator[bool]:
        after: dict[tuple[str, object], set[tuple[str, object]]] = {}
        for node, events in self.trace.items():
            points: list[tuple[str, object]] = []
            for at, event in enumerate(events):
                if event["event"] == "conf":
                    points.append(("conf", event["conf"]))
                elif event["event"] == "deliver":
                    points.append(("deliver", event["msg"]))
                elif event["event"] == "send":
                    points.append(("send", (node, at)))
                    after.setdefault(points[-1], set()).add(("deliver", event["msg"]))
            for one, other in pairwise(points):
                if one != other:
                    after.setdefault(one, set()).add(other)
        left = set(after) | {point for points in after.values() for point in points}
        while True:
            free = left - {point for one in left for point in after.get(one, ()) if point in left}
            if not free:
                break
            left -= free
        yield bool(left)

    def e10(self) -> Iterator[bool]:
        passages = list(self.passages())
        for (p, mine), (q, theirs) in permutations(passages, 2):
            if p.conf != q.conf or p.node == q.node:
                continue
            for (_, m, here), (_, later, there) in combinations(mine, 2):
                for at, msg, where in theirs:
                    if msg == later and not self.delivered_before(q.node, m, at):
                        both = here.conf == there.conf == where.conf
                        yield self.sent[m].node in where.members or both

    def e11(self) -> Iterator[bool]:
        for p, mine in self.passages():
            for _, msg, c in mine:
                if self.sent[msg].service != "safe":
                    continue
                for q in self.visits:
                    if q.conf == p.conf and q.kind == "regular" and q.node in c.members:
                        life = self.life_of[q]
                        later = life.visits[life.visits.index(q) + 1 :]
                        goes_on = any(visit.kind == "regular" for visit in later) or life.ending == "end"
                        yield goes_on and msg not in {m for _, m, _ in self.passage(q)}

    def e12(self) -> Iterator[bool]:
        for each in self.delivers:
            c = each.latest
            if c is None or c.kind != "regular" or each.msg not in self.sent or self.sent[each.msg].service != "safe":
                continue
            for member in c.members:
                yield not any(visit.node == member and visit.conf == c.conf for visit in self.visits)

    def ends(self) -> dict[str, Visit | None]:
        last = {life.node: life for life in self.lives}
        return {n: (life.visits or [None])[-1] for n, life in last.items() if life.ending == "end"}  # type: ignore[list-item]

    def e13(self) -> Iterator[bool]:
        ends = self.ends()
        for visit in ends.values():
            yield visit is None or visit.members != set(ends)
        yield len({visit.conf for visit in ends.values() if visit is not None}) > 1

    def e14(self) -> Iterator[bool]:
        ends = self.ends()
        for visit in ends.values():
            if visit is None:
                continue
            there = {node for node, last in ends.items() if last is not None and last.conf == visit.conf}
            members = {member for node in there for member in ends[node].members}  # type: ignore[union-attr]
            if members <= there:
                for send in self.sent.values():
                    if send.conf == visit.conf:
                        yield not self.delivered_before(visit.node, send.msg, len(self.trace[visit.node]))
