"""From events to the model: one pass over each node's events, and every fault that makes a trace unreadable."""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.check.corel_model import CorelModel
from ordercast.check.errors import TraceError
from ordercast.check.events import Close, Conf, Deliver, End, Event, Extra, Leave, Primary, Recover, Send
from ordercast.check.model import (
    CONF_BASE,
    NOBODY,
    Contradiction,
    Life,
    Mislabelled,
    Model,
    Node,
    Resent,
    StraySend,
    Visit,
)

_ENDINGS: dict[type, str] = {Leave: "leave", End: "end", Close: "close"}
_BEFORE_ALL_STEPS = -(1 << 63) - 1


class Builder:
    """Feed it the events of one node after the other, then take the model with `finish`."""

    def __init__(self, nodes: Iterable[str]) -> None:
        names = sorted(nodes)
        self.model = Model(names)
        self.corel = CorelModel(names)
        self._node_index = {name: index for index, name in enumerate(names)}
        # Twice the index, so that a claim on sender and service is one addition away.
        self._sender_code = {name: 2 * index for index, name in enumerate(names)}
        self._conf_index: dict[str, int] = {}
        self._member_sets: dict[tuple[str, ...], frozenset[int]] = {}
        self._clear(Node("", NOBODY))

    def _clear(self, node: Node) -> None:
        self._node = node
        self._life: Life | None = None
        self._visit: Visit | None = None
        self._last_sent: dict[int, int] = {}

    def feed(self, name: str, events: Iterable[Event | Extra], source: str, unit: str) -> None:
        """Read one node's events. `source` and `unit` ('line') say in an error where the event stands."""
        node = self.model.nodes[self._node_index[name]]
        self._clear(node)
        self._source, self._unit, self._count = source, unit, 0
        try:
            self._run(node, events)
        except OverflowError:
            raise TraceError(f"{source}: a step or place that does not fit into 64 bits") from None
        self._close_life("crash", None)

    def _refusal(self, problem: str) -> TraceError:
        return TraceError(f"{self._source}, {self._unit} {self._count}: {problem}")

    def _run(self, node: Node, events: Iterable[Event | Extra]) -> None:
        """The loop over all events, which is why it is one function with everything in locals."""
        model, messages, me, name = self.model, self.model.messages, node.index, node.name
        ids, uses, claims, senders = messages.ids, messages.uses, messages.claim, self._sender_code
        program, steps, delivered = node.program, node.steps, node.delivered
        latest: str | None = None
        last = _BEFORE_ALL_STEPS
        count = 0
        for event in events:
            count += 1
            step = event.step
            if step <= last:
                self._count = count
                raise self._refusal(f"step {step} does not grow, the one before it is {last}")
            if event.node != name:
                self._count = count
                raise self._refusal(f"an event of node {event.node!r} in the trace of {name!r}")
            last = step
            if type(event) is Deliver:
                key = event.msg
                message = ids.get(key)
                if message is None:
                    message = messages.add(key)
                code = senders.get(event.sender)
                if code is None:
                    code = self._name_sender(event.sender)
                if event.service == "safe":
                    code += 1
                if claims[message] != code:
                    if claims[message] == NOBODY:
                        claims[message] = code
                    else:
                        model.contradictions.append(Contradiction(me, len(delivered), message, code))
                if event.conf != latest:
                    self._open_life()
                    model.mislabelled.append(Mislabelled(me, len(delivered), event.conf, self._visit))
                uses[message] += 1
                program.append(message)
                delivered.append(message)
                steps.append(step)
            elif type(event) is Send:
                self._send(event)
            else:
                self._count = count
                self._other(event)
                latest = None if self._visit is None else model.confs[self._visit.conf]
        model.events += count

    def finish(self) -> Model:
        if not self.model.events:
            raise TraceError("an empty trace, there is no event in it")
        self.model.finish()
        self.corel.finish(self.model)
        return self.model

    def _send(self, event: Send) -> None:
        model, messages, node, visit = self.model, self.model.messages, self._node, self._visit
        message = messages.ids.get(event.msg)
        if message is None:
            message = messages.add(event.msg)
        conf = self._conf_index.get(event.conf)
        if conf is None:
            conf = self._name_conf(event.conf)
        safe = 1 if event.service == "safe" else 0
        place = len(node.program)
        if visit is None or visit.conf != conf or not visit.regular:
            self._open_life()
            model.stray_sends.append(StraySend(node.index, place, conf, visit))
        if messages.origin[message] == NOBODY:
            messages.origin[message] = node.index
            messages.sent_conf[message] = conf
            messages.sent_after[message] = len(node.delivered)
            messages.sent_at[message] = place
            messages.safe[message] = safe
            messages.previous[message] = self._last_sent.get(conf, NOBODY)
            self._last_sent[conf] = message
        else:
            model.resent.append(Resent(message, node.index, conf, safe, place))
        messages.uses[message] += 1
        node.program.append(~message)
        node.steps.append(event.step)
        node.sent.append(message)

    def _other(self, event: Event | Extra) -> None:
        if isinstance(event, Conf):
            self._configuration(event)
        elif isinstance(event, Recover):
            self._close_life("crash", event.step)
            self._open_life()
        elif type(event) in _ENDINGS:
            self._open_life()
            self._close_life(_ENDINGS[type(event)], event.step)
        elif isinstance(event, Primary):
            # Of the declared group some may never have started; who was in a primary component had.
            strangers = sorted(set(event.members) - self._node_index.keys())
            if strangers:
                raise self._refusal(
                    f"member {strangers[0]!r} of primary component {event.number} has no file in this trace"
                )
        # Anything else belongs to corel's messages, mtp or an engine: E1 to E14 do not speak of it.
        problem = self.corel.note(self._node.index, event)
        if problem is not None:
            raise self._refusal(problem)

    def _configuration(self, event: Conf) -> None:
        names = tuple(event.members)
        members = self._member_sets.get(names)
        if members is None:
            strangers = sorted(set(names) - self._node_index.keys())
            if strangers:
                raise self._refusal(f"member {strangers[0]!r} of {event.conf!r} has no file in this trace")
            members = self._member_sets[names] = frozenset(self._node_index[name] for name in names)
        life = self._open_life()
        conf = self._conf_index.get(event.conf)
        if conf is None:
            conf = self._name_conf(event.conf)
        node = self._node
        number = event.number if type(event.number) is int else None
        visit = Visit(
            node=node.index,
            life=len(node.lives) - 1,
            conf=conf,
            regular=event.kind == "regular",
            members=members,
            number=number,
            program_at=len(node.program),
            first=len(node.delivered),
        )
        if self._visit is not None and self._visit.conf == conf:
            # The configuration that the node is in: nothing begins by it. E4 and E5 look at the list.
            visit.last = visit.first
            self.model.repeated.append((self._visit, visit))
        else:
            self._close_visit()
            self._visit = visit
            life.visits.append(visit)
        node.program.append(CONF_BASE + conf)
        node.steps.append(event.step)

    def _open_life(self) -> Life:
        """The life that the event belongs to: what follows a leave or the closing of the trace is a new start."""
        if self._life is None:
            self._life = Life(len(self._node.program))
            self._node.lives.append(self._life)
            self._last_sent = {}
        return self._life

    def _close_life(self, ending: str, step: int | None) -> None:
        self._close_visit()
        if self._life is not None:
            self._life.ending = ending
            self._life.ending_step = step
            self._life.program_end = len(self._node.program)
        self._life = self._visit = None

    def _close_visit(self) -> None:
        if self._visit is not None:
            self._visit.last = len(self._node.delivered)

    def _name_conf(self, name: str) -> int:
        self._conf_index[name] = len(self.model.confs)
        self.model.confs.append(name)
        return self._conf_index[name]

    def _name_sender(self, name: str) -> int:
        self._sender_code[name] = 2 * len(self.model.names)
        self.model.names.append(name)
        return self._sender_code[name]
