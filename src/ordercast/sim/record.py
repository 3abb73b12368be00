"""What the nodes of a simulated group did, as the typed events of the trace checker."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import msgspec

from ordercast.check.events import Close, Conf, Deliver, End, Event, Leave, Recover, Send, ServiceName
from ordercast.engine.assemble import Assembler
from ordercast.engine.contract import Install, Kind, Originated, Report, Run, View
from ordercast.log.batch import LogBatch
from ordercast.wire.chunk import Chunk
from ordercast.wire.ids import NodeKey, Service

_SERVICES: dict[Service, ServiceName] = {Service.AGREED: "agreed", Service.SAFE: "safe"}
_KINDS = {Kind.REGULAR: "regular", Kind.TRANSITIONAL: "transitional"}


class Messages:
    """All messages that were ever submitted: what they are called, and what they must look like on delivery."""

    __slots__ = ("chunks", "columns", "keys", "names")

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {}
        """The identifier of each message, by its whole body: so a body that was damaged is none of ours."""
        self.columns: dict[bytes, tuple[bytes | None, bytes | None]] = {}
        """The key and headers of the messages that were sent with these columns."""
        self.keys: dict[NodeKey, str] = {}
        """The names of the nodes, by the key that stands for them in packets."""
        self.chunks: dict[bytes, tuple[str, ...]] = {}
        """What the messages of a chunk of corel are called, by its bytes."""

    def of_chunk(self, raw: bytes, chunk: Chunk) -> tuple[str, ...]:
        """The names of a chunk's messages; a change of the group is called by its sender and number."""
        names = self.chunks.get(raw)
        if names is None:
            if chunk.change:
                names = (f"{chunk.sender}.change:{chunk.first}",)
            else:
                names = tuple(self._name(*record) for record in LogBatch(chunk, 0).records())
            self.chunks[raw] = names
        return names

    def _name(self, key: bytes | None, headers: bytes | None, body: bytes) -> str:
        if self.columns.get(body, (None, None)) != (key, headers):
            return f"key or headers of {body[:40]!r}"
        return self.names.get(body) or f"unknown {body[:40]!r}"


class NodeLog:
    """The trace of one node through all its lives."""

    __slots__ = ("_assembler", "_messages", "_queued", "alarms", "events", "faulty", "keep_reports", "node",
                 "numbered", "reports", "step", "view", "views")  # fmt: skip

    def __init__(self, node: str, messages: Messages, keep_reports: bool) -> None:
        self.node = node
        self.events: list[Event] = []
        self.step = 0
        self.view: View | None = None
        """The last regular configuration of this life."""
        self.views = 0
        self.numbered = True
        """Whether the numbers of configurations are bound to grow: until the disk is wiped."""
        self.faulty: set[int] = set()
        """Redundant networks, counted from 1, that are faulty here now."""
        self.alarms: dict[int, int] = {}
        """How often each of them was reported as faulty, in all lives."""
        self.keep_reports = keep_reports
        self.reports: list[str] = []
        self._messages = messages
        self._assembler = Assembler()
        self._queued: deque[tuple[str, Service]] = deque()

    def begin_life(self, recovered: bool) -> None:
        self.view = None
        self.faulty.clear()
        self._assembler = Assembler()
        self._queued.clear()
        if recovered:
            self.step += 1
            self.events.append(Recover(self.node, self.step))

    def queued(self, name: str, service: Service) -> None:
        """A message was submitted; `originated` takes them in the same order."""
        self._queued.append((name, service))

    def originated(self, effect: Originated) -> None:
        if effect.count > len(self._queued):
            raise AssertionError(f"{effect.count} messages originated, {len(self._queued)} submitted")
        for _ in range(effect.count):
            name, service = self._queued.popleft()
            self.step += 1
            self.events.append(Send(self.node, self.step, name, effect.view_id, _SERVICES[service]))

    def reported(self, report: Report) -> None:
        if report.what.startswith("network_"):
            self.network(report)
        if self.keep_reports:
            self.reports.append(f"{report.what}: {report.reason}")

    def network(self, report: Report) -> None:
        """A redundant network has become faulty, or is sound again."""
        number = report.detail["network"]
        assert isinstance(number, int)
        if report.what == "network_fault":
            self.faulty.add(number)
            self.alarms[number] = self.alarms.get(number, 0) + 1
        else:
            self.faulty.discard(number)

    def deliver(self, view_id: str, runs: Iterable[Run]) -> None:
        node, step, append = self.node, self.step, self.events.append
        feed, keys, names = self._assembler.feed, self._messages.keys, self._messages.names
        for run in runs:
            batch = feed(run)
            if batch is None:
                continue
            sender = keys.get(batch.sender_key) or f"key {batch.sender_key:x}"
            service = _SERVICES[batch.service]
            columns = batch.key_lengths is not None or batch.header_lengths is not None
            bodies = [self._check_columns(*record) for record in batch.records()] if columns else batch
            for body in bodies:
                step += 1
                append(Deliver(node, step, names.get(body) or f"unknown {body[:40]!r}", sender, view_id, service))
        self.step = step

    def _check_columns(self, key: bytes | None, headers: bytes | None, body: bytes) -> bytes:
        """The body, or something that nobody sent if its key or headers are not what they were."""
        if self._messages.columns.get(body, (None, None)) == (key, headers):
            return body
        return b"key or headers of " + body

    def install(self, effect: Install) -> None:
        if effect.transitional is not None:
            if self.view is None:
                raise AssertionError("a transitional configuration without a regular one before it")
            self.deliver(self.view.id, effect.before)
            self._conf(effect.transitional)
            self.deliver(effect.transitional.id, effect.between)
        elif effect.before or effect.between:
            raise AssertionError("messages delivered before the first configuration")
        # What is unfinished now is void: its sender sends it again, whole.
        self._assembler.reset()
        self._conf(effect.regular)
        self.view = effect.regular
        self.views += 1

    def since_view(self) -> tuple[set[str], set[str]]:
        """What was sent and what was delivered here since the last regular configuration."""
        sent: set[str] = set()
        delivered: set[str] = set()
        for event in reversed(self.events):
            if isinstance(event, Conf):
                break
            if isinstance(event, Send):
                sent.add(event.msg)
            elif isinstance(event, Deliver):
                delivered.add(event.msg)
        return sent, delivered

    def _conf(self, view: View) -> None:
        self.step += 1
        event = Conf(self.node, self.step, view.id, _KINDS[view.kind], view.members)  # type: ignore[arg-type]
        if self.numbered:
            event.number = view.number
        self.events.append(event)

    def close(self, kind: type[End] | type[Close] | type[Leave]) -> None:
        self.step += 1
        self.events.append(kind(self.node, self.step))

    def has_delivered(self, name: str) -> bool:
        return any(type(event) is Deliver and event.msg == name for event in self.events)


def trace_hash(traces: dict[str, list[Event]]) -> str:
    """A digest of everything that all nodes did."""
    digest = blake2b(digest_size=16)
    encode = msgspec.json.Encoder().encode
    for events in traces.values():
        digest.update(encode(events))
    return digest.hexdigest()


def write_traces(directory: Path, traces: dict[str, list[Event]]) -> None:
    """One file a node, one event a line, in the form that `ordercast check` reads."""
    directory.mkdir(parents=True, exist_ok=True)
    encoder = msgspec.json.Encoder()
    for node, events in traces.items():
        with (directory / f"{node}.jsonl").open("wb") as file:
            file.write(encoder.encode_lines(events))
