"""The other side: questions to members, and their log as a reader sees its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from ordercast import errors
from ordercast.errors import AuthError, GroupError
from ordercast.log import LogBatch, ViewRecord
from ordercast.log.reader import Part
from ordercast.serve import messages as m
from ordercast.serve.channel import Channel, ChannelClosed, connect
from ordercast.wire.chunk import read_chunks
from ordercast.wire.keys import GroupKey

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 90.0
"""Longer than a member waits for a batch to be ordered."""
CATCH_UP_S = 15.0
"""A member may be behind the one that said where the log ends, for so long."""
READ_BYTES = 2**23

T = TypeVar("T")
Address = tuple[str, int]


class Client:
    """Asks the first of some members that answers, and goes on to the next when that one is lost."""

    def __init__(self, servers: Sequence[Address], key: GroupKey | None = None) -> None:
        self._servers = list(servers)
        self._key = key
        self._channel: Channel | None = None
        self.server: Address = self._servers[0]
        """The one that answered last."""

    def ask(self, request: m.AnyRequest, kind: type[T], body: Iterable[bytes | memoryview] = ()) -> T:
        return self.ask_for_bytes(request, kind, body)[0]

    def ask_for_bytes(
        self, request: m.AnyRequest, kind: type[T], body: Iterable[bytes | memoryview] = ()
    ) -> tuple[T, memoryview]:
        """The answer and its body. A connection that breaks is made anew, once: questions may be put twice."""
        body = tuple(body)
        again = self._channel is not None
        while True:
            channel = self._channel or self._connect()
            try:
                channel.send(m.encode(request), body)
                head, blob = channel.receive()
                return _answer(head, kind), blob
            except ChannelClosed:
                self.close()
                if not again:
                    raise
                again = False
            except AuthError:
                self.close()
                raise

    def next_server(self) -> None:
        """Tries the others first from now on."""
        self.close()
        self._servers = [*self._servers[1:], self._servers[0]]

    def _connect(self) -> Channel:
        failures = []
        for host, port in self._servers:
            try:
                sock = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
            except OSError as error:
                failures.append(f"{host}:{port}: {error.strerror or error}")
                continue
            try:
                channel = connect(sock, self._key)
            except ChannelClosed as error:
                sock.close()
                failures.append(f"{host}:{port}: {error}")
                continue
            except BaseException:
                sock.close()
                raise
            channel.patience(ANSWER_TIMEOUT_S)
            self._channel, self.server = channel, (host, port)
            return channel
        raise GroupError(f"no member can be reached ({'; '.join(failures)}). Is one running that serves its log there?")

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None


def _answer(head: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(head, type=kind)
    except msgspec.ValidationError:
        failed = msgspec.msgpack.decode(head, type=m.Failed)
    error = getattr(errors, failed.kind, GroupError)
    raise (error if isinstance(error, type) and issubclass(error, GroupError) else GroupError)(failed.message)


class RemoteLog:
    """The log of members that serve it: what a LogReader has for those who read, over the network."""

    def __init__(self, servers: Sequence[Address], key: GroupKey | None = None) -> None:
        self._client = Client(servers, key)
        self._info = self._client.ask(m.Info(), m.Log)

    @property
    def group(self) -> str:
        return self._info.group

    @property
    def earliest(self) -> int:
        return self._info.earliest

    @property
    def end(self) -> int:
        return self._info.end

    @property
    def dead(self) -> list[tuple[int, int]]:
        """What copies of a sink's batches take."""
        return [*self._info.dead]

    def refresh(self) -> int:
        info = self._client.ask(m.Info(), m.Log)
        if info.group != self._info.group:
            raise GroupError(f"the members are of different groups, '{self._info.group}' and '{info.group}'")
        # Another member may answer than before, and be behind; what is ordered stays ordered.
        end = max(info.end, self._info.end)
        self._info = m.Log(info.group, info.member, info.earliest, end, info.dead or self._info.dead)
        return end

    def parts(self, start: int, end: int, target_bytes: int) -> list[Part]:
        found = self._client.ask(m.Parts(start, end, target_bytes), list[tuple[int, int]])
        return [Part(low, high) for low, high in found]

    def offset_of_time(self, time_us: int) -> int:
        return self._client.ask(m.OffsetOfTime(time_us), int)

    def views(self, start: int = 0, end: int | None = None) -> Iterator[ViewRecord]:
        yield from self._client.ask(m.Views(start, self.end if end is None else end), list[ViewRecord])

    def read(self, start: int, end: int | None = None) -> Iterator[LogBatch]:
        end = self.end if end is None else end
        if start < self.earliest:
            raise GroupError(f"offset {start} is no longer in the log, which begins with {self.earliest}")
        while start < end:
            position, raw = self._read(start, end)
            for chunk in read_chunks(raw):
                batch = LogBatch(chunk, position).slice(start, end)
                position += chunk.count
                start = batch.end
                yield batch

    def _read(self, start: int, end: int) -> tuple[int, memoryview]:
        deadline = time.monotonic() + CATCH_UP_S
        while True:
            try:
                position, raw = self._client.ask_for_bytes(m.Read(start, end, READ_BYTES), int)
                if not raw:
                    raise GroupError(f"offset {start} is not in the log")
                return position, raw
            except AuthError:
                raise
            except GroupError:
                if time.monotonic() > deadline:
                    raise
                self._client.next_server()
                time.sleep(0.05)

    def close(self) -> None:
        self._client.close()


__all__ = ["Client", "RemoteLog"]
